"""How a table's rows are spread over partitions, and sorted, as Iceberg describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    from frazil.model.schema.types import Scalar, Schema

# Iceberg keeps the width of bucket and truncate in a signed 32-bit integer.
_WIDEST = 2**31 - 1
_WITH_WIDTH = re.compile(r"(bucket|truncate)\[(\d{1,10})\]")


class TransformKind(StrEnum):
    """What is done to a column to get its partition value."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"
    VOID = "void"


_TIMESTAMPS = frozenset(
    {
        Primitive.TIMESTAMP,
        Primitive.TIMESTAMPTZ,
        Primitive.TIMESTAMP_NS,
        Primitive.TIMESTAMPTZ_NS,
    }
)
_DATES = _TIMESTAMPS | {Primitive.DATE}
_NEVER_BUCKETED = frozenset({Primitive.BOOLEAN, Primitive.FLOAT, Primitive.DOUBLE})
_TRUNCATED = frozenset({Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.BINARY})


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform; ``width`` belongs to bucket and truncate and is zero elsewhere."""

    kind: TransformKind
    width: int = 0

    def __str__(self) -> str:
        return f"{self.kind}[{self.width}]" if self.width else str(self.kind)

    @property
    def preserves_order(self) -> bool:
        """Whether a larger value never has a smaller partition value."""
        return self.kind not in {TransformKind.BUCKET, TransformKind.VOID}

    def accepts(self, source: Scalar) -> bool:
        """Whether Iceberg applies it to this type."""
        match self.kind:
            case TransformKind.YEAR | TransformKind.MONTH | TransformKind.DAY:
                return source in _DATES
            case TransformKind.HOUR:
                return source in _TIMESTAMPS
            case TransformKind.BUCKET:
                return source not in _NEVER_BUCKETED
            case TransformKind.TRUNCATE:
                return source in _TRUNCATED or isinstance(source, Decimal)
            case _:
                return True

    def result(self, source: Scalar) -> Scalar:
        """The type of the partition value."""
        match self.kind:
            case TransformKind.IDENTITY | TransformKind.TRUNCATE | TransformKind.VOID:
                return source
            case TransformKind.DAY:
                return Primitive.DATE
            case _:
                return Primitive.INT


def parse_transform(text: str) -> Transform:
    """Read a transform as Iceberg prints it; an unknown one is refused by name."""
    match = _WITH_WIDTH.fullmatch(text)
    if match is not None and 0 < int(match[2]) <= _WIDEST:
        return Transform(TransformKind(match[1]), int(match[2]))
    plain = set(TransformKind) - {TransformKind.BUCKET, TransformKind.TRUNCATE}
    if text in plain:
        return Transform(TransformKind(text))
    message = f"the partition transform {text[:60]!r} is not supported"
    raise UnsupportedSchemaChangeError(message)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One part of a partition: a column, by id, and what is done to it."""

    source_id: int
    field_id: int
    name: str
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A way of partitioning; without fields the table is not partitioned."""

    spec_id: int = 0
    fields: tuple[PartitionField, ...] = ()

    def check(self, schema: Schema) -> None:
        """Refuse a source that the schema does not have or the transform does not take."""
        for each in self.fields:
            if each.transform.kind is TransformKind.VOID:
                # Nothing is read: the column may be gone.
                continue
            column = schema.by_id(each.source_id)
            if column is None or column.repeated:
                message = f"partition field {each.name!r}: the schema has no column for it"
                raise UnsupportedSchemaChangeError(message)
            source = column.field.type
            if not isinstance(source, Primitive | Fixed | Decimal) or not each.transform.accepts(
                source
            ):
                message = (
                    f"partition field {each.name!r}: {each.transform} is not applied to {source}"
                )
                raise UnsupportedSchemaChangeError(message)


UNPARTITIONED = PartitionSpec()

# From here on a merge reports that there are many: each one has a file of its own.
MANY_PARTITIONS = 4_096
# What ten years of times fall into; of hours, single values and prefixes the number is unknown.
_YEARS = 10
_CALENDAR = {
    TransformKind.YEAR: _YEARS,
    TransformKind.MONTH: 12 * _YEARS,
    TransformKind.DAY: 366 * _YEARS,
    TransformKind.VOID: 1,
}


def expected_partitions(spec: PartitionSpec, rows: int) -> int:
    """How many partitions so many rows may fall into, where nothing is known of their values."""
    partitions = 1
    for each in spec.fields:
        kind = each.transform.kind
        width = each.transform.width if kind is TransformKind.BUCKET else rows
        partitions *= max(_CALENDAR.get(kind, width), 1)
    return min(partitions, rows) if spec.fields else 1


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of a sort order."""

    source_id: int
    transform: Transform
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A way of sorting; without fields the rows lie as they came."""

    order_id: int = 0
    fields: tuple[SortField, ...] = ()


UNSORTED = SortOrder()
