"""The column metrics of a data file for its manifest, equal to those of Iceberg's own writer.

Counts and bounds come from the Parquet footer, which is exact for most types. What it lacks is
computed from the rows: NaN counts, the sign of zero, and bounds of very long values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clients.iceberg.write.bound_values import lower_bound, upper_bound
from frazil.clients.iceberg.write.metrics_modes import COUNTS_ONLY
from frazil.model.schema.types import Decimal, Primitive, children

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.clients.iceberg.write.bound_values import Bound
    from frazil.model.schema.types import Column, Schema, Type

# Arrow leaves bounds longer than this out of the footer.
_LONGEST_FOOTER_BOUND = 4096
_BITS = {Primitive.FLOAT: np.int32, Primitive.DOUBLE: np.int64}
_LONG_VALUES = frozenset({Primitive.STRING, Primitive.BINARY})


@dataclass(slots=True)
class ColumnMetrics:
    """Sizes, counts and serialised bounds by field id."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_counts: dict[int, int] = field(default_factory=dict)
    nan_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A stored field: its path in a batch, and its column in the footer."""

    id: int
    type: Type
    path: tuple[int, ...]
    column_index: int
    repeated: bool


@dataclass(slots=True)
class _Floats:
    """What the footer lacks for a float column."""

    nans: int = 0
    negative_zero: bool = False
    positive_zero: bool = False


class MetricsRecorder:
    """Observes the row groups of one file and computes its metrics at the end."""

    def __init__(self, schema: Schema, bound_lengths: Mapping[int, int]) -> None:
        self._lengths = bound_lengths
        self._leaves = [leaf for leaf in _leaves(schema) if leaf.id in bound_lengths]
        self._floats = {
            leaf.id: _Floats() for leaf in self._leaves if leaf.type in _BITS and not leaf.repeated
        }
        self._long = [
            leaf
            for leaf in self._leaves
            if leaf.type in _LONG_VALUES
            and not leaf.repeated
            and bound_lengths[leaf.id] != COUNTS_ONLY
        ]
        self._own_bounds: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._row_groups = 0

    def observe(self, row_group: pa.Table) -> None:
        """Observe the file's next row group."""
        for leaf in self._leaves:
            if leaf.id in self._floats:
                for chunk in _chunks(row_group, leaf.path):
                    _observe_floats(self._floats[leaf.id], chunk, leaf.type)
        for leaf in self._long:
            chunks = list(_chunks(row_group, leaf.path))
            if any(_longest(chunk) > _LONGEST_FOOTER_BOUND for chunk in chunks):
                extremes = pc.min_max(pa.chunked_array(chunks).cast(pa.binary()))
                bounds = (extremes["min"].as_py(), extremes["max"].as_py())
                self._own_bounds[self._row_groups, leaf.id] = bounds
        self._row_groups += 1

    def finish(self, footer: pa.FileMetaData) -> ColumnMetrics:
        """The metrics of the file with this footer."""
        metrics = ColumnMetrics()
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        for leaf in self._leaves:
            chunks = [group.column(leaf.column_index) for group in groups]
            metrics.column_sizes[leaf.id] = sum(each.total_compressed_size for each in chunks)
            # Iceberg records nothing else for fields in lists and maps.
            if not leaf.repeated:
                self._add(metrics, leaf, chunks)
        return metrics

    def _add(
        self, metrics: ColumnMetrics, leaf: _Leaf, chunks: list[pa.ColumnChunkMetaData]
    ) -> None:
        metrics.value_counts[leaf.id] = sum(each.num_values for each in chunks)
        metrics.null_counts[leaf.id] = sum(each.statistics.null_count for each in chunks)
        if leaf.id in self._floats:
            metrics.nan_counts[leaf.id] = self._floats[leaf.id].nans
        length = self._lengths[leaf.id]
        bounds = None if length == COUNTS_ONLY else self._bounds(leaf, chunks)
        if bounds is not None:
            metrics.lower_bounds[leaf.id] = lower_bound(bounds[0], leaf.type, length)
            upper = upper_bound(bounds[1], leaf.type, length)
            if upper is not None:
                metrics.upper_bounds[leaf.id] = upper

    def _bounds(
        self, leaf: _Leaf, chunks: list[pa.ColumnChunkMetaData]
    ) -> tuple[Bound, Bound] | None:
        lowers, uppers = [], []
        for group, chunk in enumerate(chunks):
            own = self._own_bounds.get((group, leaf.id))
            if own is None and not chunk.statistics.has_min_max:
                continue
            low, high = own or (chunk.statistics.min_raw, chunk.statistics.max_raw)
            lowers.append(_comparable(low, leaf.type))
            uppers.append(_comparable(high, leaf.type))
        if not lowers:
            return None
        if leaf.id in self._floats:
            return _signed(min(lowers), max(uppers), self._floats[leaf.id])
        return min(lowers), max(uppers)


def _leaves(schema: Schema) -> Iterator[_Leaf]:
    top = {each.id: index for index, each in enumerate(schema.fields)}
    for column_index, column in enumerate(schema.leaves()):
        path = () if column.repeated else (top[column.path[0].id], *_members(column))
        yield _Leaf(column.field.id, column.field.type, path, column_index, column.repeated)


def _members(column: Column) -> Iterator[int]:
    for parent, member in zip(column.path, column.path[1:], strict=False):
        yield [each.id for each in children(parent.type)].index(member.id)


def _chunks(row_group: pa.Table, path: tuple[int, ...]) -> Iterator[pa.Array]:
    for chunk in row_group.column(path[0]).chunks:
        yield pc.struct_field(chunk, path[1:]) if path[1:] else chunk


def _observe_floats(seen: _Floats, chunk: pa.Array, type_: Type) -> None:
    if not isinstance(type_, Primitive):
        return
    values = np.asarray(chunk.drop_null() if chunk.null_count else chunk)
    bits = values.view(_BITS[type_])
    seen.nans += int(np.count_nonzero(np.isnan(values)))
    seen.negative_zero = seen.negative_zero or bool((bits == np.iinfo(bits.dtype).min).any())
    seen.positive_zero = seen.positive_zero or bool((bits == 0).any())


def _longest(chunk: pa.Array) -> int:
    if len(chunk) == 0:
        return 0
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)
    own = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
    return int(np.diff(own).max()) if own[-1] - own[0] > _LONGEST_FOOTER_BOUND else 0


def _comparable(raw: Bound, type_: Type) -> Bound:
    if isinstance(type_, Decimal) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _signed(lower: Bound, upper: Bound, seen: _Floats) -> tuple[Bound, Bound]:
    """Restore the sign of zero, which the footer widens to both."""
    if lower == 0:
        lower = -0.0 if seen.negative_zero else 0.0
    if upper == 0:
        upper = 0.0 if seen.positive_zero else -0.0
    return lower, upper
