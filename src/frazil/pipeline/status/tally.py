"""What was done since the process started: counts, the last commits, errors, rows a second.

Not thread-safe: its owner is.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model.marker import MarkerRole
from frazil.pipeline.status.values import CommitStatus, IndexStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from frazil.ingest.progress import CopyProgress
    from frazil.ingest.report import BatchReport
    from frazil.merge.report import MergeReport

# What fits on one screen.
COMMITS_OF_A_TABLE = 5
COMMITS_OF_ALL = 20
# Tasks of a copy report their rows when they end: shorter, and the rate would drop to 0 between.
WINDOW_SECONDS = 30.0


class StatusTally:
    """Counts by the table's name: of the source for what is captured, of the mirror for merges."""

    def __init__(self) -> None:
        self.captured: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.merged: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.errors: Counter[str] = Counter()
        self.indexes: dict[str, IndexStatus] = {}
        self._commits: deque[CommitStatus] = deque(maxlen=COMMITS_OF_ALL)
        self._by_table: defaultdict[str, deque[CommitStatus]] = defaultdict(
            lambda: deque(maxlen=COMMITS_OF_A_TABLE)
        )

    @property
    def commits(self) -> tuple[CommitStatus, ...]:
        """The last ones of all tables, newest first."""
        return tuple(reversed(self._commits))

    def commits_of(self, *lake_tables: str | None) -> tuple[CommitStatus, ...]:
        """The last ones of these tables of the lake, newest first."""
        found = [each for name in lake_tables if name is not None for each in self._by_table[name]]
        found.sort(key=lambda each: each.at, reverse=True)
        return tuple(found[:COMMITS_OF_A_TABLE])

    def add_batch(self, report: BatchReport, at: datetime) -> None:
        """A batch that is recorded."""
        for each in report.tables:
            for operation, rows in each.operations.items():
                self.captured[each.table][operation.lower()] += rows
            self._add(
                CommitStatus(
                    at=at,
                    table=each.table,
                    role=MarkerRole.INGEST.value,
                    lake_table=each.changelog,
                    snapshot_id=each.snapshot_id,
                    rows=each.rows,
                    seconds=each.seconds,
                )
            )
        for error in report.failures.values():
            self.add_error(error)

    def add_merge(self, mirror: str, report: MergeReport, at: datetime) -> None:
        """A run of a mirror that did not fail."""
        for commit in report.commits:
            for action, keys in commit.counts.items():
                self.merged[mirror][action.value] += keys
            before = self.indexes.get(mirror)
            self.indexes[mirror] = IndexStatus(
                entries=commit.index_entries,
                bytes=commit.index_bytes,
                repairs=len(commit.repairs) + (0 if before is None else before.repairs),
            )
            self._add(
                CommitStatus(
                    at=at,
                    table=mirror,
                    role=MarkerRole.MERGE.value,
                    lake_table=str(report.mirror),
                    snapshot_id=commit.snapshot_id,
                    rows=commit.rows_read,
                    seconds=commit.seconds,
                    phases={phase.value: seconds for phase, seconds in commit.phases.items()},
                )
            )

    def remember(self, lake_table: str, commits: Iterable[CommitStatus]) -> None:
        """Commits of before this process, as the lake shows them."""
        known = self._by_table[lake_table]
        seen = {each.snapshot_id for each in known}
        new = [each for each in commits if each.snapshot_id not in seen]
        for deck in (known, self._commits):
            together = sorted([*deck, *new], key=lambda each: each.at)
            deck.clear()
            deck.extend(together)

    def add_error(self, error: Exception) -> None:
        """Something that failed, whether it is tried again or not."""
        if isinstance(error, FrazilError):
            self.errors[error.code] += 1

    def _add(self, commit: CommitStatus) -> None:
        for deck in (self._commits, self._by_table[commit.lake_table]):
            # The lake may have shown it before its report arrives with more.
            seen = [each for each in deck if each.snapshot_id == commit.snapshot_id]
            if commit.snapshot_id is not None and seen:
                deck.remove(seen[0])
            deck.append(commit)


class Throughput:
    """Rows a second: changes as they are recorded, copies as they run.

    Each row is counted once, from the first report of it.
    """

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
