"""Splits of a claimed batch, read in tasks: each with a session of its own.

Values come as text in the binary form of COPY and become columns at once. An event that is no row
of its table is found by its own values and rejected alone; the rows around it land.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil import errors
from frazil.clients.defects import defect_of_table
from frazil.clients.postgres.connecting import connect
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgcopy.fields import rows_alone
from frazil.model.rejected_record import RejectedRecord
from frazil.sources.buffer.event_queries import payloads_query, rows_query
from frazil.sources.buffer.event_rows import RowBuilder
from frazil.sources.protocol import CountedOutcome, RecordsCounted, TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.event_queries import ClaimedEvents
    from frazil.sources.buffer.event_rows import BuiltRows, RejectedEvent
    from frazil.sources.buffer.shape import GrownShape
    from frazil.sources.protocol import Reading, Split

MOST_ROWS: Final = 1 << 16
# A batch is in memory three or four times: as it came, in one piece, and as columns.
MOST_BYTES: Final = 8 << 20
# Documents of rejected events may be large.
_PAYLOADS_AT_ONCE: Final = 100
# Statistics cannot tell how few rows a run of ids has.
_BY_INDEX: Final = """
    select set_config('enable_seqscan', 'off', false), set_config('enable_material', 'off', false)
"""


@dataclass(frozen=True, slots=True)
class EventSplit:
    """Claimed events of a table, and what its rows look like."""

    table: str
    events: ClaimedEvents
    shape: GrownShape


class _Payload(NamedTuple):
    id: int
    text: str


@dataclass(frozen=True)
class EventReader:
    """Reads claimed events; made to travel."""

    dsn: SecretText = field(repr=False)

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split, its rejected events, or why its table cannot be read.

        Raises SourceUnavailableError when the connection breaks, which is no event's fault.
        """
        piece = split.payload
        if not isinstance(piece, EventSplit):
            message = f"a buffer has no splits of the kind {type(piece).__name__}"
            raise TypeError(message)
        failure: errors.FrazilError | None = None
        with connect(self.dsn, purpose="read") as session:
            try:
                yield from _read(session, piece)
            except (errors.SourceUnavailableError, errors.PermissionError):
                raise
            except errors.FrazilError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                failure = defect_of_table(error, piece.table, "reading events")
        if failure is not None:
            # What its frames hold, rows among it, need not live as long as the error.
            failure.with_traceback(None).table = piece.table
            yield TableFailure(piece.table, failure)


def _read(session: Session, piece: EventSplit) -> Iterator[Reading]:
    builder = RowBuilder(piece.shape)
    rejected: list[RejectedEvent] = []
    nulled = 0
    session.execute(_BY_INDEX, doing="reading events")
    with closing(_build(session, piece, builder)) as batches:
        for built in batches:
            rejected += built.rejected
            nulled += built.nulled
            if built.rows.num_rows:
                yield TableRows(piece.table, built.rows)
    if nulled:
        yield RecordsCounted(piece.table, CountedOutcome.NULLED, nulled)
    for at in range(0, len(rejected), _PAYLOADS_AT_ONCE):
        yield from _records(session, piece, rejected[at : at + _PAYLOADS_AT_ONCE])


def _build(session: Session, piece: EventSplit, builder: RowBuilder) -> Generator[BuiltRows]:
    query = rows_query(piece.events, builder.columns)
    messages = session.copy_out_rows(
        f"copy ({query}) to stdout (format binary)",
        doing=f"reading events of {piece.table}",
        most_rows=MOST_ROWS,
        most_bytes=MOST_BYTES,
    )
    strange = None
    try:
        with closing(messages):
            for frames in rows_alone(messages):
                yield builder.build(frames)
    except MalformedFileError as error:
        strange = str(error)
    if strange is not None:
        message = f"what the server sends cannot be read: {strange}"
        raise errors.MalformedChangeError(message)


def _records(
    session: Session, piece: EventSplit, rejected: Sequence[RejectedEvent]
) -> Iterator[RejectedRecord]:
    query = payloads_query(piece.events, [each.id for each in rejected])
    found = session.load(_Payload, query, doing="reading rejected events")
    payloads = {each.id: each.text for each in found}
    for each in rejected:
        yield RejectedRecord(
            table=piece.table,
            offset=each.id,
            reason=each.reason,
            message=each.message,
            payload=payloads.get(each.id, "").encode(),
        )
