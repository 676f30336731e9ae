"""An ingest over the in-memory source: what is committed, and where a process may die."""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark import cloudpickle

from frazil.clients.iceberg.lake import Lake
from frazil.errors import (
    DefectError,
    PositionLostError,
    SlotBusyError,
    SourceReplacedError,
    UnrepresentableValueError,
    WriteFailedError,
)
from frazil.hooks import InjectedFault, armed
from frazil.ingest.captured_table import CapturedTable, Prepared
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.model.marker import MarkerRole
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.table_name import TableName
from frazil.pipeline.status.problems import problem_of_state
from frazil.telemetry.log_fields import FIELDS_ATTRIBUTE
from frazil.testing.in_memory_database import (
    DeleteRow,
    InsertRow,
    Spoil,
    TruncateTable,
    UpdateRow,
)
from tests.support.ingest.world import ORDERS, USERS, World, live, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.ingest.changelog_rows import RowLayout
    from frazil.sources.protocol import TablePart

__all__ = ["world"]

pytestmark = [pytest.mark.spark, pytest.mark.services]


def test_copies_and_their_changes_meet_without_a_gap(world: World) -> None:
    world.add(USERS, 1, 2, 3)
    ingester = world.run()
    world.database.transact(
        UpdateRow(USERS, (1,), {"id": 1, "name": "other"}),
        DeleteRow(USERS, (2,)),
        UpdateRow(USERS, (3,), {"id": 30, "name": "moved"}),
    )
    world.database.transact(TruncateTable((ORDERS,)), InsertRow(ORDERS, {"id": 9, "name": "x"}))
    world.run(ingester)
    world.check(USERS, ORDERS)
    assert world.states(ingester) == {USERS: Streaming(), ORDERS: Streaming()}
    operations = [row[1] for row in world.rows(USERS)]
    assert operations == ["READ"] * 3 + ["UPDATE", "DELETE", "DELETE", "INSERT"]


POINTS = [
    "ingest.planned", "ingest.written", "commit.planned", "commit.staged", "commit.landed",
    "ingest.committed", "ingest.recorded", "ingest.acknowledged",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_ends_anywhere_is_followed_by_one_that_goes_on(
    world: World, point: str
) -> None:
    live(world)
    world.add(USERS, 2, 3)
    world.add(ORDERS, 2)
    ingester, _ = world.start()
    with armed(f"{point}=error@1"), pytest.raises(InjectedFault):
        ingester.step()
    world.add(USERS, 4)
    world.run()
    world.check(USERS, ORDERS)


@pytest.mark.parametrize("point", ["ingest.written", "ingest.committed", "commit.landed"])
def test_a_copy_that_ends_anywhere_begins_again(world: World, point: str) -> None:
    world.add(USERS, 1, 2)
    world.add(ORDERS, 1)
    ingester, _ = world.start()
    with armed(f"{point}=error@2"), pytest.raises(InjectedFault):
        world.run(ingester)
    world.add(USERS, 3)
    world.run()
    world.check(USERS, ORDERS)


def test_a_table_that_begins_streaming_while_a_batch_is_written_loses_nothing(world: World) -> None:
    live(world)
    ingester, source = world.start(tables_at_once=1)
    world.run(ingester)
    resync(world, USERS)
    resync(world, ORDERS)
    ingester.step()
    # The moment of both tables is now; the second is read only after more has happened.
    assert ingester.copy_tables() is not None
    (second,) = ingester.tables_to_copy
    for each in (7, 8):
        world.add(USERS, each)
        world.add(ORDERS, each)
    source.between = ingester.copy_tables
    assert ingester.step() is not None
    assert world.states(ingester)[second] == Streaming()
    world.add(second, 9)
    world.run(ingester)
    world.check(USERS, ORDERS)


def resync(world: World, table: str) -> None:
    """What ``frazil resync`` writes."""
    name = TableName(world.case.catalog, (world.namespace,), "ledger")
    ledger = Ledger.open(Lake(world.spark, world.case.catalog), name)
    (before,) = [each for each in ledger.table_states() if each.table == table]
    again = TableState(table=table, identity=before.identity, state=Copying())
    ledger.note([], pipeline="in_memory", batch=uuid4().hex, table_states=[again])


def test_a_resync_replaces_all_rows_in_one_commit_of_a_new_epoch(world: World) -> None:
    live(world)
    ingester = world.run()
    resync(world, USERS)
    world.run(ingester)
    world.check(USERS)
    rows = world.rows(USERS)
    assert [row[1] for row in rows] == ["READ", "TRUNCATE", "READ"]
    assert [row[0][:4] for row in rows] == ["0000", "0001", "0001"]
    assert len(world.case.lake.open(world.changelog(USERS)).load_ancestry()) == 2


def test_a_table_that_fails_is_paused_and_the_others_go_on(world: World) -> None:
    live(world)
    ingester = world.run()
    before = ingester.acknowledged
    world.database.transact(Spoil(USERS, UnrepresentableValueError("does not fit")))
    world.add(ORDERS, 2)
    world.run(ingester)
    world.check(ORDERS)
    state = world.states(ingester)[USERS]
    assert isinstance(state, Paused)
    assert "does not fit" in state.cause.reason
    assert ingester.acknowledged == before, "the source must keep what the paused table needs"


@pytest.mark.fault("N33", "N34")
def test_a_source_is_prepared_with_all_positions_of_any_table(world: World) -> None:
    """Also where the ledger waits for a paused table."""
    live(world)
    world.database.transact(Spoil(USERS, UnrepresentableValueError("a value that fits nowhere.")))
    ingester = world.run()
    waits_at = ingester.acknowledged
    world.add(ORDERS, 2)
    world.run(ingester)
    assert ingester.acknowledged == waits_at
    ingester.close()
    world.database.fail_over()
    ingester, source = world.start()
    ingester.start()
    assert source.since is not None
    assert (source.since.position, source.since.epoch) == (waits_at, 1)
    positions = {
        name: world.case.lake.open(world.changelog(name)).load_marker(MarkerRole.INGEST)
        for name in (USERS, ORDERS)
    }
    assert source.reached == {each.position for each in positions.values() if each is not None}
    ahead = max(parse_lsn(str(each)) for each in source.reached)
    assert ahead > parse_lsn(str(waits_at))
    assert source.since.witness == f"up to {format_lsn(ahead)}"
    # Before any table is moved there: what it has must not resemble an earlier history.
    ingester.close()
    ingester, source = world.start()
    ingester.start()
    assert source.since is not None
    assert (source.since.epoch, source.since.witness) == (2, f"up to {format_lsn(ahead)}")
    ingester.close()


def test_past_the_bound_the_source_goes_on_and_the_ledger_says_so_before(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    live(world)
    world.held_bytes = 1
    ingester = world.run()
    before = parse_lsn(str(ingester.acknowledged))
    world.database.transact(Spoil(USERS, UnrepresentableValueError("does not fit")))
    world.add(ORDERS, 2)
    world.run(ingester)
    state = world.states(ingester)[USERS]
    assert isinstance(state, ResyncRequired)
    assert parse_lsn(str(ingester.acknowledged)) > before
    problem = problem_of_state(USERS, state, since=datetime.now(UTC))
    assert problem is not None
    assert "does not fit" in problem.reason
    (record,) = [each for each in caplog.records if each.msg == "resync required"]
    said = getattr(record, FIELDS_ATTRIBUTE)
    assert (said["table"], said["code"]) == (USERS, problem.code)
    assert (said["reason"], said["remedy"]) == (problem.reason, problem.remedy)
    # A new process does not forget it, whatever else happens.
    again = world.run()
    assert isinstance(world.states(again)[USERS], ResyncRequired)
    resync(world, USERS)
    world.run(again)
    world.check(USERS, ORDERS)


def test_a_table_excluded_and_included_again_is_copied(world: World) -> None:
    live(world)
    without = world.start(wanted=[ORDERS])[0]
    world.run(without)
    assert USERS not in world.states(without)
    world.add(USERS, 2)
    world.add(ORDERS, 2)
    world.run(without)
    again = world.run()
    world.check(USERS, ORDERS)
    assert world.states(again)[USERS] == Streaming()


def test_a_source_that_lost_our_position_stops_or_is_copied_again(world: World) -> None:
    live(world)
    world.add(USERS, 2)
    world.database.lose_log()
    ingester, _ = world.start()
    with pytest.raises(PositionLostError):
        ingester.step()
    world.resyncs_lost = True
    world.run()
    world.check(USERS, ORDERS)


def test_another_source_stops_until_every_table_is_to_be_read_again(world: World) -> None:
    live(world)
    world.database.replace()
    ingester, _ = world.start()
    with pytest.raises(SourceReplacedError, match="resync --all"):
        ingester.step()
    resync(world, USERS)
    resync(world, ORDERS)
    world.run()
    world.check(USERS, ORDERS)


@pytest.mark.fault("N56")
@pytest.mark.parametrize("resyncs_lost", [False, True])
def test_a_source_that_another_process_moved_on_is_not_lost(
    world: World, *, resyncs_lost: bool
) -> None:
    world.resyncs_lost = resyncs_lost
    first = world.run()
    second, source = world.start()

    def meanwhile() -> None:
        world.add(USERS, 1, 2, 3)
        world.run(first)

    # The second one has read the ledger by then, and not the source.
    source.while_discovering = meanwhile
    with pytest.raises(SlotBusyError):
        second.start()
    assert {each.state for each in second.table_states.values()} == {Streaming()}
    first.close()
    world.add(USERS, 4)
    world.run(second)
    assert world.fold(USERS) == dict.fromkeys(range(1, 5), "new")


@dataclass(frozen=True)
class BrokenLayout:
    """Where the code that writes one table has a defect; travels to the tasks."""

    inner: RowLayout

    def lay_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("a value of row " + str(rows.num_rows))


@dataclass(frozen=True)
class LargeRows:
    """Rows of which no more than ``most`` fit into a worker: the kernel kills it without a word."""

    inner: RowLayout
    most: int
    # Of one task: each one has its own copy.
    seen: list[int]

    def lay_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self.seen.append(rows.num_rows)
        if sum(self.seen) > self.most:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.lay_out(rows)


@pytest.mark.fault("O3")
def test_a_batch_whose_worker_is_killed_for_its_memory_is_split_until_it_passes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingester = world.run()
    inner = CapturedTable.prepare

    def prepare(self: CapturedTable, part: TablePart) -> Prepared:
        found = inner(self, part)
        layout: Any = LargeRows(found.target.layout, most=300, seen=[])
        return replace(found, target=replace(found.target, layout=layout))

    monkeypatch.setattr(CapturedTable, "prepare", prepare)
    # Workers have no tests to import.
    cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
        sys.modules[LargeRows.__module__]
    )
    for first in range(0, 1200, 20):
        world.add(USERS, *range(first, first + 20))
    # Of at most a thousand rows, then half, then a quarter.
    for _ in range(2):
        with pytest.raises(WriteFailedError, match="a worker died") as caught:
            ingester.step()
        assert "spark.executor.memoryOverhead" in str(caught.value)
    world.run(ingester)
    assert world.fold(USERS) == dict.fromkeys(range(1200), "new")


@pytest.mark.fault("N44")
def test_a_defect_in_a_task_pauses_its_table_after_a_few_attempts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    ingester = world.run()
    inner = CapturedTable.prepare

    def prepare(self: CapturedTable, part: TablePart) -> Prepared:
        found = inner(self, part)
        if part.table.name != USERS:
            return found
        broken: Any = BrokenLayout(found.target.layout)
        return replace(found, target=replace(found.target, layout=broken))

    monkeypatch.setattr(CapturedTable, "prepare", prepare)
    # Workers have no tests to import.
    cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]
        sys.modules[BrokenLayout.__module__]
    )
    world.add(USERS, 2)
    world.add(ORDERS, 2)
    for _ in range(2):
        with pytest.raises(WriteFailedError, match="unexpected KeyError at"):
            ingester.step()
        world.check(ORDERS)
    report = ingester.step()
    assert report is not None
    (error,) = report.failures.values()
    assert isinstance(error, DefectError)
    state = world.states(ingester)[USERS]
    assert isinstance(state, Paused)
    assert state.cause.code == "FRZ-OPS-04"
    assert re.search(r"unexpected KeyError at .*\(reference [0-9a-f]{8}\)", state.cause.reason)
    assert "a value of row" not in state.cause.reason
    world.add(ORDERS, 3)
    world.run(ingester)
    world.check(ORDERS)
    # A new process, with the defect mended, goes on where it was.
    monkeypatch.undo()
    ingester.close()
    world.run()
    world.check(USERS)


@pytest.mark.fault("N44")
def test_a_defect_on_the_driver_pauses_its_table_after_as_many_attempts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    ingester = world.run()
    inner = CapturedTable.commit

    def commit(
        self: CapturedTable, prepared: Prepared, files: Sequence[WrittenFile], *, batch: str
    ) -> Receipt:
        if prepared.part.table.name == USERS:
            raise ZeroDivisionError("a value")
        return inner(self, prepared, files, batch=batch)

    monkeypatch.setattr(CapturedTable, "commit", commit)
    world.add(USERS, 2)
    world.add(ORDERS, 2)
    for _ in range(2):
        with pytest.raises(WriteFailedError, match="unexpected ZeroDivisionError at"):
            ingester.step()
    world.run(ingester)
    state = world.states(ingester)[USERS]
    assert isinstance(state, Paused)
    assert "unexpected ZeroDivisionError" in state.cause.reason
    world.check(ORDERS)


@pytest.mark.fault("N45")
def test_what_a_start_reads_again_for_a_paused_table_is_bounded(world: World) -> None:
    live(world)
    world.held_bytes = 1
    ingester, source = world.start()
    world.run(ingester)
    world.database.transact(Spoil(USERS, UnrepresentableValueError("does not fit")))
    world.add(ORDERS, 2)
    world.run(ingester)
    assert isinstance(world.states(ingester)[USERS], ResyncRequired)
    assert source.kept_since(str(ingester.acknowledged)) == 0, "a start would read it again"
    world.check(ORDERS)
