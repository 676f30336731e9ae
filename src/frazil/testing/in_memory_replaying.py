"""Records of topics in memory that were rejected, read again.

What it shows to the author of a source: the payload of a dead letter holds all of a record, as
``model.record_payload`` has it, because its log may have forgotten the record by now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.model.change import Operation
from frazil.model.records.record_payload import PayloadFormError, decode_record_payload
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.change_schema import arrow_type
from frazil.sources.protocol import Split, TableRows
from frazil.testing.in_memory_database import ROW_BYTES, LoggedRow
from frazil.testing.in_memory_source import InMemoryReader, SourceRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.marker import Position
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.model.source_table import SourceTable
    from frazil.sources.replaying import ReplayedReading
    from frazil.testing.in_memory_topics import InMemoryTopics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As the source itself numbers them: a TRUNCATE goes before the records of all partitions.
_FIRST_ORDINAL = 1


@dataclass(frozen=True, slots=True)
class InMemoryReplayer:
    """Reads values that are JSON objects of a topic's columns."""

    topics: InMemoryTopics

    @property
    def identity(self) -> str:
        """The cluster's."""
        return self.topics.identity

    def has(self, table: str) -> bool:
        """Whether there is such a topic."""
        return table in self.topics.tables

    def table(self, name: str, shape: str) -> SourceTable:  # noqa: ARG002 - columns stay
        """The topic's."""
        return self.topics.tables[name]

    def has_passed(self, record: RejectedRecord, position: Position) -> bool:
        """Whether the partition has come beyond the record."""
        return isinstance(position, Mapping) and position.get(record.where, 0) > record.offset

    def read(
        self, table: SourceTable, records: Sequence[RejectedRecord]
    ) -> Sequence[ReplayedReading]:
        """The row of each, or the record again."""
        return tuple(self._read(table, each) for each in records)

    def _read(self, table: SourceTable, record: RejectedRecord) -> ReplayedReading:
        try:
            known = decode_record_payload(record.payload)
            document = json.loads(known.value or b"")
            values = {
                each.number: pa.scalar(document[each.name], arrow_type(each.type)).as_py()
                for each in table.columns
            }
        except (PayloadFormError, ValueError, TypeError, KeyError, pa.ArrowException):
            return replace(
                record, reason=RejectReason.MALFORMED, message="its value is no row of the table."
            )
        row = SourceRow(
            partition=record.partition,
            position=record.offset,
            origin=f"{record.where}@{record.offset}",
            committed_at=_EPOCH + timedelta(milliseconds=known.timestamp_ms),
            row=LoggedRow(
                table=table,
                ordinal=_FIRST_ORDINAL + int(record.partition),
                operation=Operation.INSERT,
                values=values,
            ),
        )
        (rows,) = InMemoryReader({table.name: table}).read(Split((row,), ROW_BYTES))
        if not isinstance(rows, TableRows):
            raise TypeError(rows)
        return rows
