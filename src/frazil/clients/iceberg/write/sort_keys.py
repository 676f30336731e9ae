"""A table's sort order over Arrow batches, exactly as Iceberg defines it.

Arrow puts nulls and NaN at one end, whatever the direction. So each part of the order becomes
columns that Arrow sorts as Iceberg would: whether there is a value, and the transformed value,
with floating-point numbers as integers of the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.write.partition_values import column_at, transform_values
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    import numpy.typing as npt

    from frazil.model.schema.partitioning import SortOrder, Transform
    from frazil.model.schema.types import Scalar, Schema

# The integers with the bits of such numbers, and the largest of them.
_BITS = {pa.float32(): ("<i4", 2**31 - 1), pa.float64(): ("<i8", 2**63 - 1)}


@dataclass(frozen=True, slots=True)
class _SortedColumn:
    path: tuple[int, ...]
    type: Scalar
    transform: Transform
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class SortKeys:
    """What rows of one schema are compared by."""

    columns: tuple[_SortedColumn, ...]

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The comparable columns of these rows."""
        arrays = []
        for each in self.columns:
            values = transform_values(column_at(rows, each.path), each.type, each.transform)
            comparable = _comparable(values)
            if each.nulls_first:
                arrays.append(comparable.is_valid())
            arrays.append(comparable)
        return pa.RecordBatch.from_arrays(arrays, [str(at) for at in range(len(arrays))])

    def order(self, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """The row numbers in order; rows that compare equal stay as they are.

        Arrow puts nulls at the end, in both directions.
        """
        ways: list[str] = []
        for each in self.columns:
            if each.nulls_first:
                ways.append("ascending")
            ways.append("descending" if each.descending else "ascending")
        sort_keys = [(str(at), way) for at, way in enumerate(ways)]
        return np.asarray(pc.sort_indices(keys, sort_keys=sort_keys))


def plan_sort_keys(schema: Schema, order: SortOrder) -> SortKeys | None:
    """The order as far as it compares anything; None if the schema lacks one of its columns."""
    columns = []
    for each in order.fields:
        if each.transform.kind is TransformKind.VOID:
            # Null in every row.
            continue
        found = schema.by_id(each.source_id)
        if found is None or found.repeated:
            return None
        type_ = found.field.type
        if not isinstance(type_, Primitive | Fixed | Decimal) or not each.transform.accepts(type_):
            return None
        path = schema.numbers_of(found)
        columns.append(
            _SortedColumn(path, type_, each.transform, each.descending, each.nulls_first)
        )
    return SortKeys(tuple(columns)) if columns else None


def _comparable(values: pa.Array) -> pa.Array:
    """Numbers with a fraction as integers: -NaN, -Infinity, ..., -0, 0, ..., Infinity, NaN."""
    if values.type not in _BITS:
        return values
    integer, largest = _BITS[values.type]
    bits = np.asarray(pc.fill_null(values, 0.0)).view(integer)
    # Of negative numbers the larger bits are the smaller number.
    ordered = np.where(bits < 0, bits ^ largest, bits)
    return pa.array(ordered, mask=np.asarray(values.is_null()))
