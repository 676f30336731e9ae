"""Jobs of upkeep: each says on which table, why, what it costs and what it gains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from frazil.model.humanize import counted, size
from frazil.model.policy import JobKind

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.model.policy import CompactionOrder
    from frazil.model.table_name import TableName


@dataclass(frozen=True, slots=True)
class JobFile:
    """A data file of a job, as the table named it when the job was planned."""

    location: str
    bytes: int
    records: int
    dead: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJob:
    """Rewrite the live rows of these files of one partition into files of the target size."""

    kind: ClassVar[JobKind] = JobKind.COMPACT
    table: TableName
    # The snapshot that the files are of.
    snapshot_id: int
    spec_id: int
    partition: str
    files: tuple[JobFile, ...]
    target_bytes: int
    order: CompactionOrder
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob:
    """Merge runs of a mirror's key index into one."""

    kind: ClassVar[JobKind] = JobKind.COMPACT
    table: TableName
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireJob:
    """Remove these snapshots from the metadata, and files that only they name."""

    kind: ClassVar[JobKind] = JobKind.EXPIRE
    table: TableName
    snapshots: tuple[int, ...]
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsJob:
    """Write the lists of files again, fewer and larger."""

    kind: ClassVar[JobKind] = JobKind.MANIFESTS
    table: TableName
    manifests: int
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionJob:
    """Remove these files of a changelog, which every mirror has merged.

    ``merged`` is the data sequence number that all mirrors have merged.
    """

    kind: ClassVar[JobKind] = JobKind.RETENTION
    table: TableName
    files: tuple[JobFile, ...]
    merged: int
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerJob:
    """Remove rows about batches before this moment; states of tables stay."""

    kind: ClassVar[JobKind] = JobKind.RETENTION
    table: TableName
    before: datetime
    reason: str
    cost_bytes: int
    gain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansJob:
    """Remove files of the table's folders that no snapshot names, older than this moment."""

    kind: ClassVar[JobKind] = JobKind.ORPHANS
    table: TableName
    before: datetime
    reason: str
    cost_bytes: int
    gain: str


Job: TypeAlias = (
    CompactJob | IndexJob | ExpireJob | ManifestsJob | RetentionJob | LedgerJob | OrphansJob
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What a job did, in counts and bytes.

    ``is_done`` is False where another writer was faster: the next look at the facts decides again.
    ``given_up`` says why work that was finished is not in the table.
    """

    job: Job
    is_done: bool = True
    given_up: str = ""
    files_added: int = 0
    files_removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_removed: int = 0
    snapshots_removed: int = 0
    rows_removed: int = 0
    seconds: float = 0.0


def describe_job(job: Job) -> str:
    """One line for people."""
    cost = f"reads {size(job.cost_bytes)}" if job.cost_bytes else "reads metadata"
    return f"{job.reason}; {cost}, {job.gain}"


def job_document(job: Job) -> dict[str, object]:
    """The same for programs."""
    return {
        "job": job.kind.value,
        "table": str(job.table),
        "reason": job.reason,
        "cost_bytes": job.cost_bytes,
        "gain": job.gain,
    }


def describe_outcome(outcome: JobOutcome) -> str:
    """What was done, in one line."""
    if not outcome.is_done:
        return "another writer was faster; tried again later"
    parts = [
        counted(outcome.snapshots_removed, "snapshot") if outcome.snapshots_removed else "",
        counted(outcome.files_removed, "file") if outcome.files_removed else "",
        counted(outcome.rows_removed, "row") if outcome.rows_removed else "",
        size(outcome.bytes_removed) if outcome.bytes_removed else "",
    ]
    removed = ", ".join(part for part in parts if part)
    written = counted(outcome.files_added, "file") if outcome.files_added else ""
    texts = [
        f"{removed} removed" if removed else "",
        f"{written} written" if written else "",
    ]
    return "; ".join(text for text in texts if text) or "nothing was left to do"
