"""The column metrics of a data file for its manifest, equal to those of Iceberg's own writer.

Counts and bounds come from the Parquet footer, which is exact for most types. What it lacks is
computed from the rows: NaN counts, the sign of zero, and bounds of very long values. The table's
properties say which columns get metrics, and how long their bounds may be.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.schema.types import Decimal, Nested, Primitive, Struct, children

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.model.schema.partitioning import SortOrder
    from frazil.model.schema.types import Column, Field, Schema, Type

# Arrow leaves bounds longer than this out of the footer.
_LONGEST_FOOTER_BOUND = 4096
_BITS = {Primitive.FLOAT: np.int32, Primitive.DOUBLE: np.int64}
_LONG_VALUES = frozenset({Primitive.STRING, Primitive.BINARY})
# As Parquet's footer gives them: numbers as numbers, everything else as bytes.
Bound = bool | int | float | bytes

_FORMATS = {
    Primitive.BOOLEAN: "<?",
    Primitive.INT: "<i",
    Primitive.DATE: "<i",
    Primitive.FLOAT: "<f",
    Primitive.DOUBLE: "<d",
}
_LAST_BEFORE_SURROGATES = 0xD7FF
_FIRST_AFTER_SURROGATES = 0xE000
_LAST_CODE_POINT = 0x10FFFF
_LAST_BYTE = 0xFF
# The length of bounds in characters or bytes; zero in the mode ``counts``.
COUNTS_ONLY = 0
FULL = 2**31 - 1

_DEFAULT_PROPERTY = "write.metadata.metrics.default"
_COLUMN_PREFIX = "write.metadata.metrics.column."
_LIMIT_PROPERTY = "write.metadata.metrics.max-inferred-column-defaults"
_DEFAULT_LENGTH = 16
_DEFAULT_LIMIT = 100
_TRUNCATE = re.compile(r"truncate\((\d{1,10})\)")

# The mode ``none``.
_NOTHING = None


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


def serialised(value: Bound, type_: Type) -> bytes:
    """The single-value form of a bound, not truncated."""
    if isinstance(type_, Decimal):
        # The fewest bytes that include the sign.
        number = int(value)
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1
        return number.to_bytes(size, "big", signed=True)
    if isinstance(value, bytes):
        return value
    form = _FORMATS.get(type_, "<q") if isinstance(type_, Primitive) else "<q"
    return struct.pack(form, value)


def lower_bound(value: Bound, type_: Type, length: int) -> bytes:
    """At most ``length`` characters or bytes, and not above the value."""
    if isinstance(value, bytes) and type_ is Primitive.STRING:
        return value.decode("utf-8", "replace")[:length].encode()
    if isinstance(value, bytes) and type_ is Primitive.BINARY:
        return value[:length]
    return serialised(value, type_)


def upper_bound(value: Bound, type_: Type, length: int) -> bytes | None:
    """At most ``length`` characters or bytes, and not below the value; None if there is none."""
    if isinstance(value, bytes) and type_ is Primitive.STRING:
        text = value.decode("utf-8", "replace")
        shortened = text if len(text) <= length else _next_text(text[:length])
        return None if shortened is None else shortened.encode()
    if isinstance(value, bytes) and type_ is Primitive.BINARY:
        return value if len(value) <= length else _next_bytes(value[:length])
    return serialised(value, type_)


def _next_text(text: str) -> str | None:
    """The smallest text of this length or less that is above all that begin with it."""
    kept = text.rstrip(chr(_LAST_CODE_POINT))
    if not kept:
        return None
    last = ord(kept[-1])
    raised = _FIRST_AFTER_SURROGATES if last == _LAST_BEFORE_SURROGATES else last + 1
    return kept[:-1] + chr(raised)


def _next_bytes(data: bytes) -> bytes | None:
    kept = data.rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def bound_lengths(
    schema: Schema, properties: Mapping[str, str], order: SortOrder
) -> dict[int, int]:
    """The length of bounds by field id, for every stored field that gets metrics at all.

    As in Iceberg, an invalid mode is treated as the default.
    """
    configured = properties.get(_DEFAULT_PROPERTY)
    limit = _limit(properties)
    modes: dict[str, int | None] = {}
    default: int | None = _DEFAULT_LENGTH
    if configured is not None:
        default = _parse(configured, _DEFAULT_LENGTH)
    elif _inferred_fields(schema) > limit:
        default = _NOTHING
        chosen = _first_fields(schema.fields, limit)
        modes = {each.name: _DEFAULT_LENGTH for each in schema.columns() if each.field.id in chosen}
    for name in _sorted_columns(schema, order):
        modes[name] = default or _DEFAULT_LENGTH
    for key, value in properties.items():
        if key.startswith(_COLUMN_PREFIX):
            modes[key.removeprefix(_COLUMN_PREFIX)] = _parse(value, default)
    lengths = {each.field.id: modes.get(each.name, default) for each in schema.leaves()}
    return {field_id: length for field_id, length in lengths.items() if length is not None}


def _parse(text: str, fallback: int | None) -> int | None:
    mode = text.lower()
    match = _TRUNCATE.fullmatch(mode)
    if match is not None and 0 < int(match[1]) <= FULL:
        return int(match[1])
    return {"none": _NOTHING, "counts": COUNTS_ONLY, "full": FULL}.get(mode, fallback)


def _limit(properties: Mapping[str, str]) -> int:
    text = properties.get(_LIMIT_PROPERTY, "")
    return int(text) if text.isdecimal() else _DEFAULT_LIMIT


def _inferred_fields(schema: Schema) -> int:
    # Iceberg counts stored fields and their parent structs, not lists and maps.
    return sum(each.is_leaf or isinstance(each.field.type, Struct) for each in schema.columns())


def _sorted_columns(schema: Schema, order: SortOrder) -> list[str]:
    columns = (
        schema.by_id(each.source_id) for each in order.fields if each.transform.preserves_order
    )
    return [each.name for each in columns if each is not None]


def _first_fields(fields: tuple[Field, ...], limit: int) -> set[int]:
    """The first stored fields, level by level inside each struct, as Iceberg picks them."""
    chosen: set[int] = set()
    _choose(fields, limit, chosen)
    return chosen


def _choose(fields: tuple[Field, ...], limit: int, chosen: set[int]) -> None:
    stored = (each.id for each in fields if not isinstance(each.type, Nested))
    for field_id in stored:
        if len(chosen) < limit:
            chosen.add(field_id)
    for each in fields:
        if len(chosen) < limit:
            _choose(children(each.type), limit, chosen)
