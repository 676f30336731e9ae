"""A tour as it is watched: an audience gets every step, and sees what is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from frazil.errors import ServiceError
from frazil.hooks import SystemClock
from frazil.pipeline.status.values import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.demo.tour.tour_pipeline import PipelineThread
    from frazil.hooks import Clock
    from frazil.pipeline.status.values import PipelineStatus

# Often enough that a table in the terminal moves.
_GLANCE_SECONDS = 0.25
# A machine ten times as slow as two cores are.
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was done, as it is shown."""

    title: str
    detail: str
    seconds: float


class Counts(Protocol):
    """What a workload did so far."""

    @property
    def brief(self) -> str:
        """The most important number, with what it counts."""

    @property
    def full(self) -> str:
        """All that is shown."""

    def __add__(self, other: Self) -> Self:
        """Both."""


C = TypeVar("C", bound=Counts)
C_co = TypeVar("C_co", bound=Counts, covariant=True)


class Workload(Protocol[C_co]):
    """What changes a source while it is captured."""

    @property
    def counts(self) -> C_co:
        """What it did so far."""

    @property
    def is_running(self) -> bool:
        """Whether it still works; one that failed does not."""

    @property
    def has_shown_all(self) -> bool:
        """Whether everything has happened once."""


class Audience(Protocol):
    """Receives the progress of a tour."""

    def show_begin(self, doing: str) -> None:
        """Something begins that takes a moment."""

    def show_step(self, step: Step) -> None:
        """Something was done."""

    def show(self, status: PipelineStatus, counts: Counts) -> None:
        """Progress; called several times a second."""

    def settle(self, status: PipelineStatus, counts: Counts) -> None:
        """This is how they ended."""

    def leave(self, error: BaseException) -> None:
        """The tour ends early, because of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a workload is watched once all of the source is there, and how busy it is."""

    seconds: float = 15.0
    transactions_per_second: float = 40.0
    seed: int = 20_261_115


class TourWatch(Generic[C]):
    """Measures from one step to the next, and waits in front of the audience."""

    def __init__(
        self, audience: Audience, pace: Pace, nothing: C, clock: Clock | None = None
    ) -> None:
        self.pace = pace
        self._lags: list[float] = []
        self._audience = audience
        self._clock = clock or SystemClock()
        self._since = self._clock.monotonic()
        self._pipeline: PipelineThread
        self._workload: Workload[C] | None = None
        self._counts_before = nothing

    @property
    def counts(self) -> C:
        """What workloads did so far."""
        before = self._counts_before
        return before if self._workload is None else before + self._workload.counts

    @property
    def usual_lag(self) -> float:
        """Seconds that tables were behind while they were watched; half of the time less."""
        return median(self._lags or [0.0])

    def begin(self, doing: str) -> None:
        """A step that is not otherwise seen begins."""
        self._audience.show_begin(doing)

    def done(self, title: str, detail: str) -> None:
        """A step has come to its end."""
        now = self._clock.monotonic()
        self._audience.show_step(Step(title, detail, now - self._since))
        self._since = now

    def follow(self, pipeline: PipelineThread, workload: Workload[C]) -> None:
        """Show these from now on; counts of an earlier workload stay."""
        self._counts_before = self.counts
        self._pipeline, self._workload = pipeline, workload

    def settle(self) -> None:
        """Nothing moves any more; what follows is not shown."""
        self._counts_before, self._workload = self.counts, None
        self._audience.settle(self._pipeline.status(), self.counts)

    def until_readable(self, tables: Mapping[str, bool]) -> None:
        """Each of these shows a state of known age, those with true in a mirror."""
        self._until("the copy", lambda status: _readable(status, tables) == tables.keys())

    def stream(self, workload: Workload[C]) -> None:
        """Watch for a while, and until everything has happened once; remember the lag."""
        end = self._clock.monotonic() + self.pace.seconds

        def is_over(status: PipelineStatus) -> bool:
            if status.lag_seconds is not None:
                self._lags.append(status.lag_seconds)
            is_enough = workload.has_shown_all and self._clock.monotonic() >= end
            # One that has failed is not waited for: ``stop`` raises its error.
            return is_enough or not workload.is_running

        self._until("the stream", is_over)

    def until_caught_up(self) -> None:
        """Readers of every table are sure to see what the source is at this moment."""
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


def _readable(status: PipelineStatus, tables: Mapping[str, bool]) -> set[str]:
    return {
        each.table
        for each in status.tables
        if each.table in tables
        and each.phase is not Phase.COPYING
        and each.lag_seconds is not None
        and (each.mirror is not None or not tables[each.table])
    }
