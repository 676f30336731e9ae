"""Splits of a claimed batch, read in tasks: each with a session of its own.

Values come as text in the binary form of COPY and become columns at once. An event that is no row
of its table is found by its own values and rejected alone; the rows around it land.
"""

from __future__ import annotations

from contextlib import closing
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from frazil import errors
from frazil.clients.defects import defect_of_table
from frazil.clients.postgres.connecting import connect
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgcopy.fields import rows_alone, split_fields
from frazil.model.records.rejected_record import RejectedRecord
from frazil.sources.buffer.reading.event_queries import (
    BY_INDEX,
    FIRST_VALUE,
    TABLE,
    named_columns,
    payloads_query,
    rows_query,
    widths,
)
from frazil.sources.buffer.reading.event_rows import RowBuilder
from frazil.sources.protocol import CountedOutcome, RecordsCounted, TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.codec.pgcopy.fields import BinaryColumn
    from frazil.sources.buffer.reading.event_queries import ClaimedEvents, NamedColumns
    from frazil.sources.buffer.reading.event_rows import RejectedEvent
    from frazil.sources.buffer.reading.shape import GrownShape
    from frazil.sources.protocol import Reading, Split

MOST_ROWS: Final = 1 << 16
# A batch is in memory three or four times: as it came, in one piece, and as columns.
MOST_BYTES: Final = 16 << 20
# Documents of rejected events may be large.
_PAYLOADS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable:
    """A table of a split, and what its rows look like."""

    table: str
    source_id: str
    schema: str
    name: str
    shape: GrownShape

    @property
    def named(self) -> NamedColumns:
        """As statements know it."""
        return named_columns(self.source_id, self.schema, self.name, self.shape)


@dataclass(frozen=True, slots=True)
class EventSplit:
    """Claimed events of some tables between two ids."""

    events: ClaimedEvents
    tables: tuple[EventTable, ...]


class _Payload(NamedTuple):
    id: int
    text: str


@dataclass(frozen=True)
class EventReader:
    """Reads claimed events; made to travel."""

    dsn: SecretText = field(repr=False)

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split, its rejected events, or why a table cannot be read.

        Raises SourceUnavailableError when the connection breaks, which is no event's fault.
        """
        piece = split.payload
        if not isinstance(piece, EventSplit):
            message = f"a buffer has no splits of the kind {type(piece).__name__}"
            raise TypeError(message)
        failure: Exception | None = None
        with connect(self.dsn, purpose="read") as session:
            try:
                yield from _SplitReading(session, piece).read()
            except (errors.SourceUnavailableError, errors.PermissionError):
                raise
            except Exception as error:  # noqa: BLE001 - of these tables, whatever it is
                failure = error.with_traceback(None)
        if failure is not None:
            yield from (_failed(each.table, failure) for each in piece.tables)


def _failed(table: str, error: Exception) -> TableFailure:
    if not isinstance(error, errors.FrazilError):
        return TableFailure(table, defect_of_table(error, table, "reading events"))
    # What its frames hold, rows among it, need not live as long as the error; and each table has
    # one of its own.
    failure = copy(error).with_traceback(None)
    failure.table = table
    return TableFailure(table, failure)


class _SplitReading:
    """One split; the events of its tables come mixed, and each is built by its table's builder."""

    def __init__(self, session: Session, piece: EventSplit) -> None:
        self._session = session
        self._piece = piece
        self._named = [each.named for each in piece.tables]
        self._builders: list[RowBuilder | None] = [RowBuilder(it.shape) for it in piece.tables]
        width, keys = widths(self._named)
        self._first_old = FIRST_VALUE + width
        self._width = self._first_old + keys
        self._rejected: list[list[RejectedEvent]] = [[] for _ in piece.tables]
        self._nulled = [0 for _ in piece.tables]

    def read(self) -> Iterator[Reading]:
        """Rows first, then what is known of all of them."""
        self._session.execute(BY_INDEX, doing="reading events")
        with closing(self._blocks()) as blocks:
            for fields in blocks:
                yield from self._build(fields)
        for at, each in enumerate(self._piece.tables):
            if self._builders[at] is None:
                continue
            if self._nulled[at]:
                yield RecordsCounted(each.table, CountedOutcome.NULLED, self._nulled[at])
            rejected = self._rejected[at]
            for first in range(0, len(rejected), _PAYLOADS_AT_ONCE):
                portion = rejected[first : first + _PAYLOADS_AT_ONCE]
                yield from _records(self._session, self._piece.events, each.table, portion)

    def _blocks(self) -> Generator[tuple[BinaryColumn, ...]]:
        query = rows_query(self._piece.events, self._named)
        messages = self._session.copy_out_rows(
            f"copy ({query}) to stdout (format binary)",
            doing="reading events",
            most_rows=MOST_ROWS,
            most_bytes=MOST_BYTES,
        )
        strange = None
        try:
            with closing(messages):
                for frames in rows_alone(messages):
                    yield split_fields(frames, self._width)
        except MalformedFileError as error:
            strange = str(error)
        if strange is not None:
            message = f"what the server sends cannot be read: {strange}"
            raise errors.MalformedChangeError(message)

    def _build(self, fields: tuple[BinaryColumn, ...]) -> Iterator[Reading]:
        """The rows of a block, table by table; a table that fails does not stop the others."""
        numbers = fields[TABLE].numbers(">i4").astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(self._piece.tables)))
        for at, (rows, each) in enumerate(
            zip(np.split(order, ends[:-1]), self._piece.tables, strict=True)
        ):
            builder = self._builders[at]
            if builder is None or not len(rows):
                continue
            try:
                is_alone = len(rows) == len(order)
                own = fields if is_alone else [field.take(rows) for field in fields]
                built = builder.build(own, self._first_old)
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                self._builders[at] = None
                yield _failed(each.table, error)
                continue
            self._rejected[at] += built.rejected
            self._nulled[at] += built.nulled
            if built.rows.num_rows:
                yield TableRows(each.table, built.rows)


def _records(
    session: Session, events: ClaimedEvents, table: str, rejected: Sequence[RejectedEvent]
) -> Iterator[RejectedRecord]:
    query = payloads_query(events, [each.id for each in rejected])
    found = session.load(_Payload, query, doing="reading rejected events")
    payloads = {each.id: each.text for each in found}
    for each in rejected:
        yield RejectedRecord(
            table=table,
            offset=each.id,
            reason=each.reason,
            message=each.message,
            payload=payloads.get(each.id, "").encode(),
        )
