"""Every kind of catalog the tests can run for real, attached to the one session."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import BOUNDED_METADATA, Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.model.table_name import TableName
from tests.support.lake.files import SCHEMA, FileWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.demo.services import ObjectStore, Postgres, RestCatalog
    from frazil.model.schema.types import Schema


class Kind(StrEnum):
    """A catalog with a warehouse."""

    SQLITE_FILE = "sqlite over files"
    SQLITE_S3 = "sqlite over S3"
    POSTGRES_FILE = "postgres over files"
    POSTGRES_S3 = "postgres over S3"
    REST_S3 = "rest over S3"
    REST_FILE = "rest over files"
    SEAWEED = "seaweedfs"


@dataclass(frozen=True, slots=True)
class LakeCase:
    """An attached catalog, and a writer for its warehouse."""

    kind: Kind
    catalog: str
    lake: Lake
    files: FileWriter

    def new_table(self, format_version: int = 3, schema: Schema = SCHEMA) -> LakeTable:
        """An empty table with a unique name."""
        name = TableName(self.catalog, ("contract",), f"t_{uuid4().hex[:12]}")
        properties = dict(BOUNDED_METADATA)
        definition = TableDefinition(
            schema=schema, format_version=format_version, properties=properties
        )
        return self.lake.ensure_table(name, definition)

    def data_folder(self) -> str:
        """Where a test may put files: SeaweedFS's table buckets take only what they know."""
        return "_data" if self.kind is Kind.SEAWEED else "data"


_STORAGE = """
storage:
  s3:
    endpoint: '{endpoint}'
    path_style: true
    access_key_id: '{key}'
    secret_access_key: '{secret}'
"""


@dataclass(frozen=True, slots=True)
class Services:
    """What the catalogs run on."""

    store: ObjectStore
    s3_catalog: RestCatalog
    file_catalog: RestCatalog
    postgres: Postgres


def catalog_section(kind: Kind, services: Services, folder: Path) -> str:
    """The ``catalog`` of a document for this kind, without its name."""
    store, database = services.store, services.postgres.dsn
    in_sql = {
        Kind.SQLITE_FILE: (f"sqlite:///{folder}/c.db", f"file://{folder}/wh"),
        Kind.SQLITE_S3: (f"sqlite:///{folder}/s3.db", f"s3://{store.bucket}/of-sqlite"),
        Kind.POSTGRES_FILE: (database, f"file://{folder}/of-postgres"),
        Kind.POSTGRES_S3: (database, f"s3://{store.bucket}/of-postgres"),
    }
    if kind in in_sql:
        uri, warehouse = in_sql[kind]
        return f"kind: sql, uri: '{uri}', warehouse: '{warehouse}'"
    if kind is Kind.REST_S3:
        rest = services.s3_catalog
        return f"kind: rest, uri: '{rest.uri}', warehouse: '{rest.warehouse}'"
    if kind is Kind.REST_FILE:
        return f"kind: rest, uri: '{services.file_catalog.uri}', warehouse: 'file:///unused'"
    return (
        f"kind: rest, uri: '{store.iceberg_uri}', warehouse: 's3://{store.table_bucket}', "
        f"credential: '{store.iceberg_credential}', oauth2_server_uri: '{store.token_uri}'"
    )


def open_lake(kind: Kind, services: Services, spark: SparkSession, folder: Path) -> LakeCase:
    """Attach a catalog of this kind under its own name."""
    store = services.store
    name = kind.name.lower()
    storage = _STORAGE.format(
        endpoint=store.endpoint, key=store.access_key, secret=store.secret_key
    )
    document = folder / f"{name}.yaml"
    document.write_text(
        f"pipeline: tests\ncatalog: {{name: {name}, {catalog_section(kind, services, folder)}}}\n"
        f"{storage}\ntables: [{{mirror: a.b, changelog: a.c, key: [id]}}]\n"
    )
    attach_session(spark, load_config(document, environ={}).config)
    return LakeCase(kind, name, Lake(spark, name), FileWriter(store))


@pytest.fixture(scope="session")
def services(
    object_store: ObjectStore,
    s3_catalog: RestCatalog,
    file_catalog: RestCatalog,
    postgres: Postgres,
) -> Services:
    """Everything a catalog can run on."""
    return Services(object_store, s3_catalog, file_catalog, postgres)


@pytest.fixture(scope="session")
def lake_of(
    spark: SparkSession, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Kind], LakeCase]:
    """A catalog of each kind, attached on first use."""
    folder = tmp_path_factory.mktemp("lakes")
    opened: dict[Kind, LakeCase] = {}

    def opener(kind: Kind) -> LakeCase:
        if kind not in opened:
            opened[kind] = open_lake(kind, services, spark, folder)
        return opened[kind]

    return opener
