"""The rows that a segment has for one table, as one batch of columns in the order they came.

Rows of every shape are converted apart, each with its own plans, and then put in order; positions,
ordinals and times are given to all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.pgoutput.messages import MessageKind, Truncate
from frazil.model.change import Operation
from frazil.sources.change_schema import COMMITTED_AT_TYPE
from frazil.sources.postgres.stream.shape_rows import ConvertedRows, convert_rows
from frazil.sources.protocol import ChangeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from frazil.codec.pgoutput.bulk_decoder import DecodedFrames
    from frazil.codec.pgoutput.columns import RelationChanges
    from frazil.codec.pgoutput.messages import Message
    from frazil.sources.postgres.stream.segment import TableReading
    from frazil.sources.postgres.stream.segment_transactions import SegmentTransactions

_OPERATIONS = {
    MessageKind.INSERT: Operation.INSERT,
    MessageKind.UPDATE: Operation.UPDATE,
    MessageKind.DELETE: Operation.DELETE,
    MessageKind.TRUNCATE: Operation.TRUNCATE,
}
_OPERATION_NAMES = pa.array([each.value for each in _OPERATIONS.values()], pa.string())
# From the kind of a message to the index of its operation.
_OPERATION_INDEX = np.zeros(256, np.int32)
_OPERATION_INDEX[list(_OPERATIONS)] = range(len(_OPERATIONS))


@dataclass(frozen=True, eq=False, slots=True)
class TableChanges:
    """What a segment has for one table: changes by shape, and the numbers of its truncations."""

    shapes: tuple[RelationChanges, ...]
    truncations: NDArray[np.int64]


def changes_by_table(decoded: DecodedFrames) -> Mapping[int, TableChanges]:
    """Everything that messages say about rows, by the OID of the table."""
    shapes: dict[int, list[RelationChanges]] = {}
    for changes in decoded.changes:
        shapes.setdefault(changes.relation.oid, []).append(changes)
    truncations = _truncations(decoded.others)
    return {
        oid: TableChanges(tuple(shapes.get(oid, ())), np.array(truncations.get(oid, ()), np.int64))
        for oid in dict.fromkeys(chain(shapes, truncations))
    }


def _truncations(others: Mapping[int, Message]) -> Mapping[int, Sequence[int]]:
    found: dict[int, list[int]] = {}
    for number in sorted(others):
        message = others[number]
        if isinstance(message, Truncate):
            for oid in dict.fromkeys(message.relation_oids):
                found.setdefault(oid, []).append(number)
    return found


def make_rows(
    changes: TableChanges,
    table: TableReading,
    transactions: SegmentTransactions,
    *,
    schema: pa.Schema,
    first_ordinal: int,
) -> pa.RecordBatch:
    """The rows of transactions that the table does not skip, in the order they came.

    ``schema`` is the table's; ``first_ordinal`` is where the open transaction goes on. Raises
    RefusedRowsError if one row cannot be made: then there are none.
    """
    made = [
        convert_rows(each, kept, table, schema)
        for each in changes.shapes
        if len(kept := transactions.since(table.after, each.numbers))
    ]
    truncations = changes.truncations[transactions.since(table.after, changes.truncations)]
    if len(truncations) or not made:
        made.append(_truncated(truncations, table, schema))
    rows = made[0] if len(made) == 1 else _merged(made, schema)
    return _with_transactions(rows, transactions, schema, first_ordinal)


def _truncated(numbers: NDArray[np.int64], table: TableReading, schema: pa.Schema) -> ConvertedRows:
    kinds = np.full(len(numbers), MessageKind.TRUNCATE, np.uint8)
    fields = (schema.field(index) for index in range(len(table.columns)))
    return ConvertedRows(
        numbers, kinds, tuple(pa.nulls(len(numbers), field.type) for field in fields)
    )


def _merged(parts: Sequence[ConvertedRows], schema: pa.Schema) -> ConvertedRows:
    """Rows of several shapes by the numbers of their messages; the two of one stay as they are."""
    numbers = np.concatenate([each.numbers for each in parts])
    order = np.argsort(numbers, kind="stable")
    row_order = pa.array(order)

    def ordered(arrays: Sequence[pa.Array]) -> pa.Array:
        return pa.concat_arrays(arrays).take(row_order)

    def optional(arrays: Sequence[pa.Array | None], name: str) -> pa.Array | None:
        if all(each is None for each in arrays):
            return None
        type_ = schema.field(name).type
        return ordered(
            [
                pa.nulls(len(part.numbers), type_) if each is None else each
                for part, each in zip(parts, arrays, strict=True)
            ]
        )

    return ConvertedRows(
        numbers=numbers[order],
        kinds=np.concatenate([each.kinds for each in parts])[order],
        columns=tuple(map(ordered, zip(*(each.columns for each in parts), strict=True))),
        unchanged=optional([each.unchanged for each in parts], ChangeColumn.UNCHANGED),
        previous_key=optional([each.previous_key for each in parts], ChangeColumn.PREVIOUS_KEY),
    )


def _with_transactions(
    rows: ConvertedRows, transactions: SegmentTransactions, schema: pa.Schema, first_ordinal: int
) -> pa.RecordBatch:
    """Rows with the columns that come from their transactions."""
    of_rows = transactions.of_messages[rows.numbers]
    # The last one is the open one, where -1 leads to.
    chosen = np.where(of_rows < 0, len(transactions.positions) - 1, of_rows)
    by_name = {
        ChangeColumn.OPERATION: _OPERATION_NAMES.take(pa.array(_OPERATION_INDEX[rows.kinds])),
        ChangeColumn.POSITION: pa.array(transactions.positions[chosen]),
        ChangeColumn.ORDINAL: pa.array(_ordinals(of_rows, first_ordinal)),
        ChangeColumn.COMMITTED_AT: pa.array(transactions.committed_at[chosen]).view(
            COMMITTED_AT_TYPE
        ),
        ChangeColumn.ORIGIN: transactions.origins.take(pa.array(chosen)),
        ChangeColumn.UNCHANGED: rows.unchanged,
        ChangeColumn.PREVIOUS_KEY: rows.previous_key,
    }
    fields = [schema.field(index) for index in range(len(rows.columns), len(schema))]
    metadata = (
        pa.nulls(len(of_rows), field.type) if (found := by_name[field.name]) is None else found
        for field in fields
    )
    return pa.RecordBatch.from_arrays([*rows.columns, *metadata], schema=schema)


def _ordinals(of_rows: NDArray[np.int64], first_ordinal: int) -> NDArray[np.uint64]:
    """Rows counted within their transaction; those of the open one, numbered -1, come first."""
    starts = np.flatnonzero(np.diff(of_rows, prepend=-2))
    counts = np.diff(starts, append=len(of_rows))
    ordinals = np.arange(len(of_rows)) - np.repeat(starts, counts)
    ordinals[of_rows < 0] += first_ordinal
    return ordinals.astype(np.uint64)
