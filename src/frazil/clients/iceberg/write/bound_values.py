"""Bounds as Iceberg serialises them, shortened so that they stay bounds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from frazil.model.schema.types import Decimal, Primitive

if TYPE_CHECKING:
    from frazil.model.schema.types import Type

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
