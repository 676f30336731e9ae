"""Segments of the spool read in tasks: from bytes to rows, table by table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.defects import defect_of_table
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import read_segment
from frazil.errors import MalformedChangeError
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.change_schema import change_schema
from frazil.sources.postgres.stream.change_rows import changes_by_table, make_rows
from frazil.sources.postgres.stream.row_images import RefusedRowsError
from frazil.sources.postgres.stream.segment import SegmentPart
from frazil.sources.postgres.stream.segment_transactions import segment_transactions
from frazil.sources.protocol import TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from frazil.sources.postgres.stream.change_rows import TableChanges
    from frazil.sources.postgres.stream.segment import SegmentFiles, TableReading
    from frazil.sources.postgres.stream.segment_transactions import SegmentTransactions
    from frazil.sources.protocol import Reading, Split

# Enough for columns to be worth their overhead, few enough for a writer to hold.
MOST_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class StreamReader:
    """Reads splits whose payload is a tuple of SegmentPart.

    Changes of tables that are not among these are left out. A table that failed has no rows from
    there to the end of the split; what was read of it before is not to be used.
    """

    files: SegmentFiles
    tables: tuple[TableReading, ...]

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split; all batches of a table have the schema of ``change_schema``.

        Raises MalformedChangeError for a segment that does not decode.
        """
        waiting = {each.oid: each for each in self.tables}
        for part in _parts(split):
            transactions, changes = self._load(part)
            for table in [waiting[oid] for oid in changes if oid in waiting]:
                try:
                    rows = _rows(changes[table.oid], table, transactions, part)
                except RefusedRowsError as error:
                    yield _failure(table, transactions, error)
                    del waiting[table.oid]
                except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                    found = defect_of_table(error, table.name, "reading changes")
                    yield TableFailure(table.name, found)
                    del waiting[table.oid]
                else:
                    yield from _slices(table, rows)

    def _load(self, part: SegmentPart) -> tuple[SegmentTransactions, Mapping[int, TableChanges]]:
        data = self.files.load(part.name)
        try:
            decoded = decode_frames(read_segment(data), inside_transaction=part.opens is not None)
            return segment_transactions(decoded, part.opens), changes_by_table(decoded)
        except MalformedFileError as error:
            message = f"segment {part.name!r} of the spool, {error}"
            step = "start again: the stream is read again from the slot"
            raise MalformedChangeError(message, next_step=step) from error


def _parts(split: Split) -> tuple[SegmentPart, ...]:
    payload = split.payload
    if not isinstance(payload, tuple) or not all(isinstance(each, SegmentPart) for each in payload):
        raise TypeError("a split of the stream has a tuple of SegmentPart")
    return payload


def _rows(
    changes: TableChanges,
    table: TableReading,
    transactions: SegmentTransactions,
    part: SegmentPart,
) -> pa.RecordBatch:
    schema = change_schema(table.columns, table.key)
    first = part.begins_ordinals.get(table.oid, 0)
    return make_rows(changes, table, transactions, schema=schema, first_ordinal=first)


def _slices(table: TableReading, rows: pa.RecordBatch) -> Iterator[TableRows]:
    for start in range(0, rows.num_rows, MOST_ROWS):
        yield TableRows(table.name, rows.slice(start, MOST_ROWS))


def _failure(
    table: TableReading, transactions: SegmentTransactions, error: RefusedRowsError
) -> TableFailure:
    reason = error.reason
    located = type(reason)(
        reason.message,
        table=table.name,
        position=format_lsn(transactions.position(error.number)),
        next_step=reason.next_step,
    )
    return TableFailure(table.name, located)
