"""Dead letters of topics, read again from their segments: these have all of a record.

What a letter keeps is the value alone; key, headers and time are columns of a table, too. A record
whose segment is gone stays a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.sources.change_schema import change_schema
from frazil.sources.kafscale.reading.conversion import RecordConversion
from frazil.sources.kafscale.segments.discovery import SegmentBound
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.protocol import PartitionFailure, TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.object_store import Bucket
    from frazil.model.marker import Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.kafscale.records.topic_plan import TopicPlan
    from frazil.sources.kafscale.segments.discovery import SegmentListing
    from frazil.sources.kafscale.topic_tables import TopicTables
    from frazil.sources.replaying import ReplayedReading

_FIRST = SegmentBound(bytes=1, segments=1)


class TopicReplayer:
    """Reads records of the mapped topics again; lives on the driver."""

    def __init__(
        self, identity: str, bucket: Bucket, listing: SegmentListing, tables: TopicTables
    ) -> None:
        self._identity = identity
        self._bucket = bucket
        self._listing = listing
        self._tables = tables

    @property
    def identity(self) -> str:
        """The source's."""
        return self._identity

    def has(self, table: str) -> bool:
        """Whether the topic is mapped."""
        return table in self._tables.names

    def table(self, name: str, shape: str) -> SourceTable:
        """As its next records would need it."""
        return self._tables.load(name, shape)[0]

    def has_passed(self, record: RejectedRecord, position: Position) -> bool:
        """Whether the partition has come beyond the record."""
        return isinstance(position, Mapping) and position.get(record.where, 0) > record.offset

    def read(
        self, table: SourceTable, records: Sequence[RejectedRecord]
    ) -> Sequence[ReplayedReading]:
        """The rows of each, or the record again."""
        plan = self._tables.load(table.name, table.shape)[1]
        return tuple(self._read(table, plan, each) for each in records)

    def _read(self, table: SourceTable, plan: TopicPlan, record: RejectedRecord) -> ReplayedReading:
        partition = TopicPartition.parse(record.where)
        found = self._listing.list_from(partition, record.offset, _FIRST).segments
        if record.reason is RejectReason.GAP or not found or found[0].base_offset > record.offset:
            return replace(record, message="no segment has this offset any more.")
        try:
            segment = parse_segment(self._bucket.read(found[0].key))
            pieces = _pieces_of(record, list(decode_records(segment.batches)))
        except MalformedFileError as error:
            return replace(record, message=f"its segment does not decode: {error}.")
        conversion = RecordConversion(plan, partition.partition, self._bucket)
        within = range(segment.base_offset, segment.last_offset + 1)
        rows = []
        for piece in pieces:
            for reading in conversion.convert(piece, within) if piece.num_rows else ():
                if isinstance(reading, RejectedRecord):
                    return replace(record, reason=reading.reason, message=reading.message)
                if isinstance(reading, PartitionFailure | TableFailure):
                    return replace(record, message=reading.error.message)
                if isinstance(reading, TableRows):
                    rows.append(reading.rows)
        schema = change_schema(table.columns, table.key)
        joined = pa.Table.from_batches(rows, schema).combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return TableRows(table.name, joined[0] if joined else empty)


def _pieces_of(record: RejectedRecord, pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The records that became this letter: one, or all of a segment that did not decode."""
    single = [each.filter(pc.equal(each.column("offset"), record.offset)) for each in pieces]
    values = {value for each in single for value in each.column("value").to_pylist()}
    if record.reason is RejectReason.MALFORMED and (record.payload or None) not in values:
        return [
            each.filter(pc.greater_equal(each.column("offset"), record.offset)) for each in pieces
        ]
    return single
