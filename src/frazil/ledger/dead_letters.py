"""The dead letters: records that could not be written, kept complete until an operator decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import CommitOutcome, Receipt, StrictCommit
from frazil.clients.iceberg.lake import NEWEST_FORMAT, TableDefinition
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import position_text
from frazil.ledger.writing import write_rows
from frazil.model.marker import Allowed, AlreadyDone, MarkerMove, MarkerRole, judge_move
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from frazil.clients.iceberg.commit.retrying import RetryPolicy
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.model.marker import Marker, Position
    from frazil.model.table_name import TableName

SCHEMA = Schema(
    0,
    (
        Field(1, "source", Primitive.STRING, required=True),
        Field(2, "position", Primitive.STRING, required=True, doc="where it was read"),
        Field(3, "table_name", Primitive.STRING, doc="where it should have gone, if known"),
        Field(4, "reason_code", Primitive.STRING, required=True),
        Field(5, "message", Primitive.STRING, required=True),
        Field(6, "payload", Primitive.BINARY, required=True, doc="as the source gave it"),
        Field(7, "first_seen_at", Primitive.TIMESTAMPTZ, required=True),
        Field(8, "last_seen_at", Primitive.TIMESTAMPTZ, required=True),
        Field(9, "attempts", Primitive.LONG, required=True),
        Field(10, "batch", Primitive.STRING, required=True),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One change that could not be written; its payload is never shown in a log."""

    source: str
    position: Position
    table: str | None
    reason_code: str
    message: str
    payload: bytes = field(repr=False)
    first_seen: datetime
    last_seen: datetime
    attempts: int = 1


class DeadLetterTable:
    """One pipeline's dead letters; lives on the driver."""

    def __init__(
        self,
        table: LakeTable,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.table = table
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()

    @classmethod
    def open(cls, lake: Lake, name: TableName) -> DeadLetterTable:
        """A table that exists; TableNotFoundError otherwise."""
        return cls(lake.open(name))

    @classmethod
    def ensure(
        cls, lake: Lake, name: TableName, *, format_version: int = NEWEST_FORMAT
    ) -> DeadLetterTable:
        """The table as it is, or a new and empty one."""
        definition = TableDefinition(schema=SCHEMA, format_version=format_version)
        return cls(lake.ensure_table(name, definition))

    def position(self) -> Marker | None:
        """Through which position letters were written; None before the first.

        It lags behind the source while there is nothing to write. A batch that is read again
        after a crash leaves out the letters up to here.
        """
        return self.table.load_marker(MarkerRole.INGEST)

    def append(
        self,
        letters: Sequence[DeadLetter],
        *,
        start: Position | None,
        goal: Marker,
        retry: RetryPolicy | None = None,
    ) -> Receipt:
        """Keep the letters of a batch, before any table of the batch commits.

        Repeating the same batch is a no-op, and the receipt says so. Whatever goes wrong is
        raised: a batch whose letters are not kept must not be acknowledged.
        """
        move = MarkerMove(MarkerRole.INGEST, start, goal)
        verdict = judge_move(self.position(), move)
        if isinstance(verdict, AlreadyDone):
            return Receipt(CommitOutcome.ALREADY_DONE, verdict.marker)
        # What will not land leaves no file behind; the commit then says why.
        rows = [_row(letter, goal.batch) for letter in letters if isinstance(verdict, Allowed)]
        target = self.table.load_write_target()
        changes = write_rows(target, rows, clock=self._clock, randomness=self._randomness)
        return self.table.append(StrictCommit(move=move, changes=changes), retry)

    def count(self) -> int:
        """How many letters there are; Iceberg answers from its metadata."""
        return self.table.read().count()


def _row(letter: DeadLetter, batch: str) -> dict[str, object]:
    return {
        "source": letter.source,
        "position": position_text(letter.position),
        "table_name": letter.table,
        "reason_code": letter.reason_code,
        "message": letter.message,
        "payload": letter.payload,
        "first_seen_at": letter.first_seen,
        "last_seen_at": letter.last_seen,
        "attempts": letter.attempts,
        "batch": batch,
    }
