"""Tables with scripted merges, for tests of the loop without Spark."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from frazil.merge.report import MergeAction, MergeCommit, MergeReport
from frazil.model.table_name import TableName

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock, ManualClock

# The result of a run: a number of commits, or an error.
Script = int | Exception

MOST_RUNS = 1_000


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


class ManualStop:
    """A stop event on a clock that advances while waiting; set at a given time, or by a call."""

    def __init__(self, clock: ManualClock, at: float = float("inf")) -> None:
        self._clock = clock
        self._at = at
        self._is_set = threading.Event()
        self.waits: list[float] = []

    def set(self) -> None:
        """Request the stop."""
        self._is_set.set()

    def is_set(self) -> bool:
        """Whether the stop was requested."""
        return self._is_set.is_set() or self._clock.monotonic() >= self._at

    def wait(self, timeout: float) -> bool:
        """Advance the clock by the timeout, or less if the stop comes before."""
        self.waits.append(timeout)
        if not self.is_set():
            left = self._at - self._clock.monotonic()
            self._clock.advance(min(timeout, left))
        return self.is_set()
