"""The report of a merge: counts, seconds, snapshots and repairs, for the CLI and metrics."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.hooks import Clock
    from frazil.model.key_index import Repair
    from frazil.model.table_name import TableName


class MergeAction(StrEnum):
    """What became of a key that the changelog names."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    # Older than what the mirror has, or repeated; only with order per_key.
    LATE = "late"
    # A delete of a key that is not in the mirror.
    NONE = "none"


class MergePhase(StrEnum):
    """A timed part of a merge; phases inside tasks are summed over the tasks."""

    PLAN = "plan"
    READ = "read"
    FOLD = "fold"
    LOCATE = "locate"
    WRITE = "write"
    INDEX = "index"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class PhaseTimer:
    """Seconds by phase, of a task or of the driver's own work."""

    clock: Clock
    seconds: dict[MergePhase, float] = field(default_factory=lambda: dict.fromkeys(MergePhase, 0.0))

    @contextmanager
    def timed(self, phase: MergePhase) -> Iterator[None]:
        """Add the time that the block takes."""
        start = self.clock.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] += self.clock.monotonic() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCommit:
    """One commit to the mirror: the changelog's snapshots after ``after`` up to ``through``.

    ``snapshot_id`` is the mirror's. ``unknown_updates`` counts updates of keys that were not in
    the mirror, which were inserted; ``surplus_rows`` counts removed duplicates of a key.
    ``file_sizes`` are those of the data files, in bytes; ``bytes_written`` includes the deletes.
    """

    after: int | None
    through: int
    snapshot_id: int
    rows_read: int
    seconds: float
    counts: Mapping[MergeAction, int] = field(default_factory=dict)
    phases: Mapping[MergePhase, float] = field(default_factory=dict)
    repairs: tuple[Repair, ...] = ()
    truncated: bool = False
    unknown_updates: int = 0
    surplus_rows: int = 0
    rows_written: int = 0
    files_added: int = 0
    files_removed: int = 0
    files_touched: int = 0
    bytes_written: int = 0
    file_sizes: tuple[int, ...] = ()
    index_entries: int = 0
    index_bytes: int = 0
    schema_changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What one call merged; without commits there was nothing to merge."""

    changelog: TableName
    mirror: TableName
    commits: tuple[MergeCommit, ...] = ()

    @property
    def counts(self) -> Mapping[MergeAction, int]:
        """Keys by what became of them, over all commits."""
        total: Counter[MergeAction] = Counter(dict.fromkeys(MergeAction, 0))
        for commit in self.commits:
            total.update(commit.counts)
        return dict(total)

    @property
    def phases(self) -> Mapping[MergePhase, float]:
        """Seconds by phase, over all commits."""
        total: dict[MergePhase, float] = dict.fromkeys(MergePhase, 0.0)
        for commit in self.commits:
            for phase, seconds in commit.phases.items():
                total[phase] += seconds
        return total

    @property
    def rows_read(self) -> int:
        """Changes read from the changelog."""
        return sum(commit.rows_read for commit in self.commits)

    @property
    def seconds(self) -> float:
        """Wall time of the commits, planning included."""
        return sum(commit.seconds for commit in self.commits)

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """The mirror's snapshots, oldest first."""
        return tuple(commit.snapshot_id for commit in self.commits)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Every repair of the key index."""
        return tuple(repair for commit in self.commits for repair in commit.repairs)
