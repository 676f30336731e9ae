"""Engines that read the tables, and the newest format of Iceberg that all of them know."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Deletes are deletion vectors in the newer one, and delete files in the older one.
VECTORS_FORMAT = 3
FILES_FORMAT = 2


class Reader(StrEnum):
    """An engine, in a release as docs/how-to/query.md names it."""

    SPARK = "spark"
    PYICEBERG = "pyiceberg"
    DUCKDB = "duckdb"
    TRINO = "trino"
    ATHENA = "athena"
    SNOWFLAKE = "snowflake"
    BIGQUERY = "bigquery"
    DATABRICKS = "databricks"
    OTHER = "other"
    """One that we know nothing of."""


# Seen in our tests, or else what their makers' documents say.
_READS_VECTORS = frozenset(
    {
        Reader.SPARK,
        Reader.PYICEBERG,
        Reader.DUCKDB,
        Reader.SNOWFLAKE,
        Reader.BIGQUERY,
        Reader.DATABRICKS,
    }
)


def without_vectors(readers: Iterable[Reader]) -> tuple[Reader, ...]:
    """Those that do not read deletion vectors, or of which it is not known."""
    return tuple(each for each in readers if each not in _READS_VECTORS)


def format_for(readers: Iterable[Reader]) -> int:
    """The format of tables that all of these read."""
    return FILES_FORMAT if without_vectors(readers) else VECTORS_FORMAT
