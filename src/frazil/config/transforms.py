"""Partition and sort expressions: ``day(created_at)``, ``bucket(16, id)``, ``name desc``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from frazil.config.values import Name, refuse

_COLUMN = r'(?P<column>"[^"]+"|[^\s(),"`]+)'
_CALL = re.compile(
    rf"(?P<name>[a-zA-Z]+)\s*\(\s*(?:(?P<argument>[0-9]{{1,10}})\s*,\s*)?{_COLUMN}\s*\)"
)
_PLAIN = re.compile(_COLUMN)
_DIRECTION = re.compile(
    r"(?P<term>.*?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?",
    re.IGNORECASE | re.DOTALL,
)
# Iceberg keeps the width of bucket and truncate in a signed 32-bit integer.
_WIDEST = 2**31 - 1
_WORDS = (
    "a column, or one of identity(c), year(c), month(c), day(c), hour(c), bucket(n, c), "
    "truncate(n, c), void(c)"
)


class TransformKind(StrEnum):
    """Iceberg's transforms."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"
    VOID = "void"


_WITH_WIDTH = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})


@dataclass(frozen=True, slots=True)
class Transform:
    """A column and what is done to it; ``width`` belongs to bucket and truncate only."""

    kind: TransformKind
    column: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One part of a sort order."""

    transform: Transform
    descending: bool
    nulls_first: bool


def parse_transform(text: str) -> Transform:
    """Read one partition expression; raises ValueError on anything Iceberg does not know."""
    plain = _PLAIN.fullmatch(text.strip())
    if plain is not None:
        return Transform(TransformKind.IDENTITY, plain["column"].strip('"'))
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"].lower() not in set(TransformKind):
        raise ValueError(_WORDS)
    kind = TransformKind(call["name"].lower())
    width = int(call["argument"]) if call["argument"] is not None else None
    if (kind in _WITH_WIDTH) != (width is not None) or width == 0 or (width or 0) > _WIDEST:
        raise ValueError(_WORDS)
    return Transform(kind, call["column"].strip('"'), width)


def parse_sort_term(text: str) -> SortTerm:
    """Read one sort expression with an optional direction; nulls come first unless descending."""
    match = _DIRECTION.fullmatch(text.strip())
    if match is None:
        raise ValueError(_WORDS)
    descending = (match["way"] or "asc").lower() == "desc"
    nulls = (match["nulls"] or ("last" if descending else "first")).lower()
    return SortTerm(parse_transform(match["term"]), descending, nulls == "first")


def _check_partition(text: str) -> str:
    try:
        parse_transform(text)
    except ValueError as error:
        sentence = f"must be {error}"
        raise refuse(sentence) from None
    return text


def _check_sort(text: str) -> str:
    try:
        parse_sort_term(text)
    except ValueError as error:
        sentence = f"must be {error}; asc or desc and nulls first or nulls last may follow"
        raise refuse(sentence) from None
    return text


PartitionExpression = Annotated[Name, AfterValidator(_check_partition)]
SortExpression = Annotated[Name, AfterValidator(_check_sort)]
