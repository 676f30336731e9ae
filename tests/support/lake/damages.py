"""What others do to a mirror or its changelog, each of which some remedy must heal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.support.lake.equality_deletes import delete_by_equality
from tests.support.lake.mirrored import ALL_BUT_THE_LAST, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.model.table_name import TableName


@dataclass(frozen=True)
class Damaging:
    """A mirror of two columns, ``id`` first, and its changelog, in a warehouse of files."""

    spark: SparkSession
    lake: Lake
    changelog: TableName
    mirror: TableName

    def sql(self, statement: str) -> None:
        """SQL with ``{mirror}`` and ``{changelog}``."""
        names = {"mirror": self.mirror.quoted, "changelog": self.changelog.quoted}
        self.spark.sql(f"refresh table {self.mirror.quoted}")
        self.spark.sql(f"refresh table {self.changelog.quoted}")
        self.spark.sql(statement.format(**names)).collect()

    def call(self, procedure: str, name: TableName, arguments: str) -> None:
        self.sql(f"call {name.catalog}.system.{procedure}(table => '{name}', {arguments})")

    # --- the mirror ---

    def double_a_row(self) -> None:
        row = "select * from {mirror} where id = 2"
        self.sql(f"insert into {{mirror}} {row} union all {row}")

    def delete_by_equality(self) -> None:
        delete_by_equality(self.lake.open(self.mirror), [2])

    def lose_data(self) -> None:
        self._lose("data/**/*.parquet")

    def lose_data_and_index(self) -> None:
        self._lose("data/**/*.parquet", "metadata/*.stats")

    def _lose(self, *patterns: str) -> None:
        opened = self.lake.open(self.mirror)
        folder = local_path(opened.load_state().location)
        lost = [path for pattern in patterns for path in folder.glob(pattern)]
        assert lost
        for path in lost:
            path.unlink()

    def lose_runs(self) -> None:
        folder = local_path(self.lake.open(self.mirror).load_state().location)
        runs = [each for each in folder.glob("_index/**/*") if each.is_file()]
        assert runs
        for path in runs:
            path.write_bytes(b"no run")

    def write_avro(self) -> None:
        self.sql("alter table {mirror} set tblproperties ('write.format.default'='avro')")
        self.sql("insert into {mirror} values (60, 'theirs')")
        self.sql("alter table {mirror} unset tblproperties ('write.format.default')")

    def roll_back(self) -> None:
        first = self.lake.open(self.mirror).load_ancestry()[-1].id
        self.call("rollback_to_snapshot", self.mirror, f"snapshot_id => {first}")

    def roll_back_and_expire(self) -> None:
        self.roll_back()
        for number in (60, 61):
            self.sql(f"insert into {{mirror}} values ({number}, 'theirs')")
        self.call("expire_snapshots", self.mirror, ALL_BUT_THE_LAST)

    def unmark(self) -> None:
        self.sql("alter table {mirror} unset tblproperties ('frazil.merge')")

    def replace_mirror(self) -> None:
        self.sql("create or replace table {mirror} using iceberg as select * from {mirror} limit 1")

    # --- the changelog ---

    def overwrite_changes(self) -> None:
        self.sql("update {changelog} set cdc_operation = cdc_operation where id = 2")

    def expire_changes(self) -> None:
        self.call("expire_snapshots", self.changelog, ALL_BUT_THE_LAST)

    def drop_changelog(self) -> None:
        self.sql("drop table {changelog} purge")

    def make_changelog_again(self) -> None:
        """The same changes in another table of the same name."""
        aside = replace(self.changelog, table=f"{self.changelog.table}_aside").quoted
        self.sql(f"create table {aside} using iceberg as select * from {{changelog}}")
        self.sql("drop table {changelog} purge")
        self.spark.sql(
            f"create table {self.changelog.quoted} using iceberg as select * from {aside}"
        )

    def roll_back_changelog(self) -> None:
        first = self.lake.open(self.changelog).load_ancestry()[-1].id
        self.call("rollback_to_snapshot", self.changelog, f"snapshot_id => {first}")


def _data_file(table: LakeTable) -> str:
    head = table.load_state().head
    assert head is not None
    return str(local_path(table.load_live_files(head.id)[0].location))
