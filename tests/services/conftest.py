from __future__ import annotations

from tests.support.services import (
    etcd,
    file_catalog,
    object_store,
    postgres,
    postgres_16,
    s3_catalog,
    shared_folder,
)

__all__ = [
    "etcd",
    "file_catalog",
    "object_store",
    "postgres",
    "postgres_16",
    "s3_catalog",
    "shared_folder",
]
