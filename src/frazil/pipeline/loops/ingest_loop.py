"""The ingest loop: changes on their interval, and in parallel the tables that are copied.

Two lanes, because a table that takes hours to read must not keep the others waiting. A lane that
fails with what may pass waits with back-off and begins again from what is committed; what
requires action ends the loop.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from frazil.clients.defects import as_ours
from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.errors import ShutdownRequested
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.table_state import Copying, Gone, Paused, ResyncRequired
from frazil.pipeline.loops.loop import JITTER, Ending, engine_ended, ignore
from frazil.pipeline.next_step import RetryAfter, plan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from frazil.errors import FrazilError
    from frazil.hooks import Clock, Randomness
    from frazil.ingest.report import BatchReport
    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position
    from frazil.pipeline.loops.loop import Intervals, StopRequest
    from frazil.pipeline.next_step import NextStep
    from frazil.sources.protocol import Limit, Source

_Done = TypeVar("_Done")

# How often a server is asked whether it has sent everything: one without changes for us moves on
# without a row that could wake anyone.
_CATCH_UP_SECONDS = 0.25


class Ingesting(Protocol):
    """What the loop runs; ``ingest.Ingester`` is one."""

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """The state of every table."""

    @property
    def stopped_partitions(self) -> Mapping[str, FrazilError]:
        """Partitions that failed here, and why."""

    @property
    def tables_to_copy(self) -> set[str]:
        """Tables that are to be copied."""

    def follow_states(self, notify: Callable[[], None]) -> None:
        """Call this, in any thread, when states of tables have changed; the last one counts."""

    def step(self) -> BatchReport | None:
        """The next changes; None when there are none yet."""

    def copy_tables(self) -> BatchReport | None:
        """Some of the tables that are to be read from their first row."""

    def close(self) -> None:
        """Let go of everything."""


class IngestLoop:
    """Ingests until stopped, or once; receivers are called in the lanes' threads.

    ``on_step`` is given, after each check of the source, the seconds until the next one.
    """

    def __init__(
        self,
        ingester: Ingesting,
        source: Source,
        *,
        interval: timedelta,
        limit: Limit,
        stop: StopRequest,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        on_report: Callable[[BatchReport], None] = ignore,
        on_step: Callable[[float], None] = ignore,
        on_error: Callable[[Exception, NextStep], None] = ignore,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ingester = ingester
        self._source = source
        self._interval = interval.total_seconds()
        self._limit = limit
        self._stop = stop
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._on_report, self._on_step, self._on_error = on_report, on_step, on_error
        self._is_alive = is_alive
        self._once = False
        self._is_abandoned = False
        self._ends_with: Exception | None = None
        self._halted, self._states_changed = threading.Event(), threading.Event()

    def run(self, *, once: bool = False) -> Ending:
        """Ingest until stopped; with ``once``, until all that is there now is in.

        Raises what needs an operator, and what fences this process.
        """
        self._once = once
        try:
            with self._stop.waking(self._halt):
                if once:
                    self._run_once()
                else:
                    self._run_lanes()
        finally:
            self._ingester.close()
        if self._ends_with is not None and not isinstance(self._ends_with, ShutdownRequested):
            raise self._ends_with
        if self._is_halted():
            return Ending.STOPPED
        return Ending.ACTION_REQUIRED if self._requires_action() else Ending.DONE

    def reload(self, intervals: Intervals) -> None:
        """Use this interval from the next batch on; from any thread."""
        self._interval = intervals.ingest.total_seconds()

    def abandon(self) -> None:
        """Take no more notice of what runs: what it runs on is being taken away."""
        self._is_abandoned = True

    def _run_lanes(self) -> None:
        self._ingester.follow_states(self._states_changed.set)
        copies = threading.Thread(target=self._copy_tables, name="frazil copies", daemon=True)
        copies.start()
        try:
            self._stream()
        finally:
            self._halt()
        copies.join()

    def _run_once(self) -> None:
        self._attempt(self._read_all)
        if self._is_halted():
            return
        goal = self._attempt(self._source.newest)
        while goal is not None and not self._is_halted():
            if self._attempt(partial(self._catch_up, goal)) is None:
                return
            self._on_step(0.0)
            # What turned up meanwhile, or was widened, is copied, and has changes since.
            if not self._ingester.tables_to_copy:
                return
            self._attempt(self._read_all)

    def _catch_up(self, goal: Position) -> bool:
        is_idle = not self._step()
        while not self._is_halted() and not self._source.has_reached(goal):
            if is_idle:
                self._source.wait(_CATCH_UP_SECONDS, self._limit)
            is_idle = not self._step()
        return True

    def _read_all(self) -> None:
        while not self._is_halted():
            report = self._ingester.copy_tables()
            if report is None:
                return
            self._on_report(report)

    def _stream(self) -> None:
        while not self._is_halted():
            began = self._clock.monotonic()
            if self._attempt(self._step) is None or self._ends_with is not None:
                # The other lane may have failed for good: that is not to be taken back.
                return
            due = began + self._interval * self._randomness.uniform(1 - JITTER, 1)
            self._on_step(due - self._clock.monotonic())
            left = due - self._clock.monotonic()
            if left > 0 and not self._is_halted():
                self._source.wait(left, self._limit)

    def _copy_tables(self) -> None:
        while not self._is_halted():
            self._states_changed.clear()
            if self._ingester.tables_to_copy:
                self._attempt(self._read_all)
            # New ones are found by the other lane. Those that are left are another process's, or
            # the source does not know them: after a while they are tried again.
            left = self._interval if self._ingester.tables_to_copy else None
            if not self._is_halted():
                self._clock.wait(self._states_changed, left)

    def _step(self) -> bool:
        report = self._ingester.step()
        if report is not None:
            self._on_report(report)
        return report is not None

    def _attempt(self, work: Callable[[], _Done]) -> _Done | None:
        """Do this, again and again while that may help; None when the end has come."""
        failures = 0
        while not self._is_halted():
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - the recovery table says what follows
                failures += 1
                if not self._settle(as_ours(error, doing="capturing"), failures):
                    return None
        return None

    def _settle(self, error: Exception, failures: int) -> bool:
        """Wait as the recovery table says; whether another attempt follows."""
        step = plan_step(
            error,
            failures=failures,
            retry=self._retry,
            randomness=self._randomness,
            once=self._once,
        )
        if self._is_abandoned or (self._stop.is_set() and isinstance(error, ShutdownRequested)):
            # Not a failure: what it waited for is not wished any longer.
            return False
        self._on_error(error, step)
        is_alive = self._is_alive()
        if is_alive and isinstance(step, RetryAfter):
            self._clock.wait(self._halted, step.seconds)
            return True
        self._ends_with = self._ends_with or (error if is_alive else engine_ended(error))
        self._halt()
        return False

    def _halt(self) -> None:
        """End both lanes, whatever they wait for; from any thread."""
        self._halted.set()
        self._states_changed.set()
        self._source.wake()

    def _is_halted(self) -> bool:
        return self._halted.is_set()

    def _requires_action(self) -> bool:
        return bool(self._ingester.stopped_partitions) or any(
            isinstance(each.state, Paused | Gone | ResyncRequired)
            or (isinstance(each.state, Copying) and each.state.cause is not None)
            for each in self._ingester.table_states.values()
        )
