"""Readers that share nothing with Spark: what they see is what other people see."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import duckdb
from pyiceberg.table import StaticTable

if TYPE_CHECKING:
    import pyarrow as pa

    from frazil.demo.services import ObjectStore

_DUCKDB_VERSION = "v1.5.5"
# Extensions come from packages; nothing is fetched while a test runs.
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def ids_by_pyiceberg(metadata: str, store: ObjectStore) -> list[int]:
    """The column ``id`` of the table with this metadata file."""
    table = StaticTable.from_metadata(metadata, properties=store.io_properties())
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def ids_by_duckdb(metadata: str, store: ObjectStore) -> list[int]:
    """The column ``id`` of the table with this metadata file."""
    with duckdb.connect(config=_OFFLINE) as connection:
        for name in ("httpfs", "avro", "iceberg"):
            connection.load_extension(str(_extension(name)))
        connection.execute(
            f"create secret (type s3, key_id '{store.access_key}', secret '{store.secret_key}', "
            f"endpoint '{urlsplit(store.endpoint).netloc}', use_ssl false, url_style 'path', "
            f"region '{store.region}')"
        )
        rows = connection.execute(
            f"select id from iceberg_scan('{metadata}') order by id"
        ).fetchall()
    return [row[0] for row in rows]


def rows_by_pyiceberg(metadata: str) -> pa.Table:
    """All rows of a table on this machine."""
    return StaticTable.from_metadata(metadata).scan().to_arrow()


def rows_by_duckdb(metadata: str) -> pa.Table:
    """All rows of a table on this machine."""
    # This reader needs a location with three slashes.
    location = f"file://{urlsplit(metadata).path}".replace("'", "''")
    with local_duckdb().cursor() as connection:
        return connection.execute(f"select * from iceberg_scan('{location}')").to_arrow_table()


@cache
def local_duckdb() -> duckdb.DuckDBPyConnection:
    """One for the process: its extensions take longer to load than a small table to read."""
    connection = duckdb.connect(config=_OFFLINE)
    for name in ("avro", "iceberg"):
        connection.load_extension(str(_extension(name)))
    return connection


def _extension(name: str) -> Path:
    spec = find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "extensions" / _DUCKDB_VERSION
    return folder / f"{name}.duckdb_extension"
