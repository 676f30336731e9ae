"""The hash of a key, as any language can compute it: 128 bits in two unsigned halves.

This is the specification, in Python. Tasks hash with Spark's own functions, and tests hold the two
together.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from typing import TYPE_CHECKING, TypeVar

from frazil.model.key_index import KeyHash, plan_key_hash
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from frazil.model.schema.types import Scalar

_Value = TypeVar("_Value")

# Spark's, so that its own function hashes an integer key completely.
SEED = 42

_ROUND = (1 << 64) - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5

_FIRST_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HALVES = struct.Struct(">QQ")
_DOUBLE = struct.Struct(">d")
_NAN = bytes.fromhex("7ff8000000000000")


def hash_key(values: Sequence[object], types: Sequence[Scalar]) -> tuple[int, int]:
    """The upper and the lower half, both unsigned; TypeError for a null or a value of another type.

    UnsupportedSchemaChangeError when columns of these types cannot be a key.
    """
    hashed_by = plan_key_hash(types)
    if hashed_by is KeyHash.SHA256:
        digest = hashlib.sha256(encode_key(values, types)).digest()
        hi, lo = _HALVES.unpack_from(digest)
        return hi, lo
    ((_, octets),) = _parts(values, types)
    if hashed_by is KeyHash.UUID:
        first, last = _HALVES.unpack(octets)
        return xxh64_of_long(first), last
    return xxh64_of_long(int.from_bytes(octets, "big")), 0


def encode_key(values: Sequence[object], types: Sequence[Scalar]) -> bytes:
    """What SHA-256 is taken of: for each column a tag, the length in four bytes, and the bytes.

    Lengths keep columns apart: no two different keys of the same columns have one encoding. The
    types are those of a key that ``plan_key_hash`` has accepted.
    """
    return b"".join(
        tag + len(octets).to_bytes(4, "big") + octets for tag, octets in _parts(values, types)
    )


def xxh64_of_long(value: int) -> int:
    """XXH64 with Spark's seed of the eight bytes of a long, lowest first; unsigned.

    Of exactly eight bytes it is a bijection: every step can be taken back. Multiplying by an odd
    number, rotating, adding or xor-ing a constant, and xor-ing a number with itself shifted each
    map the 64-bit numbers one to one. Two longs therefore never share a hash.
    """
    lane = (value & _ROUND) * _PRIME_2 & _ROUND
    lane = _rotated(lane, 31) * _PRIME_1 & _ROUND
    mixed = (SEED + _PRIME_5 + 8 & _ROUND) ^ lane
    mixed = _rotated(mixed, 27) * _PRIME_1 + _PRIME_4 & _ROUND
    mixed = (mixed ^ mixed >> 33) * _PRIME_2 & _ROUND
    mixed = (mixed ^ mixed >> 29) * _PRIME_3 & _ROUND
    return mixed ^ mixed >> 32


def _rotated(bits: int, by: int) -> int:
    return (bits << by | bits >> 64 - by) & _ROUND


def _parts(values: Sequence[object], types: Sequence[Scalar]) -> list[tuple[bytes, bytes]]:
    forms = [_form(each) for each in types]
    return [(tag, encode(each)) for each, (tag, encode) in zip(values, forms, strict=True)]


def _integer(value: object) -> bytes:
    return _long(_taken(value, int))


def _days(value: object) -> bytes:
    return _long((_taken(value, date) - _FIRST_DAY).days)


def _local_micros(value: object) -> bytes:
    local = _taken(value, datetime)
    if local.tzinfo is not None:
        raise TypeError("a timestamp without a zone is given without one")
    return _long((local.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND)


def _micros(value: object) -> bytes:
    moment = _taken(value, datetime)
    if moment.tzinfo is None:
        raise TypeError("a timestamp with a zone is given with one")
    return _long((moment - _EPOCH) // _MICROSECOND)


def _boolean(value: object) -> bytes:
    return b"\1" if _taken(value, bool) else b"\0"


def _text(value: object) -> bytes:
    return _taken(value, str).encode()


def _raw(value: object) -> bytes:
    return _taken(value, bytes)


def _uuid(value: object) -> bytes:
    return _taken(value, uuid.UUID).bytes


def _double(value: object) -> bytes:
    number = _taken(value, float)
    # Minus zero plus zero is zero; NaN is the one number that is not itself.
    return _DOUBLE.pack(number + 0.0) if number == number else _NAN  # noqa: PLR0124


def _decimal(value: object) -> bytes:
    number = _taken(value, Number)
    if not number.is_finite():
        raise TypeError("a decimal is a number")
    sign, digits, exponent = number.as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    unscaled = written.rstrip("0")
    if not unscaled:
        return b"0E0"
    power = int(exponent) + len(written) - len(unscaled)
    return f"{'-' * sign}{unscaled}E{power}".encode()


# The same tag and form for what a column may be widened to.
_ENCODERS: Mapping[Primitive, tuple[bytes, Callable[[object], bytes]]] = {
    Primitive.INT: (b"i", _integer),
    Primitive.LONG: (b"i", _integer),
    Primitive.DATE: (b"D", _days),
    Primitive.TIMESTAMP: (b"t", _local_micros),
    Primitive.TIMESTAMPTZ: (b"t", _micros),
    Primitive.BOOLEAN: (b"o", _boolean),
    Primitive.STRING: (b"s", _text),
    Primitive.BINARY: (b"b", _raw),
    Primitive.UUID: (b"u", _uuid),
    Primitive.FLOAT: (b"f", _double),
    Primitive.DOUBLE: (b"f", _double),
}


def _form(type_: Scalar) -> tuple[bytes, Callable[[object], bytes]]:
    match type_:
        case Decimal():
            return b"d", _decimal
        case Fixed():
            return b"b", _raw
        case _:
            return _ENCODERS[type_]


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _taken(value: object, kind: type[_Value]) -> _Value:
    # Not a subclass: to Python a boolean is an integer, and a timestamp is a date.
    if type(value) is not kind:
        message = f"expected a key value of type {kind.__name__}, found {type(value).__name__}"
        raise TypeError(message)
    return value
