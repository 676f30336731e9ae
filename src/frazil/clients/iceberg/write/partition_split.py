"""Splits batches into their partitions, without a loop over rows, and spills those of many."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.write.local_spill import LocalSpill
from frazil.clients.iceberg.write.partition_values import column_at, transform_values
from frazil.errors import UnrepresentableValueError
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Nested, Primitive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    found = column.field.type
    source = type_ if isinstance(found, Nested) else found
    return _Source(field.name, schema.numbers_of(column), source, field.transform)


def _values(batch: pa.RecordBatch, source: _Source) -> pa.Array:
    if not source.path:
        return pa.nulls(batch.num_rows, pa.int32())
    return transform_values(column_at(batch, source.path), source.source, source.transform)


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


@dataclass(frozen=True, slots=True)
class SpilledRows:
    """Rows of one partition in one batch: ``row_indices`` are relative to the batch."""

    partition: tuple[PartitionValue, ...]
    rows: pa.RecordBatch
    batch: int
    row_indices: npt.NDArray[np.int64]


class PartitionSpill:
    """Takes batches, returns partitions; memory depends on the number of parts, not of bytes.

    A task gets its rows in the order of their keys, so every batch has rows of nearly every
    partition. Thousands of open files would need memory for each of them, or a small file for each
    batch and partition. So rows go to a local file, and are written partition by partition.
    """

    def __init__(self, schema: pa.Schema, *, table: str) -> None:
        self._partitions: dict[object, int] = {}
        self._values: list[tuple[PartitionValue, ...]] = []
        # For each batch: the partition of each part, where the parts begin, and the original
        # indices of the rows.
        self._numbers: list[npt.NDArray[np.int64]] = []
        self._starts: list[npt.NDArray[np.int64]] = []
        self._row_indices: list[npt.NDArray[np.int64]] = []
        self._spill = LocalSpill(schema, table=table, content="rows of many partitions")

    def add(self, batch: pa.RecordBatch, parts: Sequence[tuple[object, Part]]) -> None:
        """Spill the rows of a batch; each part comes with the identity of its partition."""
        for key, part in parts:
            if key not in self._partitions:
                self._partitions[key] = len(self._values)
                self._values.append(part.partition)
        row_indices = np.concatenate([part.rows for _, part in parts])
        lengths = [len(part.rows) for _, part in parts]
        self._numbers.append(np.array([self._partitions[key] for key, _ in parts], np.int64))
        self._starts.append(np.concatenate(([0], np.cumsum(lengths))))
        self._row_indices.append(row_indices)
        self._spill.write(batch.take(pa.array(row_indices)))

    def drain(self) -> Iterator[list[SpilledRows]]:
        """All rows, one partition after the other; nothing is kept afterwards."""
        batches = self._spill.load()
        counts = [len(each) for each in self._numbers]
        numbers = np.concatenate(self._numbers)
        owners = np.repeat(np.arange(len(counts)), counts)
        parts = np.concatenate([np.arange(count) for count in counts])
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for of_partition in np.split(order, cuts):
            partition = self._values[int(numbers[of_partition[0]])]
            yield [
                self._piece(batches, int(owners[at]), int(parts[at]), partition)
                for at in of_partition
            ]
        self.discard()

    def discard(self) -> None:
        """Free the disk space; idempotent, and raises nothing."""
        self._spill.discard()

    def _piece(
        self,
        batches: Sequence[pa.RecordBatch],
        batch: int,
        part: int,
        partition: tuple[PartitionValue, ...],
    ) -> SpilledRows:
        first, until = (int(each) for each in self._starts[batch][part : part + 2])
        # Copied: empty lists read from a file have no offsets, which Arrow's nbytes would read.
        rows = pa.concat_batches([batches[batch].slice(first, until - first)])
        return SpilledRows(partition, rows, batch, self._row_indices[batch][first:until])
