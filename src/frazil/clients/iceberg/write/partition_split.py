"""Splits a batch into its partitions, without a loop over rows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.write.partition_values import transform_values
from frazil.errors import UnrepresentableValueError
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Nested, Primitive, children

if TYPE_CHECKING:
    import numpy.typing as npt

    from frazil.clients.iceberg.write.partition_text import PartitionValue
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.model.schema.partitioning import PartitionField, Transform
    from frazil.model.schema.types import Scalar, Schema

_FLOAT_BITS = {Primitive.FLOAT: pa.int32(), Primitive.DOUBLE: pa.int64()}
_FLOAT_TYPES = {Primitive.FLOAT: pa.float32(), Primitive.DOUBLE: pa.float64()}


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one partition: ``rows`` are their indices in the batch, in order."""

    partition: tuple[PartitionValue, ...]
    rows: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    path: tuple[int, ...]
    source: Scalar
    transform: Transform


class PartitionSplitter:
    """Applies the partition transforms of a table."""

    def __init__(self, target: WriteTarget) -> None:
        target.spec.check(target.schema)
        types = target.partition_types
        self._sources = [
            _source(field, type_, target.schema)
            for field, type_ in zip(target.spec.fields, types, strict=True)
        ]

    def split(self, batch: pa.RecordBatch) -> list[Part]:
        """The parts of a non-empty batch, in the order of their first values."""
        codes = np.zeros(batch.num_rows, np.int64)
        columns: list[tuple[npt.NDArray[np.int64], list[PartitionValue]]] = []
        for source in self._sources:
            own, values = _encoded(_values(batch, source), source)
            columns.append((own, values))
            if len(values) > 1:
                # Made dense after each column, so that the product never overflows.
                codes = np.unique(codes * len(values) + own, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        cuts = np.flatnonzero(np.diff(codes[order])) + 1
        return [
            Part(tuple(values[int(own[rows[0]])] for own, values in columns), rows)
            for rows in np.split(order, cuts)
        ]


def _source(field: PartitionField, type_: Scalar, schema: Schema) -> _Source:
    column = schema.by_id(field.source_id)
    if column is None or field.transform.kind is TransformKind.VOID:
        return _Source(field.name, (), type_, field.transform)
    siblings = schema.fields
    path = []
    for each in column.path:
        path.append([sibling.id for sibling in siblings].index(each.id))
        siblings = children(each.type)
    found = column.field.type
    return _Source(
        field.name, tuple(path), type_ if isinstance(found, Nested) else found, field.transform
    )


def _values(batch: pa.RecordBatch, source: _Source) -> pa.Array:
    if not source.path:
        return pa.nulls(batch.num_rows, pa.int32())
    column = batch.column(source.path[0])
    if source.path[1:]:
        column = pc.struct_field(column, source.path[1:])
    return transform_values(column, source.source, source.transform)


def _encoded(
    values: pa.Array, source: _Source
) -> tuple[npt.NDArray[np.int64], list[PartitionValue]]:
    """A code for each row, and the value behind each code."""
    bits = _FLOAT_BITS.get(source.source) if isinstance(source.source, Primitive) else None
    if bits is not None and pa.types.is_floating(values.type):
        _check_finite(values, source.name)
        # By their bits: readers return the partition's value, so the sign of zero matters.
        values = values.view(bits)
    encoded = values.dictionary_encode(null_encoding="encode")
    dictionary = encoded.dictionary
    if bits is not None:
        dictionary = dictionary.view(_FLOAT_TYPES[Primitive(str(source.source))])
    found: list[PartitionValue] = dictionary.to_pylist()
    if source.source is Primitive.UUID and source.transform.kind is TransformKind.IDENTITY:
        found = [uuid.UUID(bytes=each) if isinstance(each, bytes) else each for each in found]
    return np.asarray(encoded.indices).astype(np.int64), found


def _check_finite(values: pa.Array, name: str) -> None:
    finite = pc.sum(pc.is_finite(values)).as_py() or 0
    strange = len(values) - values.null_count - finite
    if strange:
        message = f"partition field {name!r}: {strange} values are NaN or infinite"
        raise UnrepresentableValueError(message)
