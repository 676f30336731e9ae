"""Maintenance by others, of a mirror and of its changelog: upgrades, expiry, retention."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.merge.planning.settings import IndexSettings
from frazil.merge.report import MergeAction
from frazil.model.key_index import DeleteKind, RepairReason
from frazil.model.policy import Order
from tests.support.lake.mirrored import (
    ALL_BUT_THE_LAST,
    EVERYTHING,
    Mirrored,
    attach_files,
    local_path,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.model.key_index import DeletePointer

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("maintenance"))


@pytest.fixture
def table(spark: SparkSession, lake: Lake, tmp_path: Path) -> Mirrored:
    """A changelog without rows, and no mirror yet; its index has runs soon."""
    index = IndexSettings(cache_dir=tmp_path, young_entries=4, max_runs=3)
    return Mirrored.create(spark, lake, index=index)


def sweep(table: Mirrored) -> set[str]:
    """Remove every file that Iceberg takes for an orphan, however young; returns them."""
    actions = table.mirror.table._gateway._root.spark.actions.SparkActions.get()
    removal = actions.deleteOrphanFiles(table.mirror.table._table)
    later = int(time.time() * 1000) + 60_000
    return {str(each) for each in removal.olderThan(later).execute().orphanFileLocations()}


def files_of_the_index(table: Mirrored) -> set[Path]:
    runs = table.manifest().runs
    return {local_path(part.location) for run in runs for part in run.parts}


@pytest.mark.fault("X5")
def test_orphan_removal_keeps_what_the_index_needs(table: Mirrored) -> None:
    table.change_and_merge(dict.fromkeys(range(10), "first"))
    table.change_and_merge({1: "second", 2: None})
    left_over = table.index_head().with_name("left-over.stats")
    left_over.write_text("of an attempt that died")
    runs = files_of_the_index(table)
    assert runs
    assert [path.rpartition("/")[2] for path in sweep(table)] == ["left-over.stats"]
    assert table.index_head().exists()
    assert all(path.exists() for path in runs)
    assert table.change_and_merge({1: "third", 3: None, 11: "new"}).repairs == ()
    table.check()


def test_expiry_of_the_mirrors_snapshots_leaves_the_newest_index(table: Mirrored) -> None:
    for number in range(4):
        table.change_and_merge({number: "old", number + 1: f"at {number}", 9: None})
    older = table.index_head_of_parent()
    table.call("expire_snapshots", arguments=ALL_BUT_THE_LAST)
    assert not older.exists()
    assert table.change_and_merge({1: "after", 4: None}).repairs == ()
    table.check()
    # A foreign commit, and our last one is expired: no snapshot names an index.
    table.sql("delete from {mirror} where id = 2")
    del table.expected[2]
    table.call("expire_snapshots", arguments=ALL_BUT_THE_LAST)
    (repair,) = table.change_and_merge({1: "again", 3: None}).repairs
    assert (repair.reason, repair.rebuilt) == (RepairReason.NO_ANCESTOR, True)
    table.check()


@pytest.mark.fault("N15", "X11")
def test_rows_that_were_deleted_before_an_upgrade_stay_deleted_after_it(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path)
    table = Mirrored.create(spark, lake, format_version=2, index=index)
    table.change_and_merge(dict.fromkeys(range(6), "first"))
    table.change_and_merge(dict.fromkeys(range(6, 12), "second"))
    # Ours, of one file.
    table.change_and_merge({0: None})
    # Theirs, of two files at once.
    table.sql(
        "alter table {mirror} set tblproperties ('write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition')"
    )
    table.sql("delete from {mirror} where id in (1, 7)")
    del table.expected[1], table.expected[7]
    table.sql("alter table {mirror} set tblproperties ('format-version'='3')")
    table.check_rows()
    # One of the two files gets its first vector.
    table.change_and_merge({2: "third"})
    table.check()
    assert {each.kind for each in deletes(table)} == set(DeleteKind)
    # Then the other; what was left of version 2 goes with it.
    table.change_and_merge({8: "third"})
    table.check()
    assert {each.kind for each in deletes(table)} == {DeleteKind.VECTOR}
    formats = table.sql("select distinct file_format from {mirror}.delete_files")
    assert formats == [("PUFFIN",)]
    table.call("rewrite_data_files", arguments=EVERYTHING)
    table.change_and_merge({1: "back", 9: None})
    table.check()


def deletes(table: Mirrored) -> list[DeletePointer]:
    return [each for file in table.manifest().files for each in file.deletes]


@pytest.mark.fault("N24", "C9")
@pytest.mark.parametrize(
    "merges", [30, pytest.param(400, marks=[pytest.mark.deep, pytest.mark.timeout(1200)])]
)
def test_many_merges_with_expiry_compaction_and_retention_stay_small(
    table: Mirrored, merges: int
) -> None:
    sizes = []
    for number in range(merges):
        key = number % 17
        changes = {key: f"at {number}", key + 20: "new", (key + 25) % 40: None}
        assert len(table.change_and_merge(changes).commits) == 1
        manifest = table.manifest()
        assert len(manifest.runs) <= 3
        assert manifest.entries <= 120
        assert len(deletes(table)) <= len(manifest.files)
        sizes.append(table.index_head().stat().st_size)
        if number % 10 == 4:
            table.call("expire_snapshots", arguments=ALL_BUT_THE_LAST)
            table.sql(f"delete from {{changelog}} where cdc_sequence_number <= {table.at - 3}")
            table.call("expire_snapshots", "changelog", ALL_BUT_THE_LAST)
        if number % 10 == 8:
            table.call("rewrite_data_files", arguments=EVERYTHING)
    table.check()
    assert len(list(table.index_head().parent.glob("*.stats"))) <= 10
    assert max(sizes) < 12_000
    assert len(table.manifest().files) <= 12


@pytest.mark.fault("N18")
def test_a_first_merge_takes_what_is_left_of_a_changelog_whose_snapshots_are_expired(
    table: Mirrored,
) -> None:
    table.change({1: "first", 2: "first", 3: "first"})
    table.change({2: None, 4: "second"})
    table.call("expire_snapshots", "changelog", ALL_BUT_THE_LAST)
    assert table.merge().rows_read == 5
    table.check()


def test_a_changelog_that_is_compacted_pruned_and_expired_is_merged_without_a_gap(
    table: Mirrored,
) -> None:
    table.change_and_merge({1: "first", 2: "first"})
    table.change({2: "second", 3: "second"})
    # Compaction in the range: the same rows in other files.
    table.call("rewrite_data_files", "changelog", EVERYTHING)
    table.change({3: "third", 4: "third"})
    assert table.merge().rows_read == 4
    table.check()
    table.change({5: "fourth"})
    # Retention in the range, of what was merged before it.
    table.sql("delete from {changelog} where cdc_sequence_number <= 6")
    table.change({1: None, 6: "fifth"})
    assert table.merge().rows_read == 3
    table.check()
    # Expiry of everything up to the marker, and not further.
    table.change({6: "sixth"})
    table.call("expire_snapshots", "changelog", ALL_BUT_THE_LAST)
    table.change({7: "seventh"})
    assert table.merge().rows_read == 2
    table.check()


def test_an_overwrite_of_the_changelog_stops_the_merge_by_its_snapshot_until_it_is_taken_back(
    table: Mirrored,
) -> None:
    table.change_and_merge({1: "first", 2: "first"})
    table.change({1: "second", 3: "second"})
    before = table.changelog_head()
    table.sql("update {changelog} set name = 'forged' where id = 3")
    forged = table.changelog_head()
    with pytest.raises(errors.ForeignChangeError, match=f"snapshot {forged} is an overwrite"):
        table.merge()
    assert table.rows() == {1: ("first", "p1"), 2: ("first", "p2")}
    table.call("rollback_to_snapshot", "changelog", f"snapshot_id => {before}")
    table.merge()
    table.check()


@pytest.mark.fault("X4")
def test_changes_that_were_pruned_or_expired_before_they_were_merged_are_not_skipped(
    table: Mirrored,
) -> None:
    table.change_and_merge({1: "first", 2: "first"})
    table.change({1: "second"})
    table.sql("delete from {changelog} where cdc_sequence_number = 3")
    removal = table.changelog_head()
    with pytest.raises(errors.ForeignChangeError, match=f"snapshot {removal} removed changes"):
        table.merge()
    table.change({3: "third"})
    table.call("expire_snapshots", "changelog", ALL_BUT_THE_LAST)
    with pytest.raises(errors.PositionLostError, match="merged last, is expired"):
        table.merge()
    assert table.rows() == {1: ("first", "p1"), 2: ("first", "p2")}


@pytest.mark.fault("N14")
def test_a_late_change_stays_late_when_the_index_is_rebuilt_after_expiry(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path)
    table = Mirrored.create(spark, lake, order=Order.PER_KEY, index=index)
    table.change_and_merge({1: "first", 2: "first"})
    table.change_and_merge({2: None})
    table.change({1: "second"})
    # The snapshot that was merged last is gone, and the deleted key is to be found without it.
    table.call("expire_snapshots", "changelog", ALL_BUT_THE_LAST)
    table.index_head().unlink()
    (repair,) = table.merge().repairs
    assert repair.reason is RepairReason.MISSING
    table.at = 1
    table.change({2: "late"})
    del table.expected[2]
    assert table.merge().counts[MergeAction.LATE] == 1
    table.check_rows()
