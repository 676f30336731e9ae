"""What every source offers: tables, batches of splits that tasks read, and an acknowledgement.

A batch is planned on the driver and read by tasks. A split is small, picklable and re-readable:
reading it twice gives the same rows, so that a task may be retried. A source never commits
anything; it is given the progress of tables, and says how far a batch takes them.

A position is a text, or one offset for each partition. By partition, a partition has rows of one
table, ``start``, ``goal`` and ``end`` are about the partitions that a batch moves, and several
processes may work for one source, each with partitions of its own: what another one moved is
refused when it is committed, and planned again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from frazil.model.records.rejected_record import RejectedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from frazil.errors import FrazilError
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.health import LogPlace


class ChangeColumn:
    """The metadata columns of a row; a value column is named by the number of its column."""

    OPERATION = "operation"
    """A value of ``Operation``."""
    POSITION = "position"
    """The position of its transaction in the source's order: unsigned, 64 bits."""
    ORDINAL = "ordinal"
    """Its ordinal among the rows of this table in that transaction: unsigned, 64 bits."""
    COMMITTED_AT = "committed_at"
    """When the source committed it, in microseconds with zone UTC; null if unknown."""
    ORIGIN = "origin"
    """The position as the source itself prints it."""
    UNCHANGED = "unchanged"
    """A list of the numbers of columns that were not sent; null when there are none."""
    PREVIOUS_KEY = "previous_key"
    """The old key, a struct of columns named by number; null but for the new half of a key change.
    Tables without a key do not have it."""


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of a batch; ``weight`` is about how many bytes it has, to share work fairly."""

    payload: object
    weight: int


@dataclass(frozen=True, eq=False, slots=True)
class TableRows:
    """Rows of one table, in columns as ``ChangeColumn`` says."""

    table: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class TableFailure:
    """Why rows of one table cannot be read; the other tables of the split go on."""

    table: str
    error: FrazilError


@dataclass(frozen=True, slots=True)
class PartitionFailure:
    """Why a partition cannot be read from this offset on; its table goes on with the others.

    When it is met while a batch is read, all of the table waits for the next batch, which is
    planned up to this offset.
    """

    table: str
    partition: str
    offset: int
    error: FrazilError


class CountedOutcome(StrEnum):
    """What happened to records that is only counted; the values are those of a metric's label."""

    SKIPPED = "skipped"
    """A record that its settings leave out."""
    NULLED = "nulled"
    """A value that its column cannot hold, and that became null."""
    RESOLVED = "resolved"
    """A payload that was fetched for its record."""
    RESOLVED_BYTES = "resolved_bytes"
    """The bytes of such payloads."""
    RESOLVED_MICROSECONDS = "resolved_microseconds"
    """How long tasks waited for them and compared them."""


@dataclass(frozen=True, slots=True)
class RecordsCounted:
    """A number for metrics; nothing depends on it."""

    table: str
    outcome: CountedOutcome
    count: int


Reading: TypeAlias = TableRows | TableFailure | PartitionFailure | RejectedRecord | RecordsCounted


class SplitReader(Protocol):
    """Reads splits in tasks: picklable, light, and without a connection."""

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split and the records that are none, table by table in any order."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The rows are the complete table and replace all that was captured before.

    A TRUNCATE at this position, with ordinal 0, goes before them.
    """

    position: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """What a batch brings to one table: from its marker's position to the next one.

    ``table`` is as the newest rows of the batch need it. ``start`` is the position of its progress,
    and ignored for a table that restarts. By partition, ``goal`` names those with rows here.
    """

    table: SourceTable
    start: Position | None
    goal: Position
    restart: Restart | None = None


def _no_check() -> None:
    """Most batches need no check."""


def _one_by_one(splits: tuple[Split, ...]) -> tuple[Split, ...]:
    """Most splits are read each by itself."""
    return splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Splits that are read together, what they bring, and how far the source is then.

    ``failures`` are tables and partitions that this batch leaves out, and why. Once all parts are
    committed, the source may be acknowledged up to ``end``; None leaves it where it is. By
    partition, those of a table that was not committed stay, and all others move. ``most_tasks``
    bounds how many read at a time. ``check`` is called when all is read and before anything is
    committed: it raises when the rows must not be used, as when the snapshot of a copy or the lease
    of a partition was lost.
    ``witness`` is what the source can find again after a restart, to prove that its history is
    still the same; the ledger keeps it and gives it to ``prepare``. None keeps what is there.
    ``resumed`` are partitions that were stopped, and that this batch reads on: what they waited for
    has come. ``keep_rejected`` is for sources with dead letters of their own: it is given those of
    a batch before anything is committed, and again when the batch is repeated. ``join`` makes fewer
    splits of those that one task has, for a reader that fetches ahead of what it reads.
    """

    reader: SplitReader
    splits: tuple[Split, ...]
    parts: tuple[TablePart, ...]
    end: Position | None
    failures: tuple[TableFailure | PartitionFailure, ...] = ()
    resumed: tuple[str, ...] = ()
    most_tasks: int | None = None
    check: Callable[[], None] = _no_check
    witness: str | None = None
    keep_rejected: Callable[[Sequence[RejectedRecord]], None] | None = None
    join: Callable[[tuple[Split, ...]], tuple[Split, ...]] = _one_by_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of the pipeline.

    ``acknowledged`` is what the ledger says, None before the first batch. ``tables`` are those to
    be captured in the stream, each with the position of its marker and the identity recorded.
    ``stopped`` are partitions that are not planned beyond an offset, because they failed there;
    a source may resume one that it stopped itself.
    """

    acknowledged: Position | None
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    stopped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of one table, and its identity and shape at the source by then.

    A table that begins live has no position before its first commit, and no identity before that
    is recorded: it is the one that the source has. By partition, one that is not in the position
    begins where the source was acknowledged to.
    """

    position: Position | None
    identity: str
    shape: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of a batch; soft, because transactions and segments are not split."""

    rows: int
    bytes: int


class Claim(Protocol):
    """The right to work for a source, which one process has at a time.

    Where leases of partitions say who reads what, every process has it, and one of them merges.
    """

    on_turn: Callable[[], None]
    """Called, in the thread that takes the claim, when ``may_merge`` has become true."""

    @property
    def may_merge(self) -> bool:
        """False while another process is known to have the claim: that one merges."""

    @property
    def turns(self) -> int:
        """How often this process took the claim; after a new turn, another one may have worked."""

    def turn(self) -> AbstractContextManager[None]:
        """Take the claim, or keep it; raises SlotBusyError while another process has it.

        The block guards the start of work only: the claim stays until ``release``.
        """

    def release(self) -> None:
        """Let another process take it."""


class Source(Protocol):
    """Where changes come from; lives on the driver."""

    @property
    def identity(self) -> str:
        """What positions count in; another one means that no position means anything."""

    @property
    def generation(self) -> int:
        """A number that rises when the source goes on elsewhere, as after a fail-over."""

    def discover(self) -> tuple[SourceTable, ...]:
        """The tables that are to be captured, as they are now."""

    def explain_identity_change(
        self, before: str, now: str, *, was_gone: bool = False
    ) -> tuple[str, ...]:
        """What happened to a table between two of its identities; none: it is the same.

        Each completes "the table has to be copied again: …". ``was_gone`` says that the table
        did not exist in between.
        """

    def selects(self, table: str) -> bool:
        """Whether the configuration names this table, whether it exists or not."""

    def prepare(
        self, tables: Collection[str], since: Marker | None, reached: Collection[Position] = ()
    ) -> Position:
        """Create or check what keeps the changes of these tables; the position from which it does.

        By partition this is ``since`` itself, empty without one: a new partition is acknowledged to
        its oldest change by a batch that only does that, before its first rows are planned.

        ``since`` is what the ledger says, None if nothing was ever captured: then the source may
        begin anywhere. ``reached`` are the positions of the tables' markers, which may be
        ahead of it. Raises PositionLostError when it cannot give what follows, SourceReplacedError
        when any of these was counted elsewhere, and SlotBusyError, before anything is changed,
        while another process reads the source.
        """

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next changes; None when there are none yet.

        A table gets only what follows its position in ``progress``. One that is ahead, because its
        commit outlived a crash, is not given those rows again; for one that is behind, because its
        copy has just ended, the source goes back to what it keeps.

        A batch without parts only moves the acknowledgement: also to where tables are already,
        after a crash. Planning again means that the previous batch is finished: one that failed is
        planned again after ``close``.

        By partition, only those are planned that this process has a lease of, and what the ledger
        says of them is acknowledged. PositionLostError among the failures is a partition with
        changes that the source does not have any more.
        """

    def plan_copy(self, tables: Collection[str]) -> Batch | None:
        """All rows of some of these tables as of one moment; each part has a ``restart``.

        The goal of each part is that moment, so that the stream continues right after it. Further
        calls use the same moment, until one without tables releases it. May run during ``plan``.

        A table that begins live restarts without rows at its oldest change, if the source can do
        that; of several processes one does.
        """

    def wait(self, seconds: float, limit: Limit) -> bool:
        """Until there is enough for a full batch, or something to raise; False: there is not.

        That is when the time is up, or ``wake`` was called.
        """

    def wake(self) -> None:
        """Let ``wait`` return, the next one if no thread waits; from any thread, and at once."""

    def newest(self) -> Position:
        """How far the source itself is."""

    def has_reached(self, position: Position) -> bool:
        """Whether all that was planned so far leads there or further, as far as it is to be."""

    def kept_since(self, position: Position) -> int:
        """How many bytes the source keeps because this position is not acknowledged.

        Not used by partition: there a table that is paused keeps only partitions of its own.
        """

    def acknowledge(self, position: Position) -> None:
        """Everything up to here is durable, and the source may forget it; may be repeated.

        Partitions that this process has no lease of any more are left to the one that has it.
        """

    def close(self) -> None:
        """Discard the changes that were planned: planning starts again from what is committed.

        Tables that are being copied are not affected.
        """


class ReadProgress(Protocol):
    """How far a source has read; any thread may ask."""

    @property
    def reached(self) -> LogPlace | None:
        """Every change before this position was planned; None while nothing is streamed.

        By partition, of those that this process reads.
        """

    @property
    def followed(self) -> frozenset[str]:
        """The tables that the stream has all changes of."""

    def received(self) -> tuple[LogPlace, frozenset[str]] | None:
        """How far everything was received, and the tables of which nothing waits to be written."""

    @property
    def is_paused(self) -> bool:
        """Whether reading waits until what was read is written."""


class ObservableSource(Source, ReadProgress, Protocol):
    """A source that says how far it has read."""
