"""Changelogs written with plain SQL, and their mirrors."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest

from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.table_name import parse_table_name
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from frazil.merge.report import MergeReport
    from tests.support.lake.catalogs import LakeCase

_numbers = count()


class SqlChangelog:
    """A changelog written with plain SQL, and its mirror."""

    def __init__(
        self, spark: SparkSession, case: LakeCase, folder: Path, columns: str, **choices: object
    ) -> None:
        number = next(_numbers)
        self.spark = spark
        self.changelog = f"{case.catalog}.logs.log_{number}"
        self.mirror = f"{case.catalog}.logs.mirror_{number}"
        spark.sql(f"create namespace if not exists {case.catalog}.logs")
        spark.sql(f"create table {self.changelog} ({columns}) using iceberg")
        settings = MergeSettings(
            changelog=parse_table_name(f"logs.log_{number}", catalog=case.catalog),
            mirror=parse_table_name(f"logs.mirror_{number}", catalog=case.catalog),
            key=("id",),
            sequence="seq",
            operation="op",
            index=IndexSettings(cache_dir=folder / "cache"),
        )
        chosen = replace(settings, **choices)  # type: ignore[arg-type]
        own = replace(chosen.index, cache_dir=folder / "cache")
        self.settings = replace(chosen, index=own)
        self.lake = case.lake

    def write(self, *rows: str) -> None:
        """One snapshot with these rows, each as SQL writes it."""
        self.spark.sql(f"insert into {self.changelog} values {', '.join(rows)}")

    def merge(self) -> MergeReport:
        """Everything that is there."""
        return Merger(self.spark, self.lake, self.settings).merge()

    def rows(self, columns: str = "*") -> list[tuple[object, ...]]:
        """What the mirror holds, sorted."""
        found: Sequence[Row] = self.spark.sql(f"select {columns} from {self.mirror}").collect()
        return sorted((tuple(row) for row in found), key=repr)


@pytest.fixture
def sql_changelog(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> Callable[..., SqlChangelog]:
    """Creates changelogs over SQLite and files."""

    def make(columns: str, **choices: object) -> SqlChangelog:
        return SqlChangelog(spark, lake_of(Kind.SQLITE_FILE), tmp_path, columns, **choices)

    return make
