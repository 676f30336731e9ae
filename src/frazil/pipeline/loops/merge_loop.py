"""The merge loop: every table on its interval, each failure met as the recovery table says.

One thread decides, a pool of ``concurrency`` threads merges. A table that fails does not delay the
others; one that requires action is left alone until an operator reports it repaired. The loop
never spins: between two runs of a table there is an interval, a request, a back-off or a bounded
number of attempts.
"""

from __future__ import annotations

import math
import queue
import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.errors import DefectError, FrazilError, ShutdownRequested
from frazil.hooks import SystemClock, SystemRandomness
from frazil.pipeline.loops.loop import JITTER, Ending, engine_ended, ignore
from frazil.pipeline.loops.worker_pool import WorkerPool
from frazil.pipeline.next_step import Fenced, Pause, RetriesExhausted, RetryAfter, plan_step
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from frazil.hooks import Clock, Randomness
    from frazil.merge.report import MergeReport
    from frazil.pipeline.loops.loop import Intervals, StopRequest
    from frazil.pipeline.loops.worker_pool import Attempt
    from frazil.pipeline.next_step import NextStep

# A merge that takes longer than its interval is followed by the next one, but not without a breath:
# an interval of a millisecond must not become a catalog that is queried all the time.
BREATH_SECONDS = 0.1


class TableMerge(Protocol):
    """What the loop runs: the merges of one mirror."""

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        """Merge what is pending, batch by batch, and end between two batches when requested."""


class MergeLoop:
    """Merges tables until stopped, or once.

    ``on_start``, ``on_report`` and ``on_error`` are called in the loop's thread with the table's
    name, what came of the run and the seconds it took, ``on_cycle`` when every table had its turn.
    ``is_alive`` is called after a failure: when the engine is gone, no attempt can succeed and the
    loop ends. No run begins while ``may_start`` says no; when that changes, ``wake`` is called.
    """

    def __init__(
        self,
        tables: Mapping[str, TableMerge],
        *,
        interval: timedelta,
        stop: StopRequest,
        concurrency: int = 1,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        on_start: Callable[[str], None] = ignore,
        on_report: Callable[[str, MergeReport, float], None] = ignore,
        on_error: Callable[[str, Exception, NextStep, float], None] = ignore,
        on_cycle: Callable[[float], None] = ignore,
        is_alive: Callable[[], bool] = lambda: True,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self._tables: dict[str, TableMerge] = {}
        self._interval = interval.total_seconds()
        self._stop = stop
        self._concurrency = concurrency
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._on_start = on_start
        self._on_report, self._on_error, self._on_cycle = on_report, on_error, on_cycle
        self._is_alive = is_alive
        self._may_start = may_start
        self._once = False
        self._is_abandoned = False
        self._fatal_error: FrazilError | None = None
        self._failed: set[str] = set()
        # One that is neither due nor running has come to rest.
        self._due: dict[str, float] = {}
        self._running: set[str] = set()
        # Requested while they were running.
        self._asked_again: set[str] = set()
        # What other threads want done in this one; whoever puts something in wakes the loop.
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._woken = threading.Event()
        self._had_their_turn: set[str] = set()
        self._cycle_began: float | None = None
        self._changing = threading.Lock()
        self._statuses: dict[str, MergeStatus] = {}
        for name, merge in tables.items():
            self._add(name, merge)

    @property
    def statuses(self) -> tuple[MergeStatus, ...]:
        """The state of every table; from any thread."""
        with self._changing:
            return tuple(self._statuses.values())

    def join(self, table: str, merge: TableMerge) -> None:
        """Merge this one too, at once; from any thread."""
        self._post(partial(self._add, table, merge))

    def request(self, tables: Iterable[str], *, was_mended: bool = False) -> None:
        """Merge these as soon as a thread is free; from any thread.

        One whose last run failed waits for its turn all the same. One that is stopped begins again
        only if ``was_mended``.
        """
        for table in tables:
            self._post(partial(self._hasten, table, was_mended=was_mended))

    def reload(self, intervals: Intervals) -> None:
        """Merge everything now, also what is stopped, and then in this interval."""
        self._interval = intervals.merge.total_seconds()
        self.request([each.table for each in self.statuses], was_mended=True)

    def wake(self) -> None:
        """Find out again what there is to do; from any thread."""
        self._woken.set()

    def run(self, *, once: bool = False) -> Ending:
        """Merge until stopped; with ``once``, until nothing is left. A loop runs only once.

        Raises the error that fences the process, FencedError for instance, after the
        running merges have ended between two of their batches.
        """
        self._once = once
        pool = WorkerPool(self._concurrency, self._merge, self._clock, on_end=self._take)
        try:
            with self._stop.waking(self.wake):
                self._read_inbox()
                while self._running or not self._is_over():
                    self._start_due(pool)
                    self._wait()
                    self._read_inbox()
        finally:
            pool.dismiss()
        return self._end()

    def abandon(self) -> None:
        """Take no more notice of running merges: what they run on is being taken away."""
        self._is_abandoned = True

    def _post(self, work: Callable[[], None]) -> None:
        self._inbox.put(work)
        self.wake()

    def _take(self, attempt: Attempt) -> None:
        self._post(partial(self._settle, attempt))

    def _read_inbox(self) -> None:
        self._woken.clear()
        while not self._inbox.empty():
            self._inbox.get()()

    def _add(self, table: str, merge: TableMerge) -> None:
        if table in self._tables:
            return
        self._tables[table] = merge
        self._due[table] = self._clock.monotonic()
        now = self._clock.now()
        with self._changing:
            self._statuses[table] = MergeStatus(
                table=table, phase=MergeStep.WAITING, since=now, next_run=now
            )

    def _hasten(self, table: str, *, was_mended: bool) -> None:
        status = self._statuses.get(table)
        if status is None:
            return
        if table in self._running:
            self._asked_again.add(table)
        elif was_mended and status.phase is MergeStep.STOPPED:
            self._failed.discard(table)
            self._change(table, failures=0)
            self._schedule(table, self._clock.monotonic())
        elif table in self._due and not status.failures:
            # One that is due already keeps its turn.
            self._schedule(table, min(self._due[table], self._clock.monotonic()))

    def _merge(self, table: str) -> MergeReport:
        return self._tables[table].merge(stop=self._is_halted)

    def _is_halted(self) -> bool:
        return self._stop.is_set() or self._fatal_error is not None

    def _is_over(self) -> bool:
        return self._is_halted() or (self._once and not (self._due and self._may_start()))

    def _start_due(self, pool: WorkerPool) -> None:
        if self._is_halted() or not self._may_start():
            return
        now = self._clock.monotonic()
        # What waits longest goes first; among equals the order of the configuration.
        due = [name for name in self._tables if self._due.get(name, math.inf) <= now]
        due.sort(key=self._due.__getitem__)
        for name in due[: self._concurrency - len(self._running)]:
            if self._cycle_began is None:
                self._cycle_began = now
            del self._due[name]
            self._running.add(name)
            self._change(name, phase=MergeStep.MERGING, next_run=None)
            self._on_start(name)
            pool.start(name)

    def _wait(self) -> None:
        """Wait until a table is due and a thread is free, or anything else wakes the loop."""
        seconds = None
        has_room = len(self._running) < self._concurrency and not self._is_halted()
        if self._due and has_room and self._may_start():
            seconds = max(0.0, min(self._due.values()) - self._clock.monotonic())
        if self._running or not self._is_over():
            self._clock.wait(self._woken, seconds)

    def _settle(self, attempt: Attempt) -> None:
        self._running.discard(attempt.table)
        if self._is_abandoned:
            return
        if isinstance(attempt.outcome, Exception):
            self._settle_failure(attempt, attempt.outcome)
        else:
            self._settle_success(attempt, attempt.outcome)
        self._asked_again.discard(attempt.table)
        self._count_turn(attempt.table)

    def _settle_success(self, attempt: Attempt, report: MergeReport) -> None:
        table = attempt.table
        self._change(table, report=report, error=None, failures=0)
        if self._once:
            self._change(table, phase=MergeStep.DONE)
        else:
            interval = self._interval * self._randomness.uniform(1 - JITTER, 1)
            breath = self._clock.monotonic() + BREATH_SECONDS
            due = breath if table in self._asked_again else attempt.began + interval
            self._schedule(table, max(due, breath))
        self._on_report(table, report, attempt.seconds)

    def _settle_failure(self, attempt: Attempt, error: Exception) -> None:
        table = attempt.table
        failures = self._statuses[table].failures + 1
        chance, retry = self._randomness, self._retry
        step = plan_step(error, failures=failures, retry=retry, randomness=chance, once=self._once)
        self._change(table, error=error, failures=failures)
        if isinstance(step, RetryAfter):
            self._schedule(table, self._clock.monotonic() + step.seconds)
        else:
            self._change(table, phase=MergeStep.STOPPED)
        if isinstance(step, RetriesExhausted) or (
            isinstance(step, Pause) and isinstance(error, DefectError)
        ):
            self._failed.add(table)
        elif isinstance(step, Fenced) and isinstance(error, FrazilError):
            self._end_with(error)
        self._on_error(table, error, step, attempt.seconds)
        if not self._is_alive():
            self._end_with(engine_ended(error))

    def _end_with(self, error: FrazilError) -> None:
        # The first one is raised; later ones are logged.
        self._fatal_error = self._fatal_error or error

    def _schedule(self, table: str, due: float) -> None:
        self._due[table] = due
        wait = timedelta(seconds=max(0.0, due - self._clock.monotonic()))
        self._change(table, phase=MergeStep.WAITING, next_run=self._clock.now() + wait)

    def _change(self, table: str, **changes: object) -> None:
        with self._changing:
            before = self._statuses[table]
            if changes.get("phase", before.phase) is not before.phase:
                changes["since"] = self._clock.now()
            # Every name comes from this module, and a wrong one raises at once.
            self._statuses[table] = replace(before, **changes)  # type: ignore[arg-type]

    def _count_turn(self, table: str) -> None:
        self._had_their_turn.add(table)
        still_at_it = self._due.keys() | self._running
        if not self._once:
            still_at_it -= self._had_their_turn
        if not still_at_it and self._cycle_began is not None:
            self._on_cycle(self._clock.monotonic() - self._cycle_began)
            self._had_their_turn.clear()
            self._cycle_began = None

    def _end(self) -> Ending:
        error = self._fatal_error
        if error is not None and not isinstance(error, ShutdownRequested):
            raise error
        if error is not None or self._stop.is_set():
            return Ending.STOPPED
        if self._failed:
            return Ending.FAILED
        is_held = any(each.phase is MergeStep.STOPPED for each in self.statuses)
        return Ending.ACTION_REQUIRED if is_held else Ending.DONE
