"""The state of a pipeline at one moment, as values: what commands, the page and metrics show.

Texts are redacted where they are shown; none carries a row.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads annotations when it runs
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import AwareDatetime, BeforeValidator, PlainSerializer

from frazil.pipeline.status.upkeep_status import UpkeepStatus  # noqa: TC001 - as below
from frazil.sources.health import HealthFacts  # noqa: TC001 - pydantic reads annotations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.ingest.progress import CopyProgress


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) else value


Time: TypeAlias = Annotated[AwareDatetime, PlainSerializer(datetime.isoformat)]
# As text in JSON: it has 63 bits, and many readers keep 53. Older releases wrote a number.
SnapshotId: TypeAlias = Annotated[int, BeforeValidator(_number), PlainSerializer(str)]


class Phase(StrEnum):
    """What happens with a table; the first that fits."""

    STOPPED = "stopped"
    """Nothing happens until an operator acts: ``trouble`` says why and what to do."""
    COPYING = "copying"
    """The table is being copied, or waits for its turn."""
    MERGING = "merging"
    """A merge runs now."""
    STREAMING = "streaming"
    """Changes are captured as they come."""
    WAITING = "waiting"
    """Until the next run; with a problem, until it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemStatus:
    """What went wrong and what fixes it; ``code`` is None for a defect of ours.

    ``retry_at`` is when it is tried again; None when action is required.
    """

    code: str | None
    reason: str
    remedy: str
    since: Time
    retry_at: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStatus:
    """One commit to the lake; ``role`` is ``ingest`` or ``merge``.

    ``seconds`` is None where only the lake was asked. ``phases`` are seconds by part of the work,
    for merges.
    """

    at: Time
    table: str
    role: str
    lake_table: str
    snapshot_id: SnapshotId | None
    rows: int
    seconds: float | None
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The key index of a mirror, as of its last merge."""

    entries: int
    bytes: int
    repairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """How far a copy has come; the figures are of all tables that are copied now."""

    rows: int
    bytes_read: int
    bytes_total: int
    fraction: float
    remaining_seconds: float | None


def copy_status(table: str, progress: CopyProgress | None) -> CopyStatus | None:
    """The progress of the running copy, if this table is part of it."""
    if progress is None or table not in progress.tables:
        return None
    return CopyStatus(
        rows=progress.rows,
        bytes_read=progress.bytes_read,
        bytes_total=progress.bytes_total,
        fraction=progress.fraction,
        remaining_seconds=progress.remaining_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table: of the source where there is one, else the mirror that is merged.

    ``lag_seconds`` is how old the newest state is that readers of the mirror are sure to see;
    without a mirror, readers of the changelog. ``lag_bytes`` is the log at the source that was not
    captured yet. Both are None while unknown. A table ``is_first_load`` until the first
    commit that readers can see: it has no readers that could be behind. ``captured`` counts changes
    by operation and ``merged`` keys by what became of them, since the process started;
    ``mirror_rows`` and ``changelog_rows`` are what the lake holds, None while it was not asked.
    """

    table: str
    phase: Phase
    since: Time
    changelog: str | None = None
    mirror: str | None = None
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    is_first_load: bool = False
    mirror_rows: int | None = None
    changelog_rows: int | None = None
    captured: Mapping[str, int] = field(default_factory=dict)
    merged: Mapping[str, int] = field(default_factory=dict)
    copy: CopyStatus | None = None
    index: IndexStatus | None = None
    commits: tuple[CommitStatus, ...] = ()
    """The last few, newest first."""
    next_run: Time | None = None
    """Of its merge."""
    trouble: ProblemStatus | None = None

    @property
    def rows(self) -> int | None:
        """What readers find: rows of the mirror; without one, of the changelog."""
        return self.changelog_rows if self.mirror is None else self.mirror_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """Where changes come from. ``trouble`` is what keeps all tables from being captured.

    While the server cannot be asked, ``unknown_since`` is when it last answered, and what only the
    server knows is None: its health and the lag in bytes.
    """

    kind: str
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    health: HealthFacts | None = None
    unknown_since: Time | None = None
    is_paused: bool = False
    """Reading waits, because what was read has to be written first."""
    pending_commits: int = 0
    """Of the batch that is being written."""
    next_run: Time | None = None
    trouble: ProblemStatus | None = None
    standby: str | None = None
    """Who does the work while this process is a standby; None while it works itself."""
    leases_held: int | None = None
    """Partitions that this process works on; None where there are none to share."""

    @property
    def action_required(self) -> bool:
        """Whether nothing is captured until an operator has acted."""
        return self.trouble is not None and self.trouble.retry_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A point of the plots: the longest lag of any table, and rows a second of this process.

    Rows are those that were copied or captured; without a source, the changes merged.
    """

    at: Time
    lag_seconds: float | None
    changes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """Everything. ``is_live`` is false when no process answered and the lake was read instead."""

    pipeline: str
    version: str
    at: Time
    started_at: Time | None
    is_live: bool
    roles: tuple[str, ...] = ()
    source: SourceStatus | None = None
    tables: tuple[TableStatus, ...] = ()
    commits: tuple[CommitStatus, ...] = ()
    """The last few of all tables, newest first."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By code, since the process started."""
    samples: tuple[Sample, ...] = ()
    """Oldest first."""
    upkeep: tuple[UpkeepStatus, ...] = ()
    """The tables of the lake and their health, as maintenance last found them."""

    @property
    def stopped(self) -> tuple[TableStatus, ...]:
        """The tables that require action."""
        return tuple(each for each in self.tables if each.phase is Phase.STOPPED)

    @property
    def action_required(self) -> bool:
        """Whether action is required: for a table, or for the source of all."""
        return bool(self.stopped) or (self.source is not None and self.source.action_required)

    @property
    def lag_seconds(self) -> float | None:
        """The longest of all tables that have readers; None while that of one is unknown."""
        return longest_lag(each for each in self.tables if not each.is_first_load)


def longest_lag(tables: Iterable[TableStatus]) -> float | None:
    """The longest of these; None while one is unknown, or without any."""
    lags = [each.lag_seconds for each in tables]
    known = [each for each in lags if each is not None]
    return max(known) if known and len(known) == len(lags) else None
