"""Changelogs, mirrors, the ledger and the dead letters over real catalogs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

from frazil import errors
from frazil.changelog.layout import changelog_schema
from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.clients.iceberg.commit.strict_commit import CommitOutcome, FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.ledger.rows import LedgerEntry
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, Paused, Removed, Streaming, TableState
from frazil.mirror.table import MirrorTable
from frazil.model.cause import Cause
from frazil.model.marker import Marker, MarkerRole, Override
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.model.table_name import TableName
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
# The rival is a thread of the same process: there is no need to wait long for it.
IMPATIENT = RetryPolicy(attempts=20, base_seconds=0.02, longest_seconds=0.2)
USERS = (Field(1, "id", Primitive.LONG, required=True), Field(2, "name", Primitive.STRING))


@dataclass(frozen=True)
class Tables:
    """A catalog with a namespace, and tables in it under names of their own."""

    case: LakeCase
    version: int
    spark: SparkSession

    def name(self) -> TableName:
        return TableName(self.case.catalog, ("tables",), f"t_{uuid4().hex[:12]}")

    def changelog(self) -> ChangelogTable:
        schema = changelog_schema(USERS, ["id"])
        return ChangelogTable.ensure(
            self.case.lake, self.name(), schema=schema, format_version=self.version
        )

    def mirror(self) -> MirrorTable:
        definition = TableDefinition(
            schema=Schema(0, USERS, frozenset({1})), format_version=self.version
        )
        return MirrorTable.ensure(self.case.lake, self.name(), definition)

    def ledger(self) -> Ledger:
        ledger = Ledger.ensure(self.case.lake, self.name(), format_version=self.version)
        return Ledger(ledger.table, retry=IMPATIENT)

    def roll_back(self, table: LakeTable, receipt: Receipt) -> None:
        snapshot = receipt.marker.snapshot
        assert snapshot is not None
        self.spark.sql(
            f"call {table.name.catalog}.system.rollback_to_snapshot('{table.name}', {snapshot.id})"
        )


@pytest.fixture(
    scope="module",
    params=[(Kind.SQLITE_FILE, 2), (Kind.REST_S3, 3)],
    ids=lambda pair: f"{pair[0]} v{pair[1]}",
)
def tables(
    request: pytest.FixtureRequest, spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> Tables:
    kind, version = request.param
    return Tables(lake_of(kind), version, spark)


def at(position: int, batch: str | None = None) -> Marker:
    return Marker(
        pipeline="tests", source="numbers", position=str(position), batch=batch or f"b{position}"
    )


def write(table: LakeTable, *rows: dict[str, object]) -> tuple[WrittenFile, ...]:
    target = table.load_write_target()
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(target.schema)))
    return writer.close()


def change(number: int) -> dict[str, object]:
    return {
        "id": number,
        "name": f"name {number}",
        "cdc_operation": "INSERT",
        "cdc_sequence_number": f"0000/{number:016x}/{0:016x}",
        "cdc_unchanged": [2, 4],
        "cdc_previous_key": {"id": number - 1},
    }


def append(changelog: ChangelogTable, start: int | None, goal: int) -> Receipt:
    files = write(changelog.table, change(goal))
    return changelog.append(
        files, start=None if start is None else str(start), goal=at(goal), summary={"note": "x"}
    )


def snapshot_of(receipt: Receipt) -> int:
    assert receipt.marker.snapshot is not None
    return receipt.marker.snapshot.id


def test_a_changelog_gets_the_ids_that_were_planned(tables: Tables) -> None:
    changelog = tables.changelog()
    assert changelog.table.load_schema().fields == changelog_schema(USERS, ["id"]).fields
    assert changelog.position() is None


def test_a_changelog_is_appended_repeated_fenced_and_read_by_range(tables: Tables) -> None:
    changelog = tables.changelog()
    first, second, third = (
        append(changelog, None, 1),
        append(changelog, 1, 2),
        append(changelog, 2, 3),
    )
    assert changelog.position() == third.marker
    again = changelog.append([], start="2", goal=at(3))
    assert again.outcome is CommitOutcome.ALREADY_DONE
    with pytest.raises(errors.FencedError):
        append(changelog, 2, 4)
    between = changelog.table.read_between(snapshot_of(first), snapshot_of(third))
    rows = between.orderBy("id").collect()
    assert [(row.id, row.cdc_unchanged, row.cdc_previous_key.id) for row in rows] == [
        (2, [2, 4], 1),
        (3, [2, 4], 2),
    ]
    everything = changelog.table.read_between(None, snapshot_of(second))
    assert sorted(row.id for row in everything.select("id").collect()) == [1, 2]
    head = changelog.table.load_state().head
    assert head is not None
    assert (head.summary["note"], head.summary["frazil.batch"]) == ("x", "b3")


@pytest.mark.fault("N4")
def test_a_changelog_that_was_rolled_back_stops(tables: Tables) -> None:
    changelog = tables.changelog()
    first = append(changelog, None, 1)
    second = append(changelog, 1, 2)
    tables.roll_back(changelog.table, first)
    with pytest.raises(errors.RolledBackError, match=str(snapshot_of(second))):
        changelog.position()
    with pytest.raises(errors.RolledBackError):
        append(changelog, 2, 3)
    with pytest.raises(errors.RolledBackError):
        changelog.table.read_between(snapshot_of(first), snapshot_of(second))


def test_a_changelog_that_was_replaced_or_lost_its_marker_stops(tables: Tables) -> None:
    changelog = tables.changelog()
    append(changelog, None, 1)
    name = changelog.table.name.quoted
    tables.spark.sql(f"alter table {name} unset tblproperties ('frazil.ingest')")
    with pytest.raises(errors.MarkerLostError, match="1 rows and no marker"):
        changelog.position()
    with pytest.raises(errors.MarkerLostError):
        append(changelog, 1, 2)
    other = tables.changelog()
    append(other, None, 1)
    quoted = other.table.name.quoted
    tables.spark.sql(f"create or replace table {quoted} using iceberg as select 7 as id")
    assert MarkerRole.INGEST.property_name in other.table.load_state().properties
    with pytest.raises(errors.RolledBackError):
        other.position()
    with pytest.raises(errors.RolledBackError):
        other.append([], start="1", goal=at(2))


def evolved(schema: Schema, name: str) -> Schema:
    new = Field(max(column.field.id for column in schema.columns()) + 1, name, Primitive.INT)
    return replace(schema, fields=(new, *schema.fields))


@pytest.mark.fault("T11")
def test_of_two_that_evolve_a_changelog_at_once_one_plans_again(tables: Tables) -> None:
    changelog = tables.changelog()
    append(changelog, None, 1)
    rival = ChangelogTable.open(tables.case.lake, changelog.table.name)
    ours = evolved(changelog.table.load_schema(), "ours")
    theirs = evolved(rival.table.load_schema(), "theirs")
    changelog.evolve(ours, start="1", goal=at(1, "evolve"), columns='{"1":1}')
    with pytest.raises(errors.CommitConflictError, match="newer schema"):
        rival.evolve(theirs, start="1", goal=at(1, "rival"))
    seen = evolved(rival.table.load_schema(), "theirs")
    row = {**change(2), "ours": 5, "theirs": 6}
    rival.evolve(seen, start="1", goal=at(2))
    rival.append(write(rival.table, row), start="2", goal=at(3))
    rows = changelog.table.read().orderBy("id").collect()
    assert [(row.id, row.ours, row.theirs) for row in rows] == [(1, None, None), (2, 5, 6)]
    assert changelog.table.load_state().properties[COLUMNS_PROPERTY] == '{"1":1}'
    # Repeating what was done says so, also after the schema moved on.
    again = rival.evolve(seen, start="2", goal=at(3))
    assert again.outcome is CommitOutcome.ALREADY_DONE


def test_a_foreign_schema_change_is_not_overwritten(tables: Tables) -> None:
    changelog = tables.changelog()
    append(changelog, None, 1)
    wanted = evolved(changelog.table.load_schema(), "ours")
    tables.spark.sql(f"alter table {changelog.table.name.quoted} add column foreign_one int")
    with pytest.raises(errors.CommitConflictError, match="newer schema"):
        changelog.evolve(wanted, start="1", goal=at(2))
    current = changelog.table.load_schema()
    narrow = replace(
        current, fields=(replace(current.fields[0], type=Primitive.INT), *current.fields[1:])
    )
    with pytest.raises(errors.UnsupportedSchemaChangeError, match="id changes from long to int"):
        changelog.evolve(narrow, start="1", goal=at(2))


def merge(mirror: MirrorTable, start: int | None, goal: int) -> Receipt:
    head = mirror.table.load_state().head
    files = write(mirror.table, {"id": goal, "name": "n"})
    return mirror.apply(
        FileChanges(added=tuple(file.descriptor for file in files)),
        start=None if start is None else str(start),
        goal=replace(at(goal), sequence=f"s{goal}"),
        planned_on=None if head is None else head.id,
        summary={"frazil.index": "none"},
    )


def test_a_mirror_that_was_rolled_back_offers_a_recoverable_marker(tables: Tables) -> None:
    mirror = tables.mirror()
    first = merge(mirror, None, 1)
    second = merge(mirror, 1, 2)
    assert mirror.position() == second.marker == mirror.recoverable_marker()
    tables.roll_back(mirror.table, first)
    with pytest.raises(errors.RolledBackError):
        mirror.position()
    nearest = mirror.recoverable_marker()
    assert nearest == first.marker
    assert nearest is not None
    seen = mirror.table.load_state().properties[MarkerRole.MERGE.property_name]
    stale = Override(MarkerRole.MERGE, "something else", nearest)
    with pytest.raises(errors.CommitConflictError, match="moved by another process"):
        mirror.table.commit(StrictCommit(move=stale))
    mirror.table.commit(StrictCommit(move=Override(MarkerRole.MERGE, seen, nearest)))
    third = merge(mirror, 1, 3)
    assert mirror.position() == third.marker
    assert sorted(row.id for row in mirror.table.read().collect()) == [1, 3]


def test_a_merge_planned_on_another_head_is_planned_again(tables: Tables) -> None:
    mirror = tables.mirror()
    first = merge(mirror, None, 1)
    merge(mirror, 1, 2)
    with pytest.raises(errors.CommitConflictError, match="newer head"):
        mirror.apply(FileChanges(), start="2", goal=at(3), planned_on=snapshot_of(first))


def entry(batch: str, table: str = "public.users_changelog") -> LedgerEntry:
    return LedgerEntry(
        batch=batch,
        role=MarkerRole.INGEST,
        table=table,
        start="1",
        goal="2",
        rows=10,
        files=1,
        seconds=0.25,
        committed_at=NOW,
    )


def state_of(table: str, state: Copying | Streaming | Paused | Removed) -> TableState:
    return TableState(table=table, identity=f"oid of {table}", state=state)


def test_the_ledger_keeps_the_position_and_the_newest_state_of_each_table(tables: Tables) -> None:
    ledger = tables.ledger()
    assert (ledger.acknowledged(), ledger.table_states()) == (None, ())
    copying = [state_of(name, Copying()) for name in ("a.x", "a.y", "a.z")]
    ledger.record([], start=None, goal=at(1), table_states=copying)
    paused = state_of("a.y", Paused("1", Cause(None, "type changed")))
    receipt = ledger.record(
        [entry("b2", "a.x"), entry("b2", "a.z")],
        start="1",
        goal=at(2),
        table_states=[state_of("a.x", Streaming()), paused, state_of("a.z", Removed("2"))],
    )
    assert ledger.acknowledged() == receipt.marker
    assert ledger.table_states() == (state_of("a.x", Streaming()), paused)
    before = ledger.table.load_state()
    again = ledger.record([entry("b2", "a.x")], start="1", goal=at(2))
    assert again.outcome is CommitOutcome.ALREADY_DONE
    assert ledger.table.load_state() == before
    with pytest.raises(errors.FencedError):
        ledger.record([entry("other")], start="1", goal=at(2, "other"))
    rows = tables.spark.sql(
        f"select batch, role, from_position, to_position, row_count, committed_at "
        f"from {ledger.table.name.quoted} where kind = 'batch' and table_name = 'a.x'"
    ).collect()
    assert [tuple(row)[:5] for row in rows] == [("b2", "ingest", "1", "2", 10)]
    assert rows[0].committed_at.astimezone(UTC) == NOW


def test_notes_leave_the_position_alone_despite_concurrent_writers(tables: Tables) -> None:
    ledger = tables.ledger()
    ledger.note([entry("merge 0")], pipeline="tests", batch="merge 0")
    assert ledger.acknowledged() is None
    ledger.record([entry("b0")], start=None, goal=at(0))
    concurrent = Ledger(tables.case.lake.open(ledger.table.name), retry=IMPATIENT)

    def note() -> None:
        for number in (1, 2, 3):
            name = f"merge {number}"
            concurrent.note([entry(name)], pipeline="tests", batch=name)

    with ThreadPoolExecutor(1) as pool:
        noted = pool.submit(note)
        for number in (1, 2, 3):
            ledger.record([entry(f"b{number}")], start=str(number - 1), goal=at(number))
        noted.result()
    found = ledger.acknowledged()
    assert found is not None
    assert (found.position, found.batch) == ("3", "b3")
    rows = ledger.table.read().orderBy("commit_number").collect()
    assert len({row.commit_number for row in rows}) == len(rows) == 8
    assert [row.batch for row in rows if row.batch.startswith("b")] == ["b0", "b1", "b2", "b3"]
    # A batch repeated after another writer's note is still recognised.
    ledger.note([entry("merge 4")], pipeline="tests", batch="merge 4")
    again = ledger.record([entry("b3")], start="2", goal=at(3))
    assert again.outcome is CommitOutcome.ALREADY_DONE


def record(offset: int, table: str = "a.x", partition: str = "") -> RejectedRecord:
    return RejectedRecord(
        table=table,
        partition=partition,
        offset=offset,
        reason=RejectReason.MALFORMED,
        message="does not decode",
        payload=bytes(range(offset)),
    )


def test_dead_letters_are_not_doubled_by_a_repeat(tables: Tables) -> None:
    letters = DeadLetterTable.ensure(tables.case.lake, tables.name(), format_version=tables.version)
    assert (letters.position("p"), letters.table.read().count()) == ({}, 0)

    def keep(*records: RejectedRecord, source: str = "numbers", pipeline: str = "p") -> list[int]:
        kept = letters.keep(records, pipeline=pipeline, source=source, batch="b", at=NOW)
        return [each.offset for each in kept]

    assert keep(record(3), record(4)) == [3, 4]
    # Another batch with the same records and more, as after a crash.
    assert keep(record(4), record(3), record(6)) == [6]
    assert keep(record(6)) == []
    assert letters.position("p") == {"numbers/a.x/": 7}
    # Others count for themselves.
    assert keep(record(1, partition="1"), record(1, table="a.y")) == [1, 1]
    assert keep(record(2), source="others") == [2]
    assert letters.table.read().count() == 6
    rows = letters.table.read().where("source = 'numbers'").orderBy("table_name", "position")
    shown = [(row.table_name, row.position, len(row.payload)) for row in rows.collect()]
    assert shown == [
        ("a.x", '{"a.x/":3}', 3),
        ("a.x", '{"a.x/":4}', 4),
        ("a.x", '{"a.x/":6}', 6),
        ("a.x", '{"a.x/1":1}', 1),
        ("a.y", '{"a.y/":1}', 1),
    ]
    # A table that two pipelines name by mistake is refused.
    with pytest.raises(errors.ConfigError, match="of the pipeline p"):
        keep(record(9), pipeline="another")
    tables.spark.sql(f"drop table {letters.table.name.quoted}")
    with pytest.raises(errors.LakeError):
        keep(record(7))


@pytest.mark.fault("P8")
def test_what_is_rejected_only_when_it_is_read_again_is_kept_too(tables: Tables) -> None:
    """As after a resync with columns that other records do not fit."""
    letters = DeadLetterTable.ensure(tables.case.lake, tables.name(), format_version=tables.version)

    def keep(batch: str, *offsets: int) -> list[int]:
        records = [record(each) for each in offsets]
        kept = letters.keep(records, pipeline="p", source="s", batch=batch, at=NOW)
        return [each.offset for each in kept]

    assert keep("first", 3, 5) == [3, 5]
    assert keep("again", 2, 3, 4) == [2, 4]
    assert keep("once more", 2, 3, 4, 5) == []
    assert letters.position("p") == {"s/a.x/": 6}
    assert keep("later", 5, 6) == [6]
    assert letters.position("p") == {"s/a.x/": 7}
    # A topic that was made again counts from the beginning.
    other = replace(record(3), payload=b"of another topic")
    for batch in ("new topic", "again"):
        letters.keep([other], pipeline="p", source="s", batch=batch, at=NOW)
    assert letters.position("p") == {"s/a.x/": 7}
    assert letters.table.read().count() == 6


def test_two_workers_keep_dead_letters_of_their_own_partitions(tables: Tables) -> None:
    name = tables.name()
    lakes = [Lake(tables.spark, tables.case.catalog) for _ in "ab"]
    version = tables.version
    workers = [DeadLetterTable.ensure(each, name, format_version=version) for each in lakes]

    def work(partition: str) -> None:
        for offset in range(3):
            worker = workers[int(partition)]
            some = [record(offset, partition=partition)]
            kept = worker.keep(some, pipeline="p", source="s", batch=f"{partition}{offset}", at=NOW)
            assert len(kept) == 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, "01"))
    assert workers[0].position("p") == {"s/a.x/0": 3, "s/a.x/1": 3}
    assert workers[1].table.read().count() == 6
