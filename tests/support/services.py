"""Fixtures for the embedded services, one of each per test session, started when first used.

A folder that wants them imports them into its conftest. What a test breaks it starts itself.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.demo import services

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgres() -> Iterator[services.Postgres]:
    """PostgreSQL 18."""
    with services.embedded_postgres(version=18) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_16() -> Iterator[services.Postgres]:
    """PostgreSQL 16."""
    with services.embedded_postgres(version=16) as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[services.ObjectStore]:
    """SeaweedFS, with its own REST catalog."""
    with services.seaweedfs() as store:
        yield store


@pytest.fixture(scope="session")
def file_catalog() -> Iterator[services.RestCatalog]:
    """Iceberg's REST catalog over a folder."""
    with services.rest_catalog() as catalog:
        yield catalog


@pytest.fixture(scope="session")
def s3_catalog(object_store: services.ObjectStore) -> Iterator[services.RestCatalog]:
    """Iceberg's REST catalog over the object store's plain bucket."""
    with services.rest_catalog(s3=object_store) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def etcd() -> Iterator[services.EtcdServer]:
    """A one-node etcd."""
    with services.etcd() as server:
        yield server


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user may enter: as root, PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory(prefix="frazil-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)
