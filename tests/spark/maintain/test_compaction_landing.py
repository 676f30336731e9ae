"""Rewrites that sort, that others delete from by value meanwhile, and those in object stores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.maintain.compaction.compactor import Compactor, RewriteOptions
from frazil.maintain.compaction.landing import Abandoned, Landed, land
from frazil.maintain.compaction.sites import LogSite
from frazil.merge.planning.settings import IndexSettings
from frazil.model.policy import CompactionOrder, JobKind
from frazil.model.table_facts import SnapshotOperation
from tests.support.lake.catalogs import Kind
from tests.support.lake.equality_deletes import delete_by_equality
from tests.support.lake.mirrored import QUICKLY, Mirrored, attach_files
from tests.support.lake.other_readers import (
    ids_by_duckdb,
    ids_by_pyiceberg,
    rows_by_duckdb,
    rows_by_pyiceberg,
)
from tests.support.maintain.captured_mirror import Captured, maintain
from tests.support.maintain.rewritten import Compacted, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.maintain.compaction.compactor import Rewrite
    from tests.support.lake.catalogs import LakeCase, Services

pytestmark = pytest.mark.spark

SORTED = RewriteOptions(order=CompactionOrder.TABLE)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("landing"))


def index_of(folder: Path) -> IndexSettings:
    """One that has runs soon."""
    return IndexSettings(cache_dir=folder, young_entries=4, max_runs=3)


@dataclass(frozen=True)
class WrittenOrder:
    """A new file, and the sort order that it says it has."""

    location: str
    sort_order_id: int


def written_by(rewrite: Rewrite) -> list[WrittenOrder]:
    files = [json.loads(each.descriptor) for group in rewrite.groups for each in group.files]
    return [WrittenOrder(each["file-path"], each["sort-order-id"]) for each in files]


def identities(table: Mirrored) -> set[tuple[object, ...]]:
    table.sql("refresh table {mirror}")
    return set(table.sql("select id, _row_id, _last_updated_sequence_number from {mirror}"))


@pytest.mark.parametrize(
    ("version", "partition_by"), [(2, ()), (3, ()), (3, ("city",))], ids=["2", "3", "partitioned"]
)
def test_a_sorted_rewrite_has_the_tables_order_and_what_merges_delete_meanwhile(
    version: int, partition_by: tuple[str, ...], spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    table = Mirrored.create(
        spark, lake, index=index_of(tmp_path), format_version=version, partition_by=partition_by
    )
    table.change_and_merge({1: "before it is sorted"})
    assert {each.sort_order_id for each in written_by(rewritten(table, SORTED))} == {0}
    table.sql("alter table {mirror} write ordered by truncate(2, name) desc nulls first, id desc")
    begun = Compacted.begin(table, SORTED)
    table.change_and_merge({0: None, 7: "late", 30: "new"})
    table.change_and_merge({20: None, 21: "moved", 31: ("no city", None)})
    before = identities(table) if version == 3 else set()
    landed = land(begun.rewrite, begun.site, QUICKLY)
    assert isinstance(landed, Landed)
    # Rows 0, 7, 20 and 21.
    assert landed.late_deletes == 4
    assert table.head().operation is SnapshotOperation.REPLACE
    assert version != 3 or identities(table) == before
    table.check()
    order = lake.open(table.settings.mirror).load_version().sort_order
    written = written_by(begun.rewrite)
    assert {each.sort_order_id for each in written} == {order.order_id} != {0}
    for each in written:
        found = table.sql(
            f"select name, id from {{mirror}} where _file = '{each.location}' order by _pos"
        )
        expected = table.sql(
            f"select name, id from {{mirror}} where _file = '{each.location}' "
            "order by substring(name, 1, 2) desc nulls first, id desc"
        )
        assert found == expected
        assert found
    assert table.change_and_merge({2: "after", 9: None, 31: None}).repairs == ()
    table.check()


def rewrite_log(
    table: Captured, options: RewriteOptions | None = None, *, after: int = 0
) -> Rewrite:
    """All files with a later sequence number."""
    name = table.settings.changelog
    opened = table.lake.open(name)
    head = opened.load_state().head
    assert head is not None
    live = opened.load_live_files(head.id)
    files = [each.location for each in live if each.sequence > after]
    rewrite = Compactor(table.spark, table.lake, name).rewrite(files, options)
    assert rewrite is not None
    return rewrite


def ids_of(table: Captured) -> list[int]:
    """As Spark and DuckDB read them; PyIceberg refuses equality deletes."""
    table.sql("refresh table {changelog}")
    by_spark = sorted(int(str(row[0])) for row in table.sql("select id from {changelog}"))
    location = table.lake.open(table.settings.changelog).load_metadata_location()
    assert sorted(rows_by_duckdb(location)["id"].to_pylist()) == by_spark
    with pytest.raises(ValueError, match="equality deletes"):
        rows_by_pyiceberg(location)
    return by_spark


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_that_come_later_concern_rows_that_were_moved(
    version: int, spark: SparkSession, lake: Lake
) -> None:
    table = Captured.create(spark, lake)
    assert isinstance(table, Captured)
    name = table.settings.changelog
    table.sql(f"alter table {{changelog}} set tblproperties ('format-version'='{version}')")
    table.change({100: "stays where it is"})
    table.change(dict.fromkeys(range(4), "first"))
    table.change(dict.fromkeys(range(4, 8), "second"))
    begun, everything = rewrite_log(table, after=1), rewrite_log(table)
    delete_by_equality(lake.open(name), [2, 5])
    table.change({2: "inserted again"})
    # Iceberg would drop deletes of which no file that stays has need.
    assert isinstance(land(everything, LogSite(lake, name), QUICKLY), Abandoned)
    expected = [0, 1, 2, 3, 4, 6, 7, 100]
    assert ids_of(table) == expected
    landed = land(begun, LogSite(lake, name), QUICKLY)
    assert isinstance(landed, Landed)
    assert (landed.files_removed, landed.files_added) == (2, 1)
    assert ids_of(table) == expected
    # Files with such deletes are left out of the next one: only the last has none.
    again = rewrite_log(table)
    assert (again.left_out, len(again.groups)) == (2, 1)
    assert isinstance(land(again, LogSite(lake, name), QUICKLY), Landed)
    assert ids_of(table) == expected


def test_equality_deletes_of_one_partitioning_do_not_meet_files_of_another(
    spark: SparkSession, lake: Lake
) -> None:
    table = Captured.create(spark, lake)
    assert isinstance(table, Captured)
    name = table.settings.changelog
    table.sql("alter table {changelog} add partition field city")
    table.change({0: ("first", "a"), 1: ("first", "b"), 2: ("first", "a")})
    table.sql("alter table {changelog} add partition field bucket(2, id)")
    begun = rewrite_log(table)
    stays = rewrite_log(table, RewriteOptions(moves_specs=False))
    head = lake.open(name).load_state().head
    assert head is not None
    live = lake.open(name).load_live_files(head.id)
    of_a = next(each for each in live if '"a"' in each.partition)
    delete_by_equality(lake.open(name), [2], spec_id=of_a.spec_id, partition=of_a.partition)
    # In the new partitioning it would concern no file any more.
    assert isinstance(land(begun, LogSite(lake, name), QUICKLY), Abandoned)
    assert ids_of(table) == [0, 1]
    assert isinstance(land(stays, LogSite(lake, name), QUICKLY), Landed)
    assert ids_of(table) == [0, 1]


def test_rows_of_a_table_that_is_upgraded_meanwhile_keep_the_identity_that_they_get(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    table = Mirrored.create(spark, lake, index=index_of(tmp_path), format_version=2)
    begun = Compacted.begin(table)
    table.sql("alter table {mirror} set tblproperties ('format-version'='3')")
    table.change_and_merge({1: "after the upgrade"})
    before = identities(table)
    # Its files were written without the columns for it.
    assert isinstance(land(begun.rewrite, begun.site, QUICKLY), Abandoned)
    assert isinstance(land(rewritten(table), begun.site, QUICKLY), Landed)
    assert identities(table) == before
    table.check()


def test_a_mirror_with_equality_deletes_waits_for_its_operator(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    table = Mirrored.create(spark, lake, index=index_of(tmp_path))
    begun = Compacted.begin(table)
    delete_by_equality(table.mirror.table, [3])
    del table.expected[3]
    with pytest.raises(errors.EqualityDeletesError):
        land(begun.rewrite, begun.site, QUICKLY)
    table.check_rows()


@pytest.mark.parametrize("version", [2, 3])
def test_rewrites_land_in_an_object_store_under_both_spellings_of_it(
    version: int,
    spark: SparkSession,
    lake_of: Callable[[Kind], LakeCase],
    services: Services,
    tmp_path: Path,
) -> None:
    case = lake_of(Kind.REST_S3)
    table = Captured.create(spark, case.lake, index=index_of(tmp_path), format_version=version)
    assert isinstance(table, Captured)
    table.change_and_merge(dict.fromkeys(range(8), "first"))
    location = table.mirror.table.load_state().location
    assert location.startswith("s3://")
    begun = rewritten(table)
    # From here on files are named otherwise: those of the rewrite, deletes and the index.
    table.sql(f"alter table {{mirror}} set location '{location.replace('s3://', 's3a://')}'")
    table.change_and_merge({1: "second", 2: None, 9: "second"})
    site = Compacted(table, begun).site
    assert isinstance(land(begun, site, QUICKLY), Landed)
    table.check_rows()
    again = rewritten(table)
    table.change_and_merge({3: None, 4: "third"})
    assert isinstance(land(again, site, QUICKLY), Landed)
    assert table.change_and_merge({5: "after", 6: None}).repairs == ()
    table.check_rows()
    # What is needed is there still when all that is not has gone.
    maintain(case.lake, table.kept_mirror, JobKind.EXPIRE, JobKind.ORPHANS)
    table.check_rows()
    metadata = table.mirror.table.load_metadata_location()
    expected = sorted(table.expected)
    assert ids_by_pyiceberg(metadata, services.store) == expected
    assert ids_by_duckdb(metadata, services.store) == expected
