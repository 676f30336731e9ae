"""A tour as it is watched: the pipeline in its thread, and an audience that gets every step."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from frazil.demo.tour.shop import SCHEMA, TABLES
from frazil.demo.tour.shop_changes import CARTS_EMPTIED_AT
from frazil.demo.tour.shop_workload import ShopCounts
from frazil.errors import ServiceError
from frazil.hooks import SystemClock
from frazil.model.marker import MarkerRole
from frazil.pipeline.build_run import RunContext, build_run
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.status.values import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.demo.tour.shop_workload import ShopWorkload
    from frazil.hooks import Clock
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.pipeline.telemetry import Observed

# Often enough that a table in the terminal moves.
_GLANCE_SECONDS = 0.25
# A machine ten times as slow as two cores are.
_PATIENCE_SECONDS = 300.0

# When the result is no longer needed, running work is not waited for.
_INTERRUPTED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was done, as it is shown."""

    title: str
    detail: str
    seconds: float


class Audience(Protocol):
    """Receives the progress of a tour."""

    def show_step(self, step: Step) -> None:
        """Something was done."""

    def show(self, status: PipelineStatus, counts: ShopCounts) -> None:
        """Progress; called several times a second."""

    def settle(self, status: PipelineStatus, counts: ShopCounts) -> None:
        """This is how they ended."""

    def leave(self, error: BaseException) -> None:
        """The tour ends early, because of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the shop is watched once it is copied, and how busy it is."""

    seconds: float = 15.0
    transactions_per_second: float = 40.0
    seed: int = 20_261_115


class TourWatch:
    """Measures from one step to the next, and waits in front of the audience."""

    def __init__(self, audience: Audience, pace: Pace, clock: Clock | None = None) -> None:
        self.pace = pace
        self._lags: list[float] = []
        self._audience = audience
        self._clock = clock or SystemClock()
        self._since = self._clock.monotonic()
        self._pipeline: PipelineThread
        self._workload: ShopWorkload | None = None
        self._counts_before = ShopCounts()

    @property
    def counts(self) -> ShopCounts:
        """What happened in the shop so far."""
        now = ShopCounts() if self._workload is None else self._workload.counts
        return self._counts_before + now

    @property
    def usual_lag(self) -> float:
        """Seconds that mirrors were behind while the shop was watched; half of the time less.

        Of the second half only: the first has to catch up with what came during the copy.
        """
        return median(self._lags[len(self._lags) // 2 :] or [0.0])

    def done(self, title: str, detail: str) -> None:
        """A step has come to its end."""
        now = self._clock.monotonic()
        self._audience.show_step(Step(title, detail, now - self._since))
        self._since = now

    def follow(self, pipeline: PipelineThread, workload: ShopWorkload) -> None:
        """Show these from now on; counts of an earlier workload stay."""
        self._counts_before = self.counts
        self._pipeline, self._workload = pipeline, workload

    def settle(self) -> None:
        """Nothing moves any more; what follows is not shown."""
        self._counts_before, self._workload = self.counts, None
        self._audience.settle(self._pipeline.status(), self.counts)

    def until_copied(self) -> None:
        """Every table of the shop has a mirror of known age."""
        self._until("the copy", _is_copied)

    def stream(self, workload: ShopWorkload) -> None:
        """Watch for a while, and until everything has happened once; remember the lag."""
        end = self._clock.monotonic() + self.pace.seconds

        def is_over(status: PipelineStatus) -> bool:
            if status.lag_seconds is not None:
                self._lags.append(status.lag_seconds)
            has_happened = workload.counts.transactions > CARTS_EMPTIED_AT
            # One that has failed is not waited for: ``stop`` raises its error.
            return (has_happened and self._clock.monotonic() >= end) or not workload.is_running

        self._until("the stream", is_over)

    def until_caught_up(self) -> None:
        """Readers of every mirror are sure to see what the shop is at this moment."""
        began = self._clock.monotonic()

        def has_caught_up(status: PipelineStatus) -> bool:
            age = self._clock.monotonic() - began
            return all(
                each.lag_seconds is not None and each.lag_seconds < age for each in status.tables
            )

        self._until("catching up", has_caught_up)

    def _until(self, what: str, is_so: Callable[[PipelineStatus], bool]) -> None:
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        status = self._pipeline.status()
        while not is_so(status):
            if self._clock.monotonic() > deadline:
                message = f"{what} did not come to its end in {_PATIENCE_SECONDS:.0f} s."
                raise ServiceError(message, next_step="try again when the machine is less busy")
            if self._workload is not None:
                self._audience.show(status, self.counts)
            self._clock.sleep(_GLANCE_SECONDS)
            status = self._pipeline.status()


def _is_copied(status: PipelineStatus) -> bool:
    ready = {
        each.table
        for each in status.tables
        if each.phase is not Phase.COPYING and each.mirror and each.lag_seconds is not None
    }
    return ready >= {f"{SCHEMA}.{name}" for name in TABLES}


class PipelineThread:
    """The loop of a run, and its status."""

    def __init__(self, run: PipelineRun) -> None:
        self.run = run
        self._ended_with: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="frazil demo", daemon=True)
        self._thread.start()

    def status(self) -> PipelineStatus:
        """The status of the pipeline; raises the error that ended it or that stopped a table."""
        if self._ended_with is not None:
            raise self._ended_with
        status = self.run.board.now()
        for each in status.stopped:
            problem = each.trouble
            reason = "the reason is unknown" if problem is None else problem.reason
            message = f"{each.table} is stopped: {reason}"
            raise ServiceError(message, next_step="report it, this is a defect in the demo")
        return status

    def join(self, seconds: float) -> bool:
        """Wait until the loop has ended; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        try:
            self.run.loop.run()
        except BaseException as error:  # noqa: BLE001 - raised again when the status is read
            self._ended_with = error


@contextmanager
def pipeline_thread(
    session: Session, config: Config, observed: Observed
) -> Iterator[PipelineThread]:
    """Ingest and merge until the block is left."""
    stop = StopRequest()
    board = StatusBoard(
        config.pipeline, roles=tuple(each.value for each in (MarkerRole.INGEST, MarkerRole.MERGE))
    )
    context = RunContext(session, config, observed, board, stop)
    patience = _INTERRUPTED_SECONDS
    with build_run(context) as run:
        pipeline = PipelineThread(run)
        try:
            yield pipeline
            patience = config.shutdown_grace.total_seconds()
        finally:
            stop.set()
            if not pipeline.join(patience):
                run.loop.abandon()
                session.sparkContext.cancelAllJobs()
