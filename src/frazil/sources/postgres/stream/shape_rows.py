"""Rows of one shape of a table, converted into the columns that all its rows have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.iceberg_json import default_from_json
from frazil.codec.pgtext.convert import convert
from frazil.errors import (
    MalformedChangeError,
    UnrepresentableValueError,
    UnsupportedSchemaChangeError,
)
from frazil.sources.change_schema import UNCHANGED_TYPE
from frazil.sources.postgres.stream.row_images import RESYNC, RefusedRowsError, cut_rows
from frazil.sources.protocol import ChangeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from frazil.codec.pgoutput.columns import RelationChanges
    from frazil.errors import FrazilError
    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.source_table import SourceColumn
    from frazil.sources.postgres.stream.row_images import ColumnTexts, CutRows
    from frazil.sources.postgres.stream.segment import TableReading


@dataclass(frozen=True, eq=False, slots=True)
class ConvertedRows:
    """Rows with their values and the columns that come from the row alone, not its order.

    ``numbers`` and ``kinds`` are of the messages they come from. ``columns`` are those of the
    table. ``unchanged`` and ``previous_key`` are None where they would be null in every row.
    """

    numbers: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    columns: tuple[pa.Array, ...]
    unchanged: pa.Array | None = None
    previous_key: pa.Array | None = None


def convert_rows(
    changes: RelationChanges, kept: NDArray[np.int64], table: TableReading, schema: pa.Schema
) -> ConvertedRows:
    """What the changes at these positions, ascending, become; the schema is the table's.

    Raises RefusedRowsError when the shape is not known, a key is not known, or a value does not fit
    or is not what Postgres prints.
    """
    shape = next((each for each in table.shapes if each.relation == changes.relation), None)
    if shape is None:
        raise RefusedRowsError(_unknown_shape(), number=int(changes.numbers[kept[0]]))
    positions = {number: position for position, number in enumerate(shape.numbers)}
    if not positions.keys() >= set(table.key):
        raise RefusedRowsError(_no_key(), number=int(changes.numbers[kept[0]]))
    cut = cut_rows(changes, kept, [positions[number] for number in table.key])
    unchanged: dict[int, NDArray[np.bool_]] = {}
    columns: dict[int, pa.Array] = {}
    for index, column in enumerate(table.columns):
        type_ = schema.field(index).type
        position = positions.get(column.number)
        if position is None:
            columns[column.number] = _older_than(column, type_, len(cut))
            continue
        texts = cut.texts(position)
        columns[column.number] = _converted(cut, texts, shape.plans[position], type_)
        if texts.is_unchanged is not None:
            unchanged[column.number] = texts.is_unchanged
    return ConvertedRows(
        numbers=cut.numbers,
        kinds=cut.kinds,
        columns=tuple(columns.values()),
        unchanged=_unchanged(cut, unchanged),
        previous_key=_previous_key(cut, columns, schema) if cut.is_moved.any() else None,
    )


def _converted(cut: CutRows, texts: ColumnTexts, plan: ColumnPlan, type_: pa.DataType) -> pa.Array:
    text = texts.new if texts.gone is None else pa.concat_arrays([texts.new, texts.gone])
    refused: FrazilError
    try:
        values = convert(text, plan).values
    except (MalformedChangeError, UnrepresentableValueError) as error:
        refused = error
    else:
        return _in_order(values if values.type == type_ else values.cast(type_), cut)
    first = _first_refused(_in_order(text, cut), plan)
    raise RefusedRowsError(refused, number=int(cut.numbers[first]))


def _older_than(column: SourceColumn, type_: pa.DataType, count: int) -> pa.Array:
    """What rows that came before a column show in it: what it says of such rows, or null."""
    if column.default is None:
        return pa.nulls(count, type_)
    return pa.repeat(default_from_json(column.default, column.type, type_), count)


def _in_order(values: pa.Array, cut: CutRows) -> pa.Array:
    """Values of the rows; those of rows that went may be left out and are null then."""
    if not len(cut.gone):
        return values
    is_left_out = cut.order >= len(values)
    return values.take(pa.array(cut.order, mask=is_left_out if is_left_out.any() else None))


def _first_refused(text: pa.StringArray, plan: ColumnPlan) -> int:
    """The first row whose text is not converted, found by halving; there is one."""
    start, stop = 0, len(text)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            convert(text[start:middle], plan)
        except (MalformedChangeError, UnrepresentableValueError):
            stop = middle
        else:
            start = middle
    return start


def _unchanged(cut: CutRows, unchanged: Mapping[int, NDArray[np.bool_]]) -> pa.Array | None:
    """For each row the numbers of these columns where it does not have them."""
    if not unchanged:
        return None
    has_not = np.zeros((len(cut), len(unchanged)), np.bool_)
    has_not[cut.order < len(cut.new)] = np.column_stack(list(unchanged.values()))
    counts = has_not.sum(axis=1)
    offsets = np.zeros(len(cut) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    numbers = np.array(list(unchanged), np.int32)[np.nonzero(has_not)[1]]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(numbers), type=UNCHANGED_TYPE, mask=pa.array(counts == 0)
    )


def _previous_key(cut: CutRows, columns: Mapping[int, pa.Array], schema: pa.Schema) -> pa.Array:
    """The key of the row before, which went, in rows that came under a new one."""
    type_ = schema.field(ChangeColumn.PREVIOUS_KEY).type
    members = [type_.field(index) for index in range(type_.num_fields)]
    before = pa.array(np.arange(len(cut)) - 1, mask=~cut.is_moved)
    keys = [columns[int(member.name)].take(before) for member in members]
    return pa.StructArray.from_arrays(keys, fields=members, mask=pa.array(~cut.is_moved))


def _unknown_shape() -> UnsupportedSchemaChangeError:
    message = "rows came in a shape of the table that was not known when the batch was planned"
    return UnsupportedSchemaChangeError(message, next_step=RESYNC)


def _no_key() -> UnsupportedSchemaChangeError:
    message = "rows came without columns of the key"
    return UnsupportedSchemaChangeError(message, next_step=RESYNC)
