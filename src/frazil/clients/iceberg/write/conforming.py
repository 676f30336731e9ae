"""Converts batches to a table's schema, or refuses them with the column and a count.

Batches of Spark and others differ from what a data file needs: names, time zones, widths,
fixed-size values as plain bytes, UUIDs as text. Only lossless conversions are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.clients.iceberg.write.arrow_schema import parquet_name
from frazil.codec.pgtext.grammar import NotAsPrintedError
from frazil.codec.pgtext.scalars import read_uuids
from frazil.errors import UnrepresentableValueError
from frazil.model.schema.types import List, Map, Primitive, Struct, children

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.model.schema.types import Field, Schema

    Convert = Callable[[pa.Array], pa.Array]

_WIDENINGS = frozenset(
    {
        *((narrow, pa.int32()) for narrow in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())),
        *((narrow, pa.int64()) for narrow in (pa.int8(), pa.int16(), pa.int32(), pa.uint32())),
        (pa.float32(), pa.float64()),
        *((wide, pa.string()) for wide in (pa.large_string(), pa.string_view())),
        *((wide, pa.binary()) for wide in (pa.large_binary(), pa.binary_view())),
    }
)


def conform(batch: pa.RecordBatch, schema: Schema, target: pa.Schema) -> pa.RecordBatch:
    """The same rows under the target's schema; columns are matched by name.

    Raises UnrepresentableValueError for a column that is missing, unknown, of another type, or
    null where it must not be.
    """
    names = batch.schema.names
    wanted = [each.name for each in schema.fields]
    if len(set(names)) != len(names) or set(names) != set(wanted):
        missing = sorted(set(wanted) - set(names))
        surplus = sorted(set(names) - set(wanted))
        message = f"the batch lacks columns {missing} and has {surplus} that the table lacks"
        raise UnrepresentableValueError(message)
    columns = [
        _fit(batch.column(names.index(field.name)), field, target.field(index).type, field.name)
        for index, field in enumerate(schema.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def finished(rows: pa.Table, schema: Schema, target: pa.Schema) -> pa.Table:
    """Conformed rows with the types that only Parquet files need."""
    columns = [
        column
        if column.type == target.field(index).type
        else pa.chunked_array(
            [_fit(chunk, field, target.field(index).type, field.name) for chunk in column.chunks]
        )
        for index, (column, field) in enumerate(zip(rows.columns, schema.fields, strict=True))
    ]
    return pa.Table.from_arrays(columns, schema=target)


def _fit(
    array: pa.Array, field: Field, wanted: pa.DataType, name: str, *, masked: int = 0
) -> pa.Array:
    """The values in the wanted type; ``masked`` of the nulls come from a null parent."""
    nulls = array.null_count - masked
    if field.required and nulls:
        raise _malformed(name, nulls, "are null, which the table does not allow")
    fitted = _retyped(array, field, wanted, name)
    # A required field must not be null where its parent struct is null.
    return _without_nulls(fitted) if field.required and fitted.null_count else fitted


def _retyped(array: pa.Array, field: Field, wanted: pa.DataType, name: str) -> pa.Array:
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == wanted and not any(_may_break(each) for each in children(field.type)):
        return array
    match field.type:
        case _ if pt.is_null(array.type):
            return pa.nulls(len(array), wanted)
        case Struct() if pt.is_struct(array.type):
            return _fit_struct(array, field, wanted, name)
        case List(element) if pt.is_list(array.type) or pt.is_large_list(array.type):
            inner = _fitting(element, wanted.value_type, f"{name}.element")
            return rebuild_list(array, wanted, inner)
        case Map(key, value) if pt.is_map(array.type):
            keys = _fitting(key, wanted.key_type, f"{name}.key")
            items = _fitting(value, wanted.item_type, f"{name}.value")
            return rebuild_map(array, wanted, keys, items)
        case _:
            return _fit_scalar(array, field, wanted, name)


def _fitting(field: Field, wanted: pa.DataType, name: str) -> Callable[[pa.Array], pa.Array]:
    return lambda array: _fit(array, field, wanted, name)


def _may_break(field: Field) -> bool:
    return field.required or any(_may_break(each) for each in children(field.type))


def _fit_struct(array: pa.Array, field: Field, wanted: pa.DataType, name: str) -> pa.Array:
    members = children(field.type)
    found = [array.type.field(index).name for index in range(array.type.num_fields)]
    if found == [parquet_name(each.name) for each in members]:
        found = [each.name for each in members]
    if sorted(found) != sorted(each.name for each in members):
        raise _misfit(array, field, name)
    # Flattened, a member is null where the struct is: hidden values do not count.
    visible = array.flatten()
    inner = [
        _fit(
            visible[found.index(each.name)],
            each,
            wanted.field(at).type,
            f"{name}.{each.name}",
            masked=array.null_count,
        )
        for at, each in enumerate(members)
    ]
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    return pa.StructArray.from_arrays(inner, fields=fields, mask=null_mask(array))


def _without_nulls(array: pa.Array) -> pa.Array:
    """The same values without a null mask, which exposes hidden values."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _without_nulls(array.storage))
    if pt.is_struct(array.type):
        fields = [array.type.field(index) for index in range(array.type.num_fields)]
        inner = [array.field(index) for index in range(len(fields))]
        return pa.StructArray.from_arrays(inner, fields=fields)
    if pt.is_map(array.type):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, array.type)
    if pt.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, array.values, array.type)
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset)


def _fit_scalar(array: pa.Array, field: Field, wanted: pa.DataType, name: str) -> pa.Array:
    if (array.type, wanted) in _WIDENINGS or _widens_decimal(array.type, wanted):
        try:
            return array.cast(wanted)
        except pa.ArrowInvalid:
            # Arrow's own message shows the value.
            raise _misfit(array, field, name) from None
    if pt.is_timestamp(wanted) and pt.is_timestamp(array.type):
        if array.type.unit == wanted.unit and (array.type.tz is None) == (wanted.tz is None):
            return array.view(wanted)
        raise _misfit(array, field, name)
    if wanted == pa.uuid():
        return pa.ExtensionArray.from_storage(wanted, array)
    if field.type is Primitive.UUID:
        return _fit_uuid(array, field, name)
    if pt.is_fixed_size_binary(wanted) and pt.is_binary(array.type):
        return _fit_fixed(array, wanted, name)
    raise _misfit(array, field, name)


def _widens_decimal(found: pa.DataType, wanted: pa.DataType) -> bool:
    if not pt.is_decimal(found) or not pt.is_decimal(wanted):
        return False
    return bool(found.scale == wanted.scale and found.precision <= wanted.precision)


def _fit_uuid(array: pa.Array, field: Field, name: str) -> pa.Array:
    if array.type == pa.uuid():
        return array.storage
    if pt.is_string(array.type) or pt.is_large_string(array.type):
        try:
            return read_uuids(array.cast(pa.string())).values
        except NotAsPrintedError as error:
            raise _malformed(name, error.count, "are not uuids") from None
    if pt.is_binary(array.type):
        return _fit_fixed(array, pa.binary(16), name)
    raise _misfit(array, field, name)


def _fit_fixed(array: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    values = array.drop_null()
    lengths = np.asarray(pc.binary_length(values))
    misfits = int(np.count_nonzero(lengths != wanted.byte_width))
    if misfits:
        raise _malformed(name, misfits, f"are not {wanted.byte_width} bytes long")
    return array.cast(wanted)


def _misfit(array: pa.Array, field: Field, name: str) -> UnrepresentableValueError:
    message = (
        f"column {name!r} is {field.type} in the table, "
        f"but {len(array)} values came as {array.type}"
    )
    return UnrepresentableValueError(message)


def _malformed(name: str, count: int, what: str) -> UnrepresentableValueError:
    message = f"column {name!r}: {count} values {what}"
    return UnrepresentableValueError(message)


def rebuild_list(array: pa.Array, wanted: pa.DataType, element: Convert) -> pa.Array:
    """The same lists with converted elements; values hidden under a null list are dropped."""
    offsets, values = _visible(array, array.values)
    return pa.ListArray.from_arrays(offsets, element(values), wanted, mask=null_mask(array))


def rebuild_map(array: pa.Array, wanted: pa.DataType, key: Convert, item: Convert) -> pa.Array:
    """The same maps with other keys and values; likewise."""
    offsets, keys = _visible(array, array.keys)
    items = item(_visible(array, array.items)[1])
    return pa.MapArray.from_arrays(offsets, key(keys), items, wanted, mask=null_mask(array))


def map_as_lists(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A map's keys and its values, as lists of their own."""
    mask = null_mask(array)
    pairs = (_visible(array, inner) for inner in (array.keys, array.items))
    keys, items = (pa.ListArray.from_arrays(*each, mask=mask) for each in pairs)
    return keys, items


def null_mask(array: pa.Array) -> pa.Array | None:
    """Where the array is null; None where it is not."""
    return array.is_null() if array.null_count else None


def _visible(array: pa.Array, inner: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The inner values that are not under a null, and the offsets of the lists among them.

    Arrow's own ``flatten`` does not support maps, or extension types if all lists are null.
    """
    # An array without rows may have no offsets, and Arrow would read arbitrary memory.
    offsets = np.asarray(array.offsets) if len(array) else np.zeros(1, np.int32)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), 0, lengths)
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    first, count = int(offsets[0]), int(begins[-1])
    if count == int(offsets[-1]) - first:
        return pa.array(begins), inner.slice(first, count)
    # From each list's own beginning on, one by one.
    at = np.arange(count) + np.repeat(offsets[:-1] - begins[:-1], lengths)
    return pa.array(begins), inner.take(pa.array(at))
