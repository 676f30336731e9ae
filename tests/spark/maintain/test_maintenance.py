"""Upkeep of tables that are written all the time: what goes, what stays, and kills in between."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from frazil import errors
from frazil.changelog.mirror_record import forget_statement
from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.hooks import InjectedFault, armed
from frazil.ledger.rows import LedgerEntry
from frazil.ledger.table import STATES_FROM_PROPERTY, Ledger, states_from
from frazil.ledger.table_state import Copying, Paused, Streaming, TableState
from frazil.maintain.facts import KeptRole
from frazil.maintain.jobs import LedgerJob
from frazil.maintain.maintainer import Maintainer
from frazil.maintain.table_set import KeptTable
from frazil.merge.planning.settings import IndexSettings
from frazil.model.cause import Cause
from frazil.model.marker import Marker, MarkerRole
from frazil.model.policy import JobKind
from frazil.model.table_facts import SnapshotOperation
from frazil.model.table_name import TableName
from tests.support.lake.catalogs import Kind
from tests.support.lake.mirrored import attach_files, local_path
from tests.support.maintain.captured_mirror import (
    LATER,
    NOW,
    SETTINGS,
    Captured,
    Later,
    maintain,
)
from tests.support.merge.shop import MergeShop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.maintain.jobs import JobOutcome
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("upkeep"))


@pytest.fixture
def table(spark: SparkSession, lake: Lake, tmp_path: Path) -> Captured:
    """Its index has runs soon."""
    index = IndexSettings(cache_dir=tmp_path, young_entries=4, max_runs=3)
    made = Captured.create(spark, lake, index=index)
    assert isinstance(made, Captured)
    return made


def maintain_with_kills(
    lake: Lake, kept: KeptTable, kind: JobKind, *points: str, by: timedelta = LATER
) -> list[JobOutcome]:
    """The same, after a process was killed at each of these points."""
    for point in points:
        with armed(f"{point}=error@1"), pytest.raises(InjectedFault):
            maintain(lake, kept, kind, by=by)
    return maintain(lake, kept, kind, by=by)


def test_snapshots_expire_but_for_markers_tags_branches_and_the_index(table: Captured) -> None:
    for number in range(3):
        table.change_and_merge(dict.fromkeys(range(number, number + 6), f"at {number}"))
    tagged, branched, *_ = table.snapshots()
    table.sql(f"alter table {{mirror}} create tag audit as of version {tagged}")
    table.sql(f"alter table {{mirror}} create branch work as of version {branched}")
    for number in range(3):
        table.change_and_merge({number: f"more {number}", 9: None})
    # A foreign commit on top: the marker's snapshot is not the head any more.
    table.call("rewrite_data_files", arguments="options => map('rewrite-all', 'true')")
    assert maintain(table.lake, table.kept_mirror, JobKind.EXPIRE, by=NOW) == []
    before = table.snapshots()
    # Killed when the metadata is committed and no file is removed: nothing else is left to do.
    outcomes = maintain_with_kills(
        table.lake, table.kept_mirror, JobKind.EXPIRE, "maintain.committed"
    )
    assert outcomes == []
    assert table.snapshots() == [tagged, branched, *before[-2:]]
    table.check_rows()
    table.sql("select count(*) from {mirror} version as of 'audit'")
    table.sql("select count(*) from {mirror} version as of 'work'")
    (repair,) = table.change_and_merge({1: "after", 4: None}).repairs
    assert not repair.rebuilt
    table.check()
    # What the killed one left are orphans; expiry in one piece removes its files itself.
    for number in range(5):
        table.change_and_merge({number: f"again {number}"})
    (outcome,) = maintain(table.lake, table.kept_mirror, JobKind.EXPIRE)
    assert outcome.snapshots_removed >= 5
    assert outcome.files_removed >= 5
    assert table.change_and_merge({2: "last"}).repairs == ()
    table.check()


def test_a_changelog_keeps_what_the_slowest_mirror_needs_and_the_paused_one_is_named(
    table: Captured,
) -> None:
    other = table.second_mirror()
    table.change({1: "first", 2: "first"})
    table.merge()
    other.merge()
    merged_by_both = table.files()
    for number in range(4):
        table.change_and_merge({number: f"at {number}", 7: None})
    lagging = table.kept_changelog
    maintainer = Maintainer(table.lake, clock=Later(LATER))
    plan = maintainer.load_plan(lagging)
    assert plan is not None
    ((name, seconds),) = plan.lagging
    assert (name, seconds > 7 * 86400) == (str(other.settings.mirror), True)
    kept = table.files() - merged_by_both
    # Nothing is removed while a kill comes first, and all of it once.
    (outcome,) = maintain_with_kills(table.lake, lagging, JobKind.RETENTION, "maintain.staged")
    assert (outcome.files_removed, outcome.rows_removed) == (1, 2)
    assert table.files() == kept
    with armed("maintain.committed=error@1"):
        assert maintain(table.lake, lagging, JobKind.RETENTION) == []
    # Expiry keeps the snapshot that the slower one merged last, and all that follow it.
    maintain(table.lake, lagging, JobKind.EXPIRE)
    assert other.merge().rows_read == 8
    other.check_rows()
    table.change_and_merge({3: "later"})
    table.check()
    # Both are there: everything may go, and the merge takes the removal for what it is.
    (outcome,) = maintain(table.lake, lagging, JobKind.RETENTION)
    assert outcome.files_removed == 4
    table.change_and_merge({5: "after"})
    assert other.merge().rows_read == 2
    other.check_rows()
    table.check()
    # What is left does not make a mirror.
    third = table.second_mirror()
    with pytest.raises(errors.PositionLostError):
        third.merge()


def test_a_changelog_keeps_what_a_mirror_of_another_document_needs(table: Captured) -> None:
    other = table.second_mirror()
    table.change_and_merge({1: "first", 2: "first"})
    other.merge()
    merged_by_both = table.files()
    for number in range(4):
        table.change_and_merge({number: f"at {number}", 7: None})
    # The document names one mirror; the other one has written its name in the changelog.
    kept = replace(table.kept_changelog, mirrors=(table.settings.mirror,))
    waiting = table.files() - merged_by_both
    maintainer = Maintainer(table.lake, clock=Later(LATER))
    plan = maintainer.load_plan(kept)
    assert plan is not None
    assert [mirror for mirror, _ in plan.lagging] == [str(other.settings.mirror)]
    maintain(table.lake, kept)
    assert table.files() == waiting
    assert other.merge().rows_read == 8
    other.check_rows()
    (outcome,) = maintain(table.lake, kept, JobKind.RETENTION)
    assert outcome.files_removed == 4
    # One that cannot be found may be made again: everything stays, until the remedy is run.
    table.change_and_merge({1: "last"})
    table.sql(f"drop table {other.settings.mirror.quoted}")
    assert maintain(table.lake, kept, JobKind.RETENTION) == []
    table.sql(forget_statement(kept.name, str(other.settings.mirror)))
    (outcome,) = maintain(table.lake, kept, JobKind.RETENTION)
    assert outcome.files_removed == 1
    table.change_and_merge({2: "after"})
    table.check()


def test_who_may_not_write_to_the_changelog_merges_with_a_warning(
    table: Captured, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "the catalog refused it."
        raise errors.CatalogError(message)

    monkeypatch.setattr("frazil.merge.merger.record_mirror", refuse)
    merger = table.merger
    for number in range(2):
        table.change({number: "first"})
        assert merger.merge().rows_read == 1
    found = [each for each in caplog.records if "will not wait" in each.getMessage()]
    assert len(found) == 1


def test_a_mirror_that_never_merged_keeps_everything(table: Captured) -> None:
    table.change({1: "first"})
    for number in range(4):
        table.change({number: "more"})
    jobs = maintain(table.lake, table.kept_changelog, JobKind.RETENTION, JobKind.EXPIRE)
    assert jobs == []
    assert len(table.snapshots("changelog")) == 5


def test_manifests_are_put_together_and_merges_go_on(table: Captured) -> None:
    for number in range(6):
        table.change_and_merge({number: "new"})
    assert table.count_manifests() >= 5
    (outcome,) = maintain(table.lake, table.kept_mirror, JobKind.MANIFESTS)
    assert outcome.files_removed >= 5
    assert table.count_manifests() <= 2
    assert table.head().operation is SnapshotOperation.REPLACE
    assert maintain(table.lake, table.kept_mirror, JobKind.MANIFESTS) == []
    (repair,) = table.change_and_merge({1: "after", 2: None}).repairs
    assert not repair.rebuilt
    table.check()


def test_files_that_no_snapshot_names_go_when_they_are_old_and_runs_with_their_heads(
    table: Captured,
) -> None:
    for number in range(6):
        table.change_and_merge(dict.fromkeys(range(5 * number, 5 * number + 5), "new"))
    folder = local_path(table.mirror.table.load_state().location)
    named = {path for path in folder.rglob("*") if path.is_file()}
    left = [folder / "data" / f"{uuid4()}-1700000000.parquet", folder / "metadata" / "dead.stats"]
    others = [folder / "data" / "README.txt", folder / "elsewhere" / "x.parquet"]
    young = folder / "data" / f"{uuid4()}-1800000000.parquet"
    for path in (*left, *others, young):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"of an attempt that died")
    soon = datetime.now(UTC) + LATER
    os.utime(young, (soon.timestamp(), soon.timestamp()))
    assert maintain(table.lake, table.kept_mirror, JobKind.ORPHANS, by=NOW) == []
    (outcome,) = maintain(table.lake, table.kept_mirror, JobKind.ORPHANS, by=timedelta(hours=2))
    assert outcome.files_removed == 0
    by = timedelta(days=9)
    (outcome,) = maintain_with_kills(
        table.lake, table.kept_mirror, JobKind.ORPHANS, "maintain.removed", by=by
    )
    assert outcome.files_removed <= 1
    assert [path.exists() for path in (*left, *others, young)] == [False, False, True, True, True]
    assert {path for path in named if not path.exists() and path.parent.name != "_index"} == set()
    assert maintain(table.lake, table.kept_mirror, JobKind.ORPHANS, by=by) == []
    table.check()
    # Its older snapshots keep older runs; without them these go.
    runs = set((folder / "_index").iterdir())
    live = {local_path(part.location) for run in table.manifest().runs for part in run.parts}
    maintain(table.lake, table.kept_mirror, JobKind.EXPIRE, by=by)
    maintain(table.lake, table.kept_mirror, JobKind.ORPHANS, by=timedelta(days=12))
    assert live <= set((folder / "_index").iterdir()) <= runs
    assert table.change_and_merge({1: "after", 2: None}).repairs == ()
    table.check()


def test_a_table_that_spells_its_store_s3a_loses_nothing_but_orphans(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> None:
    case = lake_of(Kind.REST_S3)
    index = IndexSettings(cache_dir=tmp_path, young_entries=4, max_runs=3)
    made = Captured.create(spark, case.lake, index=index)
    assert isinstance(made, Captured)
    made.change_and_merge(dict.fromkeys(range(8), "first"))
    state = made.mirror.table.load_state()
    assert state.location.startswith("s3://")
    # From here on new files are named otherwise than the old ones.
    other = state.location.replace("s3://", "s3a://")
    made.sql(f"alter table {{mirror}} set location '{other}'")
    made.change_and_merge({1: "second", 2: None})
    properties = dict(made.mirror.table.load_write_target().io_properties)
    orphan = f"{state.location}/data/{uuid4()}-1700000000.parquet"
    OutputFiles(properties).write_file(orphan, b"of an attempt that died")
    (outcome,) = maintain(case.lake, made.kept_mirror, JobKind.ORPHANS)
    assert outcome.files_removed == 1
    assert not InputFiles(properties).exists(orphan)
    made.check_rows()
    maintain(case.lake, made.kept_mirror, JobKind.EXPIRE)
    made.change_and_merge({3: "third"})
    made.check_rows()


def test_the_ledger_loses_old_batches_and_keeps_the_states_of_tables(lake: Lake) -> None:
    ledger = Ledger.ensure(lake, TableName(lake._name, ("shop",), f"l_{uuid4().hex[:8]}"))
    long_ago = datetime.now(UTC) - timedelta(days=60)

    def entry(at: datetime) -> LedgerEntry:
        return LedgerEntry(
            batch="b", role=MarkerRole.INGEST, table="a.x", start="1", goal="2", rows=1, files=1,
            seconds=0.1, committed_at=at,
        )  # fmt: skip

    def states(*found: tuple[str, object]) -> list[TableState]:
        return [TableState(table=name, identity="i", state=state) for name, state in found]  # type: ignore[arg-type]

    def goal(number: int) -> Marker:
        return Marker(pipeline="p", source="s", position=str(number), batch=f"b{number}")

    first = states(("a.x", Copying()), ("a.y", Copying()))
    ledger.record([entry(long_ago)], start=None, goal=goal(1), table_states=first)
    second = states(("a.x", Streaming()), ("a.z", Paused("1", Cause(None, "why"))))
    ledger.record([entry(long_ago)], start="1", goal=goal(2), table_states=second)
    ledger.record([entry(datetime.now(UTC))], start="2", goal=goal(3))
    before, dated = ledger.table_states(), ledger.dated_states()
    seen = ledger.acknowledged()
    assert seen is not None
    kept = KeptTable(name=ledger.table.name, role=KeptRole.LEDGER, settings=SETTINGS)
    job = LedgerJob(
        table=kept.name, before=datetime.now(UTC) - timedelta(days=30), reason="", cost_bytes=0,
        gain="",
    )  # fmt: skip
    maintainer = Maintainer(lake)
    plan = maintainer.load_plan(kept)
    assert plan is not None
    with armed("maintain.staged=error@1"), pytest.raises(InjectedFault):
        list(maintainer.perform(replace(plan, jobs=(job,))))
    assert ledger.table_states() == before
    (outcome,) = maintainer.perform(replace(plan, jobs=(job,)))
    assert outcome.is_done
    assert (ledger.table_states(), ledger.dated_states()) == (before, dated)
    after = ledger.acknowledged()
    assert after is not None
    assert (after.position, after.batch) == (seen.position, seen.batch)
    assert STATES_FROM_PROPERTY in ledger.table.load_state().properties
    assert seen.snapshot is not None
    assert ledger.only_upkeep_since(seen.snapshot)
    assert not ledger.has_new_states(seen.snapshot)
    old = ledger.table.read().where("committed_at < now() - interval 30 days")
    assert old.where("kind = 'batch'").count() == 0
    # The next batch follows as if nothing had happened.
    ledger.record(
        [entry(datetime.now(UTC))],
        start="3",
        goal=goal(4),
        table_states=states(("a.y", Streaming())),
        head=seen.snapshot,
    )
    newest = {"a.x": Streaming, "a.y": Streaming, "a.z": Paused}
    assert {each.table: type(each.state) for each in ledger.table_states()} == newest
    remove_history(ledger)
    assert {each.table: type(each.state) for each in ledger.table_states()} == newest


def remove_history(ledger: Ledger) -> None:
    """Remove the data files of before the states were put in one place: a start reads none."""
    state = ledger.table.load_state()
    assert state.head is not None
    live = ledger.table.load_live_files(state.head.id)
    history = [each for each in live if each.sequence < states_from(state.properties)]
    assert history
    for each in history:
        Path(urlsplit(each.location).path).unlink()


def test_the_command_shows_what_is_needed_does_it_and_leaves_other_writers_tables_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = MergeShop.open(spark, tmp_path)
    # Everything that nobody needs is old at once; rows that are dead may stay.
    with shop.document.open("a") as document:
        document.write(
            "maintenance: {snapshots: {keep: 1ms, min: 1}, compact: {dead_rows: 100%}}\n"
        )
    for number in range(3):
        shop.change("users", (number, "new", "INSERT"), (1, "same", "u"))
        shop.merge("users")
    shop.change("orders", (1, "one", "INSERT"))
    shop.merge("orders")
    planned = {each["table"]: each for each in shop.run_json_here("plan")["maintenance"]}
    # The changelogs are written by others, and only read.
    assert set(planned) == {"public.users", "public.orders"}
    (job,) = planned["public.users"]["jobs"]
    assert (job["job"], planned["public.orders"]["jobs"]) == ("expire", [])
    chosen = ("--table", "public.users", "--job", "expire")
    (shown,) = shop.run_json_here("maintain", "--dry-run", *chosen)
    assert shown["snapshots"] == 3
    (done,) = shop.run_json_here("maintain", "--once", *chosen)
    assert (done["last_job"], done["snapshots"], done["problem"]) == ("expire", 1, None)
    text = shop.run_here("maintain", "--dry-run", "--table", "public.users")
    assert "nothing: " in text.stdout
    unknown = shop.run_here("maintain", "--dry-run", "--table", "public.user")
    assert (unknown.returncode, "did you mean public.users?" in unknown.stderr) == (2, True)
    shop.change("users", (5, "after", "INSERT"))
    assert shop.merge("users").commits[0].repairs == ()
    assert shop.agrees("users")
