"""Tables with scripted merges, for tests of the loop without Spark."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from frazil.hooks import ManualClock
from frazil.merge.report import MergeAction, MergeCommit, MergeReport
from frazil.model.table_name import TableName

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from datetime import datetime

    from frazil.hooks import Clock

# The result of a run: a number of commits, or an error.
Script = int | Exception

MOST_RUNS = 1_000
# Far more than a thread needs that has nothing to do.
REAL_SECONDS = 60.0


def report_of(table: str, commits: int = 0, rows: int = 10) -> MergeReport:
    """The report of a merger about this many commits."""
    return MergeReport(
        changelog=TableName("lake", ("public",), f"{table}_changelog"),
        mirror=TableName("lake", ("public",), table),
        commits=tuple(
            MergeCommit(
                after=None if number == 0 else number,
                through=number + 1,
                snapshot_id=100 + number,
                rows_read=rows,
                seconds=1.5,
                counts={MergeAction.INSERT: rows},
            )
            for number in range(commits)
        ),
    )


class TwinTable:
    """Merges as scripted, then has nothing to merge; each merge advances the clock."""

    def __init__(self, name: str, *script: Script, clock: Clock, seconds: float = 1.0) -> None:
        self.name = name
        self.began: list[float] = []
        self.batches = 0
        self._script = deque(script)
        self._clock = clock
        self._seconds = seconds
        self.before_batch: Callable[[], None] = lambda: None

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        """The next line of the script."""
        self.began.append(self._clock.monotonic())
        assert len(self.began) < MOST_RUNS, "the loop spins"
        line = self._script.popleft() if self._script else 0
        self._clock.sleep(self._seconds)
        if isinstance(line, Exception):
            raise line
        done = 0
        while done < line and not stop():
            self.before_batch()
            done += 1
        self.batches += done
        return report_of(self.name, done)


class StageClock(ManualClock):
    """Time that moves while a loop waits and while a table merges, and what is to happen when."""

    def __init__(self, start: datetime) -> None:
        super().__init__(start)
        self.waits: list[float | None] = []
        self.is_merging: Callable[[], bool] = lambda: False
        self._events: list[tuple[float, Callable[[], None]]] = []

    def at(self, seconds: float, happens: Callable[[], None]) -> None:
        """Call this when the time has come."""
        self._events.append((seconds, happens))

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what is due by then."""
        super().advance(seconds)
        due = [each for each in self._events if each[0] <= self.monotonic()]
        for each in due:
            self._events.remove(each)
            each[1]()

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        """Advance until the time is up or the event is set; a merge moves the clock itself."""
        if self.is_merging():
            assert event.wait(REAL_SECONDS)
            return
        self.waits.append(seconds)
        end = float("inf") if seconds is None else self.monotonic() + seconds
        while not event.is_set() and self.monotonic() < end:
            then = min([end, *(when for when, _ in self._events)])
            assert then < float("inf"), "nothing will ever wake the loop"
            self.advance(then - self.monotonic())
