"""A merge loop on a clock that moves when it waits, and everything it reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.hooks import SeededRandomness
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.loops.merge_loop import MergeLoop
from frazil.pipeline.status.merge_status import MergeStep
from tests.support.merge.scripted import StageClock, TwinTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.merge.report import MergeReport
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.status.merge_status import MergeStatus

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
INTERVAL = timedelta(minutes=1)
RETRY = RetryPolicy(attempts=3, base_seconds=1.0, longest_seconds=8.0)


@dataclass
class Stage:
    """A clock, a wish to end, tables by name, and everything the loop reported."""

    clock: StageClock = field(default_factory=lambda: StageClock(START))
    reported: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, NextStep]] = field(default_factory=list)
    cycles: list[float] = field(default_factory=list)
    tables: dict[str, TwinTable] = field(default_factory=dict)
    stop: StopRequest = field(default_factory=StopRequest)

    def table(self, name: str, *script: int | Exception, seconds: float = 1.0) -> TwinTable:
        self.tables[name] = TwinTable(name, *script, clock=self.clock, seconds=seconds)
        return self.tables[name]

    def until(self, seconds: float) -> None:
        self.clock.at(seconds, self.stop.set)

    def loop(
        self,
        concurrency: int = 1,
        interval: timedelta = INTERVAL,
        is_alive: Callable[[], bool] = lambda: True,
        may_start: Callable[[], bool] = lambda: True,
    ) -> MergeLoop:
        loop = MergeLoop(
            self.tables,
            interval=interval,
            stop=self.stop,
            concurrency=concurrency,
            retry=RETRY,
            clock=self.clock,
            randomness=SeededRandomness(7),
            on_report=self._on_report,
            on_error=self._on_error,
            on_cycle=self.cycles.append,
            is_alive=is_alive,
            may_start=may_start,
        )
        self.clock.is_merging = lambda: any(
            each.phase is MergeStep.MERGING for each in loop.statuses
        )
        return loop

    def _on_report(self, table: str, report: MergeReport, seconds: float) -> None:
        assert seconds >= 0
        self.reported.append((table, f"{len(report.commits)} commits"))

    def _on_error(self, table: str, error: Exception, step: NextStep, seconds: float) -> None:
        assert seconds >= 0
        self.reported.append((table, type(error).__name__))
        self.steps.append((table, step))


def status_of(loop: MergeLoop, table: str) -> MergeStatus:
    return next(each for each in loop.statuses if each.table == table)


def gaps(table: TwinTable) -> list[float]:
    return [after - before for before, after in zip(table.began, table.began[1:], strict=False)]
