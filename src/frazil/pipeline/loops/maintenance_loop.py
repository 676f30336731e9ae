"""The maintenance loop: looks at every table on its interval, and does what each needs.

One table after the other, in a thread of its own beside ingest and merges, which never wait for
it. What fails for one table is reported and tried again at the next look.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from frazil.clients.defects import as_ours
from frazil.errors import RuntimeMissingError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.time_window import seconds_until_open
from frazil.pipeline.loops.loop import JITTER, Ending, engine_ended, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from frazil.hooks import Clock, Randomness
    from frazil.maintain.jobs import JobOutcome
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.maintain.table_set import KeptTable
    from frazil.model.time_window import TimeWindow
    from frazil.pipeline.loops.loop import Intervals, Loop, StopRequest

# A compaction makes work for the next one at most as often as there are sizes of files.
_MOST_ROUNDS = 8
_END_SECONDS = 2.0


class Upkeep(Protocol):
    """What the loop runs."""

    def load_tables(self) -> Sequence[KeptTable]:
        """The tables to look after."""

    def load_plan(self, table: KeptTable) -> UpkeepPlan | None:
        """What a table needs; None for one that is not ours."""

    def perform(self, plan: UpkeepPlan, *, stop: Callable[[], bool]) -> Iterator[JobOutcome]:
        """Its jobs, one by one."""


class MaintenanceLoop:
    """Maintains until stopped, or once; receivers are called in the thread that runs it."""

    def __init__(
        self,
        upkeep: Upkeep,
        *,
        interval: timedelta,
        stop: StopRequest,
        windows: Sequence[TimeWindow] = (),
        on_plan: Callable[[UpkeepPlan], object] = ignore,
        on_outcome: Callable[[UpkeepPlan, JobOutcome], object] = ignore,
        on_error: Callable[[str, Exception], object] = ignore,
        may_start: Callable[[], bool] = lambda: True,
        is_alive: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self._upkeep = upkeep
        self._interval = interval
        self._stop = stop
        self._windows = tuple(windows)
        self._on_plan = on_plan
        self._on_outcome = on_outcome
        self._on_error = on_error
        self._may_start = may_start
        self._is_alive = is_alive
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._woken = threading.Event()
        self._is_abandoned = False
        self._has_failed = False

    def run(self, *, once: bool = False) -> Ending:
        """Until stopped; with ``once``, now, until no table needs anything.

        Windows are for processes that stay: who starts one that ends has chosen the time.
        """
        if once:
            return self._run_once()
        with self._stop.waking(self._woken.set):
            while not self._is_over():
                self._woken.clear()
                if self._is_over():
                    break
                self._clock.wait(self._woken, self._seconds())
                if not self._woken.is_set() and self._is_open():
                    self._look()
        return Ending.STOPPED

    def abandon(self) -> None:
        """Take no more notice of what runs: what it runs on is being taken away."""
        self._is_abandoned = True
        self._woken.set()

    def reload(self, intervals: Intervals) -> None:
        """Use the new interval from the next look on."""
        if intervals.maintenance is not None:
            self._interval = intervals.maintenance
            self._woken.set()

    def _run_once(self) -> Ending:
        for _ in range(_MOST_ROUNDS):
            self._has_failed = False
            is_changed = self._look()
            if self._is_over():
                return Ending.STOPPED
            if not is_changed:
                break
        return Ending.FAILED if self._has_failed else Ending.DONE

    def _look(self) -> bool:
        """Every table once; returns whether anything was done."""
        try:
            tables = self._upkeep.load_tables()
        except Exception as error:  # noqa: BLE001 - as for a table
            self._fail("", error)
            return False
        done = [self._keep(each) for each in tables if not self._is_over()]
        return any(done)

    def _keep(self, table: KeptTable) -> bool:
        done = False
        try:
            plan = self._upkeep.load_plan(table)
            if plan is None:
                return False
            self._on_plan(plan)
            for outcome in self._upkeep.perform(plan, stop=self._is_over):
                self._on_outcome(plan, outcome)
                done = done or outcome.is_done
        except Exception as error:  # noqa: BLE001 - whatever one table fails with, the others go on
            self._fail(str(table.name), error)
        return done

    def _fail(self, table: str, error: Exception) -> None:
        if self._is_over():
            # What it ran on is gone.
            return
        self._has_failed = True
        self._on_error(table, as_ours(error, table=table, doing="maintaining"))
        if not self._is_alive():
            raise engine_ended(error)

    def _is_open(self) -> bool:
        return seconds_until_open(self._windows, self._clock.now()) <= 0 and self._may_start()

    def _seconds(self) -> float:
        """Until the next look: an interval, and not before a window opens."""
        seconds = self._interval.total_seconds() * self._randomness.uniform(1 - JITTER, 1)
        return max(seconds, seconds_until_open(self._windows, self._clock.now()))

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._is_abandoned


class WithMaintenance:
    """A loop with the maintenance loop beside it; alone when it runs once."""

    def __init__(self, loop: Loop, maintenance: MaintenanceLoop) -> None:
        self._loop = loop
        self._maintenance = maintenance

    def run(self, *, once: bool = False) -> Ending:
        """As the loop does; whatever ends it ends maintenance."""
        if once:
            return self._loop.run(once=True)
        beside = threading.Thread(target=self._maintain, name="frazil maintenance", daemon=True)
        beside.start()
        try:
            return self._loop.run()
        finally:
            self._maintenance.abandon()
            # Not for long: a job may be in the middle of a request, and is safe to leave.
            beside.join(_END_SECONDS)

    def abandon(self) -> None:
        """Take no more notice of what runs."""
        self._maintenance.abandon()
        self._loop.abandon()

    def reload(self, intervals: Intervals) -> None:
        """Use these from the next runs on."""
        self._loop.reload(intervals)
        self._maintenance.reload(intervals)

    def _maintain(self) -> None:
        # The only thing it raises is that Spark has ended, which the loop meets and reports.
        with suppress(RuntimeMissingError):
            self._maintenance.run()
