"""Rows a second that this process takes in: changes as they are recorded, copies as they run."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.ingest.progress import CopyProgress
    from frazil.ingest.report import BatchReport

# Tasks of a copy report their rows when they end: shorter, and the rate would drop to 0 between.
WINDOW_SECONDS = 30.0


class Throughput:
    """Counts rows once, from the first report of them. Not thread-safe: its owner is."""

    def __init__(self, now: float) -> None:
        self._rows = 0
        self._counts: deque[tuple[float, int]] = deque([(now, 0)])
        # Of the copy that runs: its tables, and the rows of it that are counted.
        self._copying: tuple[str, ...] = ()
        self._copied = 0

    def add(self, rows: int) -> None:
        """Rows that are in the lake."""
        self._rows += rows

    def add_batch(self, report: BatchReport) -> None:
        """A batch that is recorded; what its progress reported is counted already."""
        if not report.is_copy:
            self._rows += report.rows
            return
        if report.rows > self._copied:
            self._rows += report.rows - self._copied
            self._copied = report.rows

    def follow(self, progress: CopyProgress | None) -> None:
        """How far a running copy is."""
        if progress is None:
            self._copying, self._copied = (), 0
            return
        if progress.tables != self._copying or progress.rows < self._copied:
            # Another one, or the same from its first row.
            self._copying, self._copied = progress.tables, 0
        self._rows += progress.rows - self._copied
        self._copied = progress.rows

    def rate(self, now: float) -> float:
        """Rows a second since the last call that is old enough."""
        while len(self._counts) > 1 and now - self._counts[1][0] >= WINDOW_SECONDS:
            self._counts.popleft()
        began, before = self._counts[0]
        self._counts.append((now, self._rows))
        return (self._rows - before) / (now - began) if now > began else 0.0
