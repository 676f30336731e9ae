"""Mirrors that other engines write to: what they did stays, and merges go on being right."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import errors
from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.gateway import FileIntake
from frazil.hooks import armed
from frazil.merge.planning import plan
from frazil.merge.planning.settings import IndexSettings
from frazil.model.key_index import RepairReason
from frazil.model.marker import MarkerRole, Override
from tests.support.lake.mirrored import (
    EVERYTHING,
    Mirrored,
    attach_files,
    attach_lake,
    local_path,
    write_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.demo.services import RestCatalog
    from frazil.merge.report import MergeReport
    from frazil.model.key_index import Repair
    from frazil.model.marker import Marker

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("foreign"))


@pytest.fixture
def table(spark: SparkSession, lake: Lake, tmp_path: Path) -> Mirrored:
    """A mirror of version 3 with eight keys in three files, one of them with deletes."""
    return filled(spark, lake, tmp_path, 3)


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def shared(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    lake: Lake,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mirrored:
    """The same of each version; it may be in any state that is right."""
    return filled(spark, lake, tmp_path_factory.mktemp("cache"), request.param)


def filled(
    spark: SparkSession, lake: Lake, cache: Path, version: int, **settings: object
) -> Mirrored:
    table = Mirrored.create(
        spark,
        lake,
        format_version=version,
        index=IndexSettings(cache_dir=cache, young_entries=16, max_runs=3),
        **settings,
    )
    table.change_and_merge(dict.fromkeys(range(1, 7), "first"))
    table.change_and_merge({2: None, 7: "second"})
    table.change_and_merge({8: "third", 9: "third"})
    return table


def repair_of(report: MergeReport) -> Repair:
    (commit,) = report.commits
    (repair,) = commit.repairs
    return repair


@pytest.mark.fault("X3")
def test_compactions_of_some_and_of_all_files_cost_the_keys_of_the_new_files(
    shared: Mirrored,
) -> None:
    before = {file.location for file in shared.manifest().files}
    some = f"where => 'id <= 6', {EVERYTHING}"
    shared.call("rewrite_data_files", arguments=some)
    repair = repair_of(shared.change_and_merge({1: "after", 8: "after"}))
    assert (repair.reason, repair.rebuilt) == (RepairReason.FOREIGN_COMMIT, False)
    assert repair.files_read == 1
    assert before & {file.location for file in shared.manifest().files}
    shared.check()
    shared.call("rewrite_data_files", arguments=EVERYTHING)
    repair = repair_of(shared.change_and_merge({3: "after", 10: "new", 8: None}))
    assert (repair.rebuilt, repair.files_read) == (False, 1)
    shared.check()


@pytest.mark.fault("X3")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_another_engines_delete_update_and_merge_are_taken_as_they_are(
    shared: Mirrored, mode: str
) -> None:
    modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
    shared.sql(f"alter table {{mirror}} set tblproperties ({modes})")
    shared.change_and_merge(dict.fromkeys(range(20, 28), "before"))
    shared.sql("delete from {mirror} where id in (20, 21)")
    shared.sql("update {mirror} set name = 'foreign' where id in (22, 23)")
    shared.sql(
        "merge into {mirror} m using (select explode(array(24, 90, 91)) as id) s on m.id = s.id "
        "when matched then delete "
        "when not matched then insert (id, name, city) values (s.id, 'foreign', 'p')"
    )
    for key in (20, 21, 24):
        del shared.expected[key]
    for key, city in ((22, "p1"), (23, "p2"), (90, "p"), (91, "p")):
        shared.expected[key] = ("foreign", city)
    report = shared.change_and_merge({20: "back", 22: "ours", 90: "ours", 24: None, 25: "ours"})
    assert repair_of(report).reason is RepairReason.FOREIGN_COMMIT
    assert report.commits[0].surplus_rows == 0
    shared.check()
    shared.change_and_merge(dict.fromkeys((20, 22, 23, 25, 26, 27, 90, 91)))
    shared.check()


@pytest.mark.fault("N15")
def test_a_foreign_duplicate_of_a_key_goes_with_the_next_change_of_that_key(
    shared: Mirrored,
) -> None:
    shared.change_and_merge({30: "ours", 31: "ours"})
    shared.sql("insert into {mirror} values (30, 'foreign', 'p'), (39, 'foreign', 'p')")
    shared.expected[39] = ("foreign", "p")
    # Another key's change leaves both: it is unknown which of them is right.
    assert shared.change_and_merge({31: "later"}).commits[0].surplus_rows == 0
    assert shared.sql("select count(*) from {mirror} where id = 30") == [(2,)]
    report = shared.change_and_merge({30: "healed", 39: "healed"})
    assert report.commits[0].surplus_rows == 1
    shared.check()


def test_two_live_rows_of_a_key_that_are_found_while_building_stop_the_table(
    table: Mirrored,
) -> None:
    table.sql("insert into {mirror} values (50, 'a', 'p'), (50, 'b', 'p'), (1, 'c', 'p')")
    table.index_head_of_parent().unlink()
    table.change({7: "waits"})
    with pytest.raises(errors.DuplicateKeyError, match="2 rows have a key") as caught:
        table.merge()
    assert caught.value.next_step == f"frazil resync {table.settings.mirror}"
    query = caught.value.message.partition("listed by: ")[2].removesuffix(".")
    assert sorted(row.id for row in table.spark.sql(query).collect()) == [1, 50]
    table.sql("delete from {mirror} where city = 'p'")
    assert repair_of(table.merge()).reason is RepairReason.MISSING
    table.check()


def equality_deletes(table: Mirrored, *keys: int) -> None:
    """What Flink writes for rows that it did not read."""
    opened = table.mirror.table
    location = f"{opened.load_state().location}/data/{uuid4()}-eq.parquet"
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
    path = local_path(location)
    pq.write_table(pa.table({"id": list(keys)}, schema=pa.schema([field])), path)
    descriptor = (
        '{"spec-id":0,"content":"EQUALITY_DELETES","equality-ids":[1],"file-format":"PARQUET",'
        f'"file-path":"{location}","partition":{{}},"record-count":{len(keys)},'
        f'"file-size-in-bytes":{path.stat().st_size}}}'
    )
    delta = opened._table.newRowDelta()
    specs = opened._table.specs()
    opened._gateway.apply_files(delta, FileIntake.ADD_DELETES, [descriptor], specs)
    delta.commit()


@pytest.mark.fault("N15")
def test_equality_deletes_stop_the_table_until_it_is_compacted(shared: Mirrored) -> None:
    shared.change_and_merge({40: "before", 41: "before", 42: "before"})
    equality_deletes(shared, 40, 41)
    del shared.expected[40], shared.expected[41]
    shared.change({41: "after", 42: "after"})
    with pytest.raises(errors.EqualityDeletesError, match="equality deletes of another") as caught:
        shared.merge()
    command = caught.value.next_step
    assert command is not None
    assert ".system.rewrite_data_files(" in command
    shared.spark.sql(command)
    assert repair_of(shared.merge()).reason is RepairReason.FOREIGN_COMMIT
    shared.check()


def test_foreign_files_that_are_not_parquet_stop_the_table_until_they_are_rewritten(
    table: Mirrored,
) -> None:
    table.sql("alter table {mirror} set tblproperties ('write.format.default'='avro')")
    table.sql("insert into {mirror} values (60, 'foreign', 'p')")
    table.sql("alter table {mirror} unset tblproperties ('write.format.default')")
    table.expected[60] = ("foreign", "p")
    table.change({60: "ours", 1: "ours"})
    with pytest.raises(errors.UnsupportedSchemaChangeError, match="not Parquet but AVRO") as caught:
        table.merge()
    assert caught.value.next_step is not None
    table.spark.sql(caught.value.next_step)
    table.merge()
    table.check()


def test_a_statistics_entry_that_analyze_replaced_is_not_missed(table: Mirrored) -> None:
    ours = table.index_head()
    table.call("compute_table_stats")
    registered = [str(each.path()) for each in table.mirror.table._table.statisticsFiles()]
    assert not any(path.endswith(ours.name) for path in registered)
    assert table.change_and_merge({1: "after", 2: "after"}).repairs == ()
    table.check()


def override(table: Mirrored, goal: Marker) -> None:
    """What ``frazil position set`` does."""
    opened = table.mirror.table
    seen = opened.load_state().properties[MarkerRole.MERGE.property_name]
    goal = replace(goal, batch=uuid4().hex)
    opened.commit(StrictCommit(move=Override(MarkerRole.MERGE, seen, goal)))


@pytest.mark.fault("N4")
def test_a_mirror_that_was_rolled_back_is_merged_again_from_its_snapshot(
    table: Mirrored,
) -> None:
    head = table.head()
    table.change_and_merge({1: "lost", 2: "lost", 3: None, 11: "lost"})
    table.call("rollback_to_snapshot", arguments=f"snapshot_id => {head.id}")
    table.change({4: "after"})
    with pytest.raises(errors.RolledBackError, match="is not in the table's history"):
        table.merge()
    marker = table.mirror.recoverable_marker()
    assert marker is not None
    override(table, marker)
    repair = repair_of(table.merge())
    # The operator's commit is no merge; nothing of the files changed with it.
    assert (repair.reason, repair.files_read) == (RepairReason.FOREIGN_COMMIT, 0)
    table.check()


@pytest.mark.fault("N57")
@pytest.mark.parametrize("bits", [0, 1])
def test_a_range_that_empties_the_mirror_needs_nothing_of_what_it_removes(
    table: Mirrored, bits: int
) -> None:
    twice = "select 1L, 'theirs', 'p' union all select 1L, 'theirs', 'p'"
    table.sql(f"insert into {{mirror}} {twice}")
    for file in table.mirror.table.load_live_files(table.head().id):
        local_path(file.location).unlink()
    table.change({3: "before"})
    table.truncate()
    table.change({1: "after", 5: "after", 70: "after"})
    with mock.patch.object(plan, "plan_bits", return_value=bits):
        report = table.merge()
    assert repair_of(report).files_read == 0
    table.check()
    table.change_and_merge({1: "again", 5: None})
    table.check()


def test_a_mirror_that_was_replaced_under_its_name_is_not_merged_into(table: Mirrored) -> None:
    table.sql(
        "create or replace table {mirror} using iceberg tblproperties ('format-version'='3') "
        "as select 1L as id, 'theirs' as name, 'p' as city"
    )
    table.change({1: "ours"})
    with pytest.raises(errors.RolledBackError, match="is not in the table's history"):
        table.merge()
    assert table.rows() == {1: ("theirs", "p")}


def test_a_mirror_that_was_dropped_is_rebuilt_from_the_entire_changelog(
    table: Mirrored,
) -> None:
    table.sql("drop table {mirror} purge")
    table.change({1: "again"})
    assert table.merge().repairs == ()
    table.check()


class Suspended:
    """A merge in a thread of its own that waits at a failpoint while others work."""

    def __init__(self, table: Mirrored, point: str, gate: Path) -> None:
        self._table, self._point, self._gate = table, point, gate

    def during(self, work: Callable[[], object]) -> MergeReport:
        """The report of the merge that met what was done while it waited."""
        self._gate.touch()
        reached = self._gate.with_name(f"{self._gate.name}.reached")
        with armed(f"{self._point}=hold({self._gate})@1"), ThreadPoolExecutor(1) as thread:
            merging = thread.submit(self._table.merge)
            while not reached.exists() and not merging.done():
                time.sleep(0.01)
            try:
                work()
            finally:
                self._gate.unlink()
            return merging.result()


@pytest.mark.fault("X2")
@pytest.mark.parametrize("changes", [{1: "changed", 8: None}, {11: "new"}], ids=["any", "inserts"])
def test_a_compaction_between_plan_and_commit_has_the_merge_planned_again(
    shared: Mirrored, tmp_path: Path, changes: dict[int, str | None]
) -> None:
    shared.change(changes)
    suspended = Suspended(shared, "merge.written", tmp_path / "gate")
    before = shared.head()
    report = suspended.during(lambda: shared.call("rewrite_data_files", arguments=EVERYTHING))
    assert repair_of(report).reason is RepairReason.FOREIGN_COMMIT
    ours, compaction, found = shared.mirror.table.load_ancestry()[:3]
    assert (ours.parent, compaction.operation, found.id) == (compaction.id, "replace", before.id)
    shared.check()


@pytest.mark.fault("X9")
@pytest.mark.parametrize("version", [2, 3])
def test_rows_leave_the_partition_they_were_in_whatever_the_partitioning_became(
    spark: SparkSession, lake: Lake, tmp_path: Path, version: int
) -> None:
    table = filled(spark, lake, tmp_path, version, partition_by=("city",))
    table.change_and_merge({1: ("moved", "p9"), 3: ("moved", None)})
    table.check()
    table.sql("alter table {mirror} replace partition field city with bucket(4, id)")
    table.change_and_merge({1: ("again", "p1"), 3: ("again", "p2"), 4: None, 12: "new"})
    table.check()
    table.sql("alter table {mirror} drop partition field id_bucket_4")
    table.sql("alter table {mirror} add partition field truncate(1, name)")
    table.change_and_merge({5: "moved", 12: "moved", 7: None, 3: (("moved"), "p9")})
    table.check()
    specs = {file.spec_id for file in table.manifest().files}
    assert len(specs) == 3
    # All of it once more, by an index that knows nothing but the files.
    table.index_head().unlink()
    table.change_and_merge(dict.fromkeys(table.expected, "last"))
    table.check()


@pytest.mark.fault("N17")
def test_a_spec_that_changes_while_a_commit_is_in_progress_is_harmless(
    spark: SparkSession, file_catalog: RestCatalog, tmp_path: Path
) -> None:
    catalog = f"kind: rest, uri: '{file_catalog.uri}', warehouse: 'file:///unused'"
    lake = attach_lake(spark, write_document(tmp_path, catalog))
    table = filled(spark, lake, tmp_path / "cache", 3)
    table.change({1: "staged", 5: None, 13: "staged"})
    suspended = Suspended(table, "commit.staged", tmp_path / "gate")
    # A REST catalog compares the branch's head alone, so this refuses nothing.
    report = suspended.during(
        lambda: table.sql("alter table {mirror} add partition field bucket(2, id)")
    )
    assert report.repairs == ()
    table.check()
    table.change_and_merge({1: "after", 13: None, 14: "after"})
    table.check()
    assert {file.spec_id for file in table.manifest().files} == {0, 1}
