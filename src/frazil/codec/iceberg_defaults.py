"""Defaults of columns in Iceberg's JSON form, from Arrow's values and back."""

from __future__ import annotations

import math
from datetime import time
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from frazil.model.schema.types import Decimal, Fixed, Nested, Primitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.model.schema.types import Default, Type


def default_to_json(value: pa.Scalar, type_: Type) -> Default | None:
    """The default that shows this value; None where there is none.

    That is a null, anything nested, and what is no number in JSON: NaN and the infinities.
    """
    if not value.is_valid or isinstance(type_, Nested):
        return None
    found = value.as_py()
    if isinstance(type_, Decimal):
        # Never with an exponent; the scale is part of the text.
        return format(found, "f")
    if isinstance(type_, Fixed):
        return _hexadecimal(found)
    return _TO_JSON[type_](found)


def default_from_json(default: Default, type_: Type, target: pa.DataType) -> pa.Scalar:
    """The value that a default of this type represents."""
    match type_:
        case Primitive.UUID:
            return pa.scalar(UUID(str(default)).bytes, target)
        case Primitive.BINARY | Fixed():
            return pa.scalar(bytes.fromhex(str(default)), target)
        case Primitive.TIME:
            # Arrow reads no times of day.
            return pa.scalar(time.fromisoformat(str(default)), target)
        case _:
            return pa.array([default]).cast(target)[0]


def _hexadecimal(value: bytes) -> str:
    return value.hex()


def _iso(value: object) -> str:
    return value.isoformat()  # type: ignore[attr-defined, no-any-return]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _itself(value: Default) -> Default:
    return value


def _canonical(value: bytes) -> str:
    return str(UUID(bytes=value))


_TO_JSON: Mapping[Primitive, Callable[..., Default | None]] = {
    Primitive.BOOLEAN: _itself,
    Primitive.INT: _itself,
    Primitive.LONG: _itself,
    Primitive.FLOAT: _number,
    Primitive.DOUBLE: _number,
    Primitive.DATE: _iso,
    Primitive.TIME: _iso,
    Primitive.TIMESTAMP: _iso,
    Primitive.TIMESTAMPTZ: _iso,
    Primitive.STRING: _itself,
    Primitive.UUID: _canonical,
    Primitive.BINARY: _hexadecimal,
}
