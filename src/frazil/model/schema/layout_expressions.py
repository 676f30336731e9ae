"""Partitioning and sorting as people write it: ``day(created_at)``, ``name desc``.

Text is read without knowing the table; a plan is made once its schema is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import ConfigError
from frazil.model.schema.partitioning import (
    UNPARTITIONED,
    UNSORTED,
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    Transform,
    TransformKind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.schema.types import Schema

# Quoted as SQL quotes it, by either sign; the sign itself is doubled inside.
_COLUMN = r'(?P<column>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\s(),"`]+)'
_CALL = re.compile(
    rf"(?P<name>[a-zA-Z]+)\s*\(\s*(?:(?P<argument>[0-9]{{1,10}})\s*,\s*)?{_COLUMN}\s*\)"
)
_PLAIN = re.compile(_COLUMN)
_QUOTES = ('"', "`")
_DIRECTION = re.compile(
    r"(?P<term>.*?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?",
    re.IGNORECASE | re.DOTALL,
)
# Iceberg keeps the width of bucket and truncate in a signed 32-bit integer.
_WIDEST = 2**31 - 1
_WITH_WIDTH = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})
_EXPECTED = (
    "a column, or one of identity(c), year(c), month(c), day(c), hour(c), bucket(n, c), "
    "truncate(n, c), void(c)"
)
# What Iceberg itself calls the partition field of a column.
_SUFFIXES = {TransformKind.TRUNCATE: "trunc", TransformKind.VOID: "null"}
# Iceberg numbers partition fields from here, apart from columns.
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True, slots=True)
class TransformedColumn:
    """A column by its name, and what is done to it."""

    column: str
    transform: Transform


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One part of a sort order."""

    by: TransformedColumn
    descending: bool
    nulls_first: bool


def parse_partition_term(text: str) -> TransformedColumn:
    """Read one partition expression; raises ValueError on anything Iceberg does not know."""
    plain = _PLAIN.fullmatch(text.strip())
    if plain is not None:
        return TransformedColumn(_unquoted(plain["column"]), Transform(TransformKind.IDENTITY))
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"].lower() not in set(TransformKind):
        raise ValueError(_EXPECTED)
    kind = TransformKind(call["name"].lower())
    width = int(call["argument"] or 0)
    is_wide = call["argument"] is not None
    if is_wide != (kind in _WITH_WIDTH) or (is_wide and not 0 < width <= _WIDEST):
        raise ValueError(_EXPECTED)
    return TransformedColumn(_unquoted(call["column"]), Transform(kind, width))


def quoted_if_odd(name: str) -> str:
    """The name as an expression must spell it."""
    is_plain = _PLAIN.fullmatch(name) is not None and name[0] not in _QUOTES
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def parse_sort_term(text: str) -> SortTerm:
    """Read one sort expression with an optional direction; nulls come first unless descending."""
    match = _DIRECTION.fullmatch(text.strip())
    if match is None:
        raise ValueError(_EXPECTED)
    descending = (match["way"] or "asc").lower() == "desc"
    nulls = (match["nulls"] or ("last" if descending else "first")).lower()
    return SortTerm(parse_partition_term(match["term"]), descending, nulls == "first")


def plan_partition_spec(expressions: Sequence[str], schema: Schema) -> PartitionSpec:
    """The partitioning of these expressions, with the names Iceberg gives its fields.

    Raises ConfigError for a column that the schema does not have, and
    UnsupportedSchemaChangeError for a transform that its type does not take.
    """
    fields = []
    for number, text in enumerate(expressions):
        term = parse_partition_term(text)
        name = _field_name(term)
        source = _column_id(term, schema)
        fields.append(PartitionField(source, _FIRST_PARTITION_ID + number, name, term.transform))
    spec = PartitionSpec(0, tuple(fields)) if fields else UNPARTITIONED
    spec.check(schema)
    return spec


def plan_sort_order(expressions: Sequence[str], schema: Schema) -> SortOrder:
    """The sort order of these expressions; raises ConfigError for an unknown column."""
    terms = [parse_sort_term(text) for text in expressions]
    fields = tuple(
        SortField(
            _column_id(term.by, schema),
            term.by.transform,
            descending=term.descending,
            nulls_first=term.nulls_first,
        )
        for term in terms
    )
    # Order 0 is Iceberg's name for no order at all.
    return SortOrder(1, fields) if fields else UNSORTED


def _unquoted(text: str) -> str:
    sign = text[0]
    return text[1:-1].replace(sign * 2, sign) if sign in _QUOTES else text


def _field_name(term: TransformedColumn) -> str:
    kind = term.transform.kind
    if kind is TransformKind.IDENTITY:
        return term.column
    return f"{term.column}_{_SUFFIXES.get(kind, kind.value)}"


def _column_id(term: TransformedColumn, schema: Schema) -> int:
    column = schema.by_name(term.column)
    if column is None:
        known = ", ".join(field.name for field in schema.fields)
        message = f"there is no column {term.column!r} to partition or sort by; there are: {known}."
        raise ConfigError(message)
    return column.field.id
