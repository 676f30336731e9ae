"""Single rows of a mirror, read by file and position: what a change left out is taken from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.clients.iceberg.arrow_schema import FIELD_ID, arrow_schema
from frazil.codec.iceberg_defaults import default_from_json
from frazil.errors import MissingImageError
from frazil.model.schema import List, Map, Schema, Struct, children

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.model.schema import Field


def read_rows(
    files: InputFiles,
    location: str,
    positions: npt.NDArray[np.int64],
    fields: Sequence[Field],
) -> pa.Table:
    """These columns of these rows, in the order asked; columns are found by field id.

    Only the row groups that hold the rows are read. A column the file does not have is null, or
    its initial default.
    """
    with files.open(location) as source, pq.ParquetFile(source) as parquet:
        return _read(parquet, location, positions, fields)


def _read(
    parquet: pq.ParquetFile,
    location: str,
    positions: npt.NDArray[np.int64],
    fields: Sequence[Field],
) -> pa.Table:
    ids = {field_id(each): each for each in parquet.schema_arrow}
    if ids.keys() == {None}:
        message = f"the data file {location} has no field ids, so its columns cannot be told apart."
        raise MissingImageError(message, next_step="rewrite the file with rewrite_data_files")
    starts = np.cumsum(
        [0, *(parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups))]
    )
    groups = np.searchsorted(starts, positions, side="right") - 1
    wanted = np.unique(groups)
    names = [ids[each.id].name for each in fields if each.id in ids]
    table = parquet.read_row_groups(wanted.tolist(), columns=names)
    # Where the rows of each group that was read begin in what was read.
    lengths = np.diff(starts)[wanted]
    begins = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    at = begins[np.searchsorted(wanted, groups)] + positions - starts[groups]
    rows = table.take(pa.array(at))
    # Counted before: a table without columns has no rows.
    columns = [_column(rows, ids.get(each.id), each, len(positions)) for each in fields]
    return pa.Table.from_arrays(columns, names=[each.name for each in fields])


def field_id(field: pa.Field) -> int | None:
    """The Iceberg id that a Parquet column carries."""
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def _column(rows: pa.Table, found: pa.Field | None, wanted: Field, count: int) -> pa.Array:
    target = arrow_schema(Schema(0, (wanted,))).field(0).type
    if found is None:
        return _default(wanted, target, count)
    column = rows.column(found.name).combine_chunks()
    return projected(column, wanted, target)


def _default(field: Field, target: pa.DataType, rows: int) -> pa.Array:
    if field.initial_default is None:
        return pa.nulls(rows, target)
    return pa.repeat(default_from_json(field.initial_default, field.type, target), rows)


def projected(array: pa.Array, wanted: Field, target: pa.DataType) -> pa.Array:
    """Values under the table's current names and types, member by member and by id."""
    if not children(wanted.type):
        return _widened(array, target)
    match wanted.type:
        case Struct(members):
            inside = {field_id(array.type.field(at)): at for at in range(array.type.num_fields)}
            visible = array.flatten()
            inner = [
                _member(visible, array, inside.get(member.id), member, target.field(at).type)
                for at, member in enumerate(members)
            ]
            fields = [target.field(at) for at in range(target.num_fields)]
            return pa.StructArray.from_arrays(inner, fields=fields, mask=array.is_null())
        case List(element):
            values = projected(array.flatten(), element, target.value_type)
            return pa.ListArray.from_arrays(_offsets(array), values, mask=_mask(array))
        case Map(_, value):
            # Keys of a map never change.
            items = projected(array.items, value, target.item_type)
            return pa.MapArray.from_arrays(array.offsets, array.keys, items)
        case _:
            raise AssertionError(wanted.type)


def _member(
    visible: Sequence[pa.Array],
    array: pa.Array,
    at: int | None,
    member: Field,
    target: pa.DataType,
) -> pa.Array:
    if at is None:
        return pa.nulls(len(array), target)
    return projected(visible[at], member, target)


def _offsets(array: pa.Array) -> pa.Array:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _widened(array: pa.Array, target: pa.DataType) -> pa.Array:
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if plain.type == target:
        return plain
    # The same instants; only the spelling of the zone may differ.
    return plain.view(target) if pa.types.is_timestamp(target) else plain.cast(target)
