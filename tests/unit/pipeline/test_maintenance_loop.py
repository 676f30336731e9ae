"""The maintenance loop: when it looks, what one table's failure does to the others, how it ends."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from frazil.errors import StorageError
from frazil.hooks import SystemClock
from frazil.maintain.facts import KeptRole, TableHealth
from frazil.maintain.jobs import ExpireJob, JobOutcome
from frazil.maintain.maintainer import UpkeepPlan
from frazil.maintain.settings import UpkeepSettings
from frazil.maintain.table_set import KeptTable
from frazil.model.table_name import TableName
from frazil.model.time_window import parse_window
from frazil.pipeline.loops.loop import Ending, Intervals, StopRequest
from frazil.pipeline.loops.maintenance_loop import MaintenanceLoop, WithMaintenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60.0
HEALTH = TableHealth(
    files=1, small_files=0, bytes=1, records=1, dead_records=0, delete_files=0, manifests=1,
    snapshots=1,
)  # fmt: skip


def kept(name: str) -> KeptTable:
    table = TableName("lake", ("public",), name)
    return KeptTable(name=table, role=KeptRole.MIRROR, settings=UpkeepSettings())


def job(table: KeptTable) -> ExpireJob:
    return ExpireJob(table=table.name, snapshots=(1,), reason="old", cost_bytes=0, gain="less")


@dataclass
class Scripted:
    """Tables with so many looks that find a job; a negative number fails each time."""

    todo: dict[str, int]
    looks: int = 0
    looked: threading.Event = field(default_factory=threading.Event)

    def load_tables(self) -> list[KeptTable]:
        self.looks += 1
        self.looked.set()
        return [kept(name) for name in self.todo]

    def load_plan(self, table: KeptTable) -> UpkeepPlan | None:
        left = self.todo[table.name.table]
        if left < 0:
            raise StorageError("away")
        return UpkeepPlan(table=table, health=HEALTH, jobs=(job(table),) if left else ())

    def perform(self, plan: UpkeepPlan, *, stop: Callable[[], bool]) -> Iterator[JobOutcome]:
        assert not stop()
        for each in plan.jobs:
            self.todo[plan.table.name.table] -= 1
            yield JobOutcome(job=each)


def test_once_goes_on_until_no_table_needs_anything() -> None:
    upkeep, done = Scripted({"a": 2, "b": 0}), list[str]()
    loop = MaintenanceLoop(
        upkeep,
        interval=timedelta(hours=1),
        stop=StopRequest(),
        on_outcome=lambda plan, _: done.append(str(plan.table.name)),
    )
    assert loop.run(once=True) is Ending.DONE
    assert (done, upkeep.looks) == (["public.a", "public.a"], 3)


def test_a_table_that_fails_leaves_the_others_alone() -> None:
    upkeep, failed = Scripted({"a": -1, "b": 1}), list[tuple[str, str]]()
    loop = MaintenanceLoop(
        upkeep,
        interval=timedelta(hours=1),
        stop=StopRequest(),
        on_error=lambda table, error: failed.append((table, type(error).__name__)),
    )
    assert loop.run(once=True) is Ending.FAILED
    assert set(failed) == {("public.a", "StorageError")}
    assert upkeep.todo["b"] == 0


class _At(SystemClock):
    """Always the same time of the day."""

    def __init__(self, hour: int) -> None:
        self._hour = hour

    def now(self) -> datetime:
        return datetime(2026, 1, 1, self._hour, tzinfo=UTC)


def test_it_looks_on_its_interval_until_stopped_and_not_outside_of_its_windows() -> None:
    for hour, is_open in ((23, True), (12, False)):
        stop, upkeep = StopRequest(), Scripted({"a": 0})
        loop = MaintenanceLoop(
            upkeep,
            interval=timedelta(milliseconds=5),
            windows=[parse_window("22:00-06:00")],
            stop=stop,
            clock=_At(hour),
        )
        thread = threading.Thread(target=loop.run)
        thread.start()
        assert upkeep.looked.wait(PATIENCE if is_open else 0.1) is is_open
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_process_that_may_not_work_does_not_look_and_a_new_interval_counts_at_once() -> None:
    stop, upkeep, may = StopRequest(), Scripted({"a": 0}), threading.Event()
    loop = MaintenanceLoop(upkeep, interval=timedelta(hours=1), stop=stop, may_start=may.is_set)
    thread = threading.Thread(target=loop.run)
    thread.start()
    loop.reload(Intervals(timedelta(1), timedelta(1), timedelta(milliseconds=5)))
    assert not upkeep.looked.wait(0.1)
    may.set()
    assert upkeep.looked.wait(PATIENCE)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


class _Merges:
    """A loop that ends on an event."""

    def __init__(self, until: threading.Event) -> None:
        self._until = until
        self.intervals: Intervals | None = None

    def run(self, *, once: bool = False) -> Ending:
        if not once:
            self._until.wait(PATIENCE)
        return Ending.DONE if once else Ending.STOPPED

    def abandon(self) -> None:
        self._until.set()

    def reload(self, intervals: Intervals) -> None:
        self.intervals = intervals


def test_beside_merges_it_works_while_they_do_and_not_when_they_run_once() -> None:
    upkeep = Scripted({"a": 1})
    loop = MaintenanceLoop(upkeep, interval=timedelta(milliseconds=5), stop=StopRequest())
    both = WithMaintenance(_Merges(upkeep.looked), loop)
    assert both.run(once=True) is Ending.DONE
    assert upkeep.looks == 0
    assert both.run() is Ending.STOPPED
    assert upkeep.looks >= 1
