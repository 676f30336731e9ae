"""Ids of processed events, to compare tables with: each is a row, or a dead letter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from frazil.clients.postgres.connecting import connect
from frazil.sources.protocol import Split
from frazil.sources.record_source import RecordOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.model.marker import Position
    from frazil.sources.buffer.relations import BufferRelations
    from frazil.sources.buffer.settings import BufferSettings

_DOING: Final = "counting processed events"
# A second's work for the server, and a megabyte for the task.
_SPLIT_IDS: Final = 200_000
# Where digits of an ordinal are in the text of a sequence number, counted from one. An event has an
# even ordinal, twice its id; the new half of a key change is the odd one behind it.
_ORDINAL_AT: Final = 23
_ORDINAL_DIGITS: Final = 16
_EVEN: Final = "'0', '2', '4', '6', '8', 'a', 'c', 'e'"
_ROWS_OF_EVENT: Final = 2
# The buffer has no partitions; where one is asked for, it is this.
_PARTITION: Final = 0
_NOW: Final = "select clock_timestamp()"
# Those that were processed before this pipeline met the table are another program's. A TRUNCATE of
# a table without any column is no row.
_OF_TABLE: Final = """
    from {events} as event
    join {seen_tables} as seen
        on seen.schema_name = event.schema_name and seen.table_name = event.table_name
        and seen.source_id = event.source_id and seen.pipeline = %(pipeline)s
    where event.schema_name || '.' || event.table_name = %(table)s
        and event.processed_at between seen.seen_at and %(until)s
        and event.operation <> 'TRUNCATE'
"""
_RANGE: Final = "select coalesce(min(event.id), 0), coalesce(max(event.id), -1)" + _OF_TABLE
_IDS: Final = (
    "select coalesce(string_agg(int8send(event.id), ''::bytea), ''::bytea)"
    + _OF_TABLE
    + "and event.id between %(first)s and %(last)s"
)
_NO_LETTER: Final = """
    and not exists (select from {letters} as letter where letter.original_event_id = event.id)
"""


_REMEDY: Final = "make missing events pending: update {events} set processed_at = null where id = …"


class _Moment(NamedTuple):
    at: datetime


class _Range(NamedTuple):
    first: int
    last: int


class _Ids(NamedTuple):
    octets: bytes


@dataclass(frozen=True, slots=True)
class CountedEvents:
    """The payload of a split: events between two ids."""

    table: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EventIds:
    """Reads the ids of processed events in tasks."""

    dsn: SecretText = field(repr=False)
    relations: BufferRelations
    pipeline: str
    until: datetime
    has_letters: bool

    def read(self, split: Split) -> Iterator[tuple[int, pa.Array]]:
        """The ids of a split."""
        counted = split.payload
        if not isinstance(counted, CountedEvents):
            raise TypeError("a split of a count has CountedEvents")
        with connect(self.dsn, purpose="verify") as session:
            parameters = {
                **self._parameters(counted.table),
                "first": counted.first,
                "last": counted.last,
            }
            query = _IDS + _NO_LETTER if self.has_letters else _IDS
            (found,) = session.load(_Ids, self._named(query), parameters, doing=_DOING)
        # As the server sends numbers.
        yield _PARTITION, pa.array(np.frombuffer(found.octets, ">i8").astype(np.int64))

    def find_range(self, session: Session, table: str) -> tuple[int, int]:
        """The lowest and the highest id; the highest is the lower one if there is none."""
        parameters = self._parameters(table)
        (found,) = session.load(_Range, self._named(_RANGE), parameters, doing=_DOING)
        return found.first, found.last

    def _parameters(self, table: str) -> dict[str, object]:
        return {"pipeline": self.pipeline, "table": table, "until": self.until}

    def _named(self, query: str) -> str:
        return query.format(
            events=self.relations.events,
            letters=self.relations.letters,
            seen_tables=self.relations.seen_tables,
        )


@dataclass(frozen=True)
class BufferRecords:
    """The processed events of tables that are drained; ``now`` is when the comparison began."""

    settings: BufferSettings
    now: datetime | None = None

    def has(self, table: str) -> bool:
        """Whether its events are drained."""
        return self.settings.choice.selects(table)

    def until_now(self) -> BufferRecords:
        """An event is marked as processed after its row was committed."""
        with connect(self.settings.dsn, purpose="verify") as session:
            (moment,) = session.load(_Moment, _NOW, doing=_DOING)
        return replace(self, now=moment.at)

    def offsets_of(
        self,
        table: str,
        until: Position,  # noqa: ARG002 - the moment says what was captured
    ) -> RecordOffsets:
        """The events of a table that are processed and still in the buffer."""
        settings = self.settings
        moment = self.now or self.until_now().now
        if moment is None:
            raise TypeError(moment)
        reader = EventIds(
            settings.dsn, settings.relations, settings.pipeline, moment, settings.letters.enabled
        )
        with connect(settings.dsn, purpose="verify") as session:
            first, last = reader.find_range(session, table)
        sequence = f"{settings.tables(table).column_prefix}sequence_number"
        ordinal = f"substr(`{sequence}`, {_ORDINAL_AT}, {_ORDINAL_DIGITS})"
        return RecordOffsets(
            reader=reader,
            splits=tuple(
                Split(CountedEvents(table, low, min(low + _SPLIT_IDS - 1, last)), _SPLIT_IDS)
                for low in range(first, last + 1, _SPLIT_IDS)
            ),
            partitions={_PARTITION: "events"},
            begins={_PARTITION: first},
            columns=(sequence,),
            partition_sql=str(_PARTITION),
            offset_sql=f"cast(conv({ordinal}, 16, 10) as bigint) div {_ROWS_OF_EVENT}",
            counted_sql=f"right({ordinal}, 1) in ({_EVEN})",
            is_sparse=True,
            remedy=_REMEDY.format(events=settings.relations.events),
        )
