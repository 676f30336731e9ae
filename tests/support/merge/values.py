"""Values of every type as JSON: drawn by chance, given to Arrow, and read by any reader."""

from __future__ import annotations

import string
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as DecimalValue
from typing import TYPE_CHECKING, Any
from uuid import UUID

from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    List,
    Map,
    Nested,
    Primitive,
    Struct,
    list_of,
    map_of,
    parse_scalar,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from frazil.model.schema.types import Scalar, Type

Json = bool | int | str | None | tuple["Json", ...]

# Numbered when a table gets them.
_NESTED: dict[str, Type] = {
    str(each): each
    for each in (
        list_of(0, Primitive.STRING),
        Struct((Field(0, "x", Primitive.INT), Field(0, "y", Primitive.STRING))),
        map_of(0, Primitive.STRING, 0, Primitive.INT),
    )
}
SCALARS = (
    *("int", "long", "float", "double", "string", "boolean", "date", "timestamp", "timestamptz"),
    *("uuid", "binary", "fixed[3]", "decimal(9, 2)", "decimal(30, 10)"),
)
DATA_TYPES = (*SCALARS, "string", "string", *_NESTED)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Instants and days that calendars, time zones and nanoseconds make interesting.
_INSTANTS = (0, -1, 1, 86_400_000_000, 1_767_225_599_999_999, -62_135_596_800_000_000)
_DAYS = (0, -1, 1, 19_000, 20_454, -719_162, 2_932_896)
_TEXTS = ("", " ", "a", "A", "ä", "😀", "null", "a/b", "a=b&c", "it's", '"', "\\", "2024-01-01")
# What a float holds exactly, so that it is the same once it is a double.
_HALVES = ("0.0", "-0.0", "nan", "inf", "-inf", "0.5", "-1.25", "1024.0")


def type_of(name: str) -> Type:
    """The type that Iceberg prints like this."""
    return _NESTED.get(name) or parse_scalar(name)


def draw(chance: Random, type_: Type) -> Json:
    """A value of this type, never null; small ones and odd ones more often."""
    match type_:
        case Struct(fields):
            return tuple(_draw_or_null(chance, each.type) for each in fields)
        case List(element):
            return tuple(_draw_or_null(chance, element.type) for _ in range(chance.randrange(3)))
        case Map(key, value):
            keys = sorted({str(draw(chance, key.type)) for _ in range(chance.randrange(3))})
            return tuple((each, _draw_or_null(chance, value.type)) for each in keys)
        case Decimal(precision, scale):
            digits = chance.randint(1, precision)
            unscaled = chance.choice((0, 1, -1, 10**digits - 1, chance.randrange(10**digits)))
            # Made of digits: a context would round them.
            return f"{DecimalValue((int(unscaled < 0), _digits(unscaled), -scale)):f}"
        case Fixed(length):
            return chance.randbytes(length).hex()
        case primitive:
            return _DRAWERS[primitive](chance)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


def _draw_or_null(chance: Random, type_: Type) -> Json:
    return None if chance.random() < 0.2 else draw(chance, type_)


def _draw_integer(chance: Random, bits: int) -> int:
    highest = 2 ** (bits - 1) - 1
    return chance.choice((0, -1, highest, -highest - 1, chance.randrange(-99, 100)))


def _draw_text(chance: Random) -> str:
    made = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(1, 30)))
    return chance.choice((*_TEXTS, made, made, made))


def _draw_date(chance: Random) -> str:
    days = chance.choice((*_DAYS, chance.randrange(20_000, 20_020)))
    return str(date(1970, 1, 1) + timedelta(days=days))


def _draw_instant(chance: Random, type_: Scalar) -> Json:
    micros = chance.choice((*_INSTANTS, chance.randrange(20_000, 20_003) * 86_400_000_000 + 7))
    return encode(_EPOCH + timedelta(microseconds=micros), type_)


def _draw_float(chance: Random) -> str:
    return chance.choice((*_HALVES, repr(chance.randrange(-99, 100) / 4)))


def _draw_uuid(chance: Random) -> str:
    return str(UUID(int=chance.choice((0, 2**128 - 1, chance.getrandbits(128)))))


_DRAWERS: dict[Primitive, Callable[[Random], Json]] = {
    Primitive.BOOLEAN: lambda chance: chance.random() < 0.5,
    Primitive.INT: lambda chance: _draw_integer(chance, 32),
    Primitive.LONG: lambda chance: _draw_integer(chance, 64),
    Primitive.FLOAT: _draw_float,
    Primitive.DOUBLE: _draw_float,
    Primitive.DATE: _draw_date,
    Primitive.TIMESTAMP: lambda chance: _draw_instant(chance, Primitive.TIMESTAMP),
    Primitive.TIMESTAMPTZ: lambda chance: _draw_instant(chance, Primitive.TIMESTAMPTZ),
    Primitive.STRING: _draw_text,
    Primitive.UUID: _draw_uuid,
    Primitive.BINARY: lambda chance: chance.randbytes(chance.choice((0, 1, 5))).hex(),
}


def decode(value: Json, type_: Type) -> Any:
    """The value as Arrow takes it for a column of this type."""
    if isinstance(value, tuple):
        return _decode_nested(value, type_)
    match type_, value:
        case Decimal(), str():
            return DecimalValue(value)
        case Fixed(), str():
            return bytes.fromhex(value)
        case Primitive(), str():
            return _DECODERS.get(type_, str)(value)
        case _:
            return value


def _decode_nested(value: tuple[Json, ...], type_: Type) -> Any:
    match type_:
        case Struct(fields):
            pairs = zip(fields, value, strict=True)
            return {each.name: decode(inner, each.type) for each, inner in pairs}
        case List(element):
            return [decode(each, element.type) for each in value]
        case Map(key, item):
            entries = [each for each in value if isinstance(each, tuple)]
            return [(decode(one, key.type), decode(other, item.type)) for one, other in entries]
        case _:
            raise AssertionError(type_)


_DECODERS: dict[Primitive, Callable[[str], Any]] = {
    Primitive.FLOAT: float,
    Primitive.DOUBLE: float,
    Primitive.DATE: date.fromisoformat,
    Primitive.TIMESTAMP: datetime.fromisoformat,
    Primitive.TIMESTAMPTZ: datetime.fromisoformat,
    Primitive.UUID: lambda text: UUID(text).bytes,
    Primitive.BINARY: bytes.fromhex,
}


def encode(value: Any, type_: Type) -> Json:
    """What a reader returned, in the one form that all are compared in."""
    if value is None:
        return None
    if isinstance(type_, Nested):
        return _encode_nested(value, type_)
    if isinstance(type_, Decimal):
        return f"{value:f}"
    return bytes(value).hex() if isinstance(type_, Fixed) else _ENCODERS[type_](value)


def _encode_nested(value: Any, type_: Nested) -> Json:
    match type_:
        case Struct(fields):
            return tuple(encode(value[each.name], each.type) for each in fields)
        case List(element):
            return tuple(encode(each, element.type) for each in value)
        case Map(key, item):
            pairs = ((encode(one, key.type), encode(other, item.type)) for one, other in value)
            return tuple(sorted(pairs, key=lambda pair: str(pair[0])))


def _encode_uuid(value: Any) -> str:
    return str(UUID(bytes=value)) if isinstance(value, bytes) else str(value).lower()


_ENCODERS: dict[Primitive, Callable[[Any], Json]] = {
    Primitive.BOOLEAN: bool,
    Primitive.INT: int,
    Primitive.LONG: int,
    Primitive.FLOAT: lambda value: repr(float(value)),
    Primitive.DOUBLE: lambda value: repr(float(value)),
    Primitive.DATE: str,
    Primitive.TIMESTAMP: lambda value: str(
        value.replace(tzinfo=None).isoformat(timespec="microseconds")
    ),
    Primitive.TIMESTAMPTZ: lambda value: str(
        value.astimezone(UTC).isoformat(timespec="microseconds")
    ),
    Primitive.STRING: str,
    Primitive.UUID: _encode_uuid,
    Primitive.BINARY: lambda value: bytes(value).hex(),
}
