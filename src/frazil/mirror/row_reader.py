"""Reads single rows of a mirror by file and position, for columns that a change left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.write.arrow_schema import FIELD_ID, arrow_schema
from frazil.clients.iceberg.write.conforming import null_mask, rebuild_list, rebuild_map
from frazil.codec.iceberg_json import default_from_json
from frazil.errors import MissingImageError
from frazil.model.schema.types import List, Map, Schema, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.model.schema.types import Field


def read_rows(
    files: InputFiles,
    location: str,
    positions: npt.NDArray[np.int64],
    fields: Sequence[Field],
) -> pa.Table:
    """These columns of these rows, in the given order; columns are found by field id.

    Only the row groups that hold the rows are read, one at a time. A column or a member that the
    file does not have is null, or its initial default.
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
        message = f"the data file {location} has no field ids, so its columns cannot be identified."
        raise MissingImageError(message, next_step="rewrite the file with rewrite_data_files")
    starts = np.cumsum(
        [0, *(parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups))]
    )
    names = [ids[each.id].name for each in fields if each.id in ids]
    order = np.argsort(positions, kind="stable")
    parts = []
    # In the order of the file, so that no more than one row group is there at a time.
    for group, at in _by_group(positions[order], starts):
        rows = parquet.read_row_group(group, columns=names).take(pa.array(at)) if names else None
        columns = [_column(rows, ids.get(each.id), each, len(at)) for each in fields]
        parts.append(pa.Table.from_arrays(columns, names=[each.name for each in fields]))
    back = np.empty(len(order), np.intp)
    back[order] = np.arange(len(order))
    return pa.concat_tables(parts).take(pa.array(back))


def _by_group(
    positions: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """The row groups that hold these positions, which are sorted, and the places in each."""
    ends = np.searchsorted(positions, starts)
    for group in range(len(starts) - 1):
        inside = positions[ends[group] : ends[group + 1]]
        if len(inside):
            yield group, inside - starts[group]


def field_id(field: pa.Field) -> int | None:
    """The Iceberg id that a Parquet column carries."""
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def project(batch: pa.RecordBatch, fields: Sequence[Field]) -> list[pa.Array]:
    """These columns of rows of a data file, found by field id, as the table has them now.

    A column or a member that the file does not have is null, or its initial default.
    """
    by_id = {field_id(each): at for at, each in enumerate(batch.schema)}
    columns = []
    for each in fields:
        target = arrow_schema(Schema(0, (each,))).field(0).type
        at = by_id.get(each.id)
        columns.append(
            _default(each, target, batch.num_rows)
            if at is None
            else projected(batch.column(at), each, target)
        )
    return columns


def _column(rows: pa.Table | None, found: pa.Field | None, wanted: Field, count: int) -> pa.Array:
    target = arrow_schema(Schema(0, (wanted,))).field(0).type
    if rows is None or found is None:
        return _default(wanted, target, count)
    column = rows.column(found.name).combine_chunks()
    return projected(column, wanted, target)


def _default(field: Field, target: pa.DataType, rows: int) -> pa.Array:
    if field.initial_default is None:
        return pa.nulls(rows, target)
    return pa.repeat(default_from_json(field.initial_default, field.type, target), rows)


def projected(array: pa.Array, wanted: Field, target: pa.DataType) -> pa.Array:
    """Values with the table's current names and types; members are matched by id."""
    match wanted.type:
        case Struct(members):
            inside = {field_id(array.type.field(at)): at for at in range(array.type.num_fields)}
            visible = array.flatten()
            inner = [
                projected(visible[inside[member.id]], member, target.field(at).type)
                if member.id in inside
                else _default(member, target.field(at).type, len(array))
                for at, member in enumerate(members)
            ]
            fields = [target.field(at) for at in range(target.num_fields)]
            return pa.StructArray.from_arrays(inner, fields=fields, mask=null_mask(array))
        case List(element):
            return rebuild_list(array, target, _projecting(element, target.value_type))
        case Map(key, value):
            keys = _projecting(key, target.key_type)
            return rebuild_map(array, target, keys, _projecting(value, target.item_type))
        case _:
            return widened(array, target)


def _projecting(wanted: Field, target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: projected(array, wanted, target)


def widened(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Plain values in a type that takes all of them."""
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if plain.type == target:
        return plain
    if pa.types.is_timestamp(plain.type) and plain.type.unit == getattr(target, "unit", None):
        # The same instants; only the name of the time zone may differ.
        return plain.view(target)
    return plain.cast(target)
