"""Tables that were rolled back, or only maintained, and whose snapshots were expired since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil import errors
from frazil.clients.iceberg.commit.metadata_log import KEPT_VERSIONS_PROPERTY
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.merge.planning.settings import IndexSettings
from frazil.model.marker import Marker, MarkerMove, MarkerRole, Override
from tests.support.lake.catalogs import Kind, LakeCase
from tests.support.lake.mirrored import ALL_BUT_THE_LAST, EVERYTHING, Mirrored
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable

pytestmark = [pytest.mark.spark, pytest.mark.fault("N26")]


def merged(spark: SparkSession, case: LakeCase, cache: Path) -> Mirrored:
    """A mirror that was merged into three times."""
    table = Mirrored.create(spark, case.lake, index=IndexSettings(cache_dir=cache))
    for at in range(3):
        table.change_and_merge({at: "own", 7: f"at {at}", 8: f"at {at}"})
    return table


@pytest.fixture
def table(spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path) -> Mirrored:
    return merged(spark, lake_of(Kind.SQLITE_FILE), tmp_path)


def compact(table: Mirrored) -> None:
    table.call("rewrite_data_files", arguments=EVERYTHING)


def expire(table: Mirrored) -> None:
    table.call("expire_snapshots", arguments=ALL_BUT_THE_LAST)


def set_back(table: Mirrored, procedure: str) -> None:
    """To the first merge, in one of the ways there are."""
    first = table.mirror.table.load_ancestry()[-1].id
    if procedure == "replace branch":
        table.sql(f"alter table {{mirror}} replace branch main as of version {first}")
    else:
        table.call(procedure, arguments=f"snapshot_id => {first}")


def accept_state(table: Mirrored) -> None:
    """What ``frazil position set TABLE --role merge`` does."""
    marker = table.mirror.recoverable_marker()
    assert marker is not None
    opened = table.mirror.table
    seen = opened.load_state().properties[MarkerRole.MERGE.property_name]
    goal = replace(marker, batch=uuid4().hex)
    opened.commit(StrictCommit(move=Override(MarkerRole.MERGE, seen, goal)))


@pytest.mark.parametrize(
    ("kind", "procedure", "foreign"),
    [
        (Kind.SQLITE_FILE, "rollback_to_snapshot", 0),
        pytest.param(Kind.SQLITE_FILE, "set_current_snapshot", 1, marks=pytest.mark.deep),
        (Kind.REST_S3, "rollback_to_snapshot", 2),
    ],
)
def test_a_rolled_back_mirror_stays_refused_after_foreign_commits_and_expiry(
    spark: SparkSession,
    lake_of: Callable[[Kind], LakeCase],
    tmp_path: Path,
    *,
    kind: Kind,
    procedure: str,
    foreign: int,
) -> None:
    table = merged(spark, lake_of(kind), tmp_path)
    set_back(table, procedure)
    for _ in range(foreign):
        compact(table)
    expire(table)
    with pytest.raises(errors.RolledBackError, match="not in the table's history"):
        table.merge()
    compact(table)
    expire(table)
    with pytest.raises(errors.RolledBackError, match="not in the table's history"):
        table.mirror.position()
    # The state that is there is that of the first merge, though its snapshot is gone.
    accept_state(table)
    table.merge()
    table.check_rows()


@pytest.mark.parametrize("how", ["replace branch", "replace table"])
def test_a_mirror_that_was_replaced_stays_refused_after_expiry(table: Mirrored, how: str) -> None:
    if how == "replace table":
        table.sql(
            "create or replace table {mirror} using iceberg tblproperties ('format-version'='3') "
            "as select 1L as id, 'theirs' as name, 'p' as city"
        )
    else:
        set_back(table, how)
    for _ in range(2):
        table.sql("insert into {mirror} values (99, 'theirs', 'p')")
    expire(table)
    with pytest.raises(errors.RolledBackError, match="not in the table's history"):
        table.merge()


@pytest.mark.parametrize("kind", sampled([Kind.SQLITE_FILE, Kind.REST_S3], ci={Kind.SQLITE_FILE}))
def test_repeated_compaction_and_expiry_are_no_rollback(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path, kind: Kind
) -> None:
    table = merged(spark, lake_of(kind), tmp_path)
    for at in range(2):
        for _ in range(at + 1):
            compact(table)
            compact(table)
            table.call("rewrite_manifests")
            expire(table)
        assert table.merge().commits == ()
        assert len(table.change_and_merge({at: "after", 7: f"after {at}", 20 + at: "new"}).commits)
        table.check_rows()


def test_a_long_lived_merger_needs_no_log_for_what_it_has_seen(table: Mirrored) -> None:
    merger = table.merger
    compact(table)
    merger.merge()
    table.sql(f"alter table {{mirror}} set tblproperties ('{KEPT_VERSIONS_PROPERTY}'='1')")
    for _ in range(2):
        compact(table)
        assert merger.merge().commits == ()
        expire(table)
        assert merger.merge().commits == ()
    # One that begins now has nothing to prove it with.
    with pytest.raises(errors.RolledBackError, match="cannot be ruled out"):
        table.merge()


def test_branches_that_come_forward_are_no_rollback(table: Mirrored) -> None:
    table.sql("alter table {mirror} create branch theirs")
    name = table.settings.mirror
    table.sql(f"insert into {name.quoted}.branch_theirs values (50, 'theirs', 'p')")
    table.call("fast_forward", arguments="branch => 'main', to => 'theirs'")
    table.sql("alter table {mirror} drop branch theirs")
    compact(table)
    expire(table)
    table.expected[50] = ("theirs", "p")
    table.change_and_merge({1: "after"})
    table.check_rows()
    # Rolled back and forward again.
    (head,) = (table.head().id,)
    compact(table)
    table.call("rollback_to_snapshot", arguments=f"snapshot_id => {head}")
    table.sql("insert into {mirror} values (51, 'theirs', 'p')")
    expire(table)
    table.expected[51] = ("theirs", "p")
    table.change_and_merge({1: "at last"})
    table.check_rows()


def test_what_the_log_does_not_reach_is_refused_until_an_operator_accepts_it(
    table: Mirrored,
) -> None:
    table.sql(f"alter table {{mirror}} set tblproperties ('{KEPT_VERSIONS_PROPERTY}'='1')")
    for _ in range(3):
        compact(table)
        expire(table)
    table.change({1: "after"})
    with pytest.raises(errors.RolledBackError, match="cannot be ruled out") as refused:
        table.merge()
    assert not refused.value.is_proven
    assert refused.value.next_step == f"frazil position set {table.settings.mirror} --role merge"
    opened = table.mirror.table
    seen = opened.load_state().properties[MarkerRole.MERGE.property_name]
    marker = opened.load_state().marker(MarkerRole.MERGE, table="t")
    assert marker is not None
    opened.commit(StrictCommit(move=Override(MarkerRole.MERGE, seen, replace(marker, batch="set"))))
    # Our commit keeps enough versions from now on.
    assert opened.load_state().properties[KEPT_VERSIONS_PROPERTY] == "100"
    table.merge()
    table.check_rows()


def append(table: LakeTable, at: int) -> None:
    """An empty batch of a changelog."""
    goal = Marker(pipeline="tests", source="s", position=str(at), batch=f"b{at}")
    move = MarkerMove(MarkerRole.INGEST, None if at == 0 else str(at - 1), goal)
    table.commit(StrictCommit(move=move, changes=FileChanges()))


def test_a_changelogs_marker_needs_the_same_proof(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> None:
    case = lake_of(Kind.SQLITE_FILE)
    table = case.new_table()
    spark.sql(f"insert into {table.name.quoted} values (0, 'theirs')")
    spark.sql(f"delete from {table.name.quoted}")
    for at in range(3):
        append(table, at)
    system = f"call {case.catalog}.system"
    for _ in range(3):
        spark.sql(f"insert into {table.name.quoted} values (1, 'theirs')")
        spark.sql(f"{system}.expire_snapshots('{table.name}', {ALL_BUT_THE_LAST})")
    append(case.lake.open(table.name), 3)
    append(table, 4)
    parent = table.load_ancestry()[1].id
    spark.sql(f"{system}.rollback_to_snapshot('{table.name}', {parent})")
    for _ in range(2):
        spark.sql(f"insert into {table.name.quoted} values (1, 'theirs')")
    spark.sql(f"{system}.expire_snapshots('{table.name}', {ALL_BUT_THE_LAST})")
    for opened in (table, case.lake.open(table.name)):
        with pytest.raises(errors.RolledBackError, match="not in the table's history") as refused:
            append(opened, 5)
        assert refused.value.next_step == f"frazil resync {table.name}"
