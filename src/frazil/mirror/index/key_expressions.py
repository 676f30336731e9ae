"""The hash of a key as Spark expressions, equal to the format's specification.

The result does not depend on the session's time zone or ANSI mode.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.model.key_index import KeyHash, plan_key_hash
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from frazil.model.schema.types import Scalar

_TIMESTAMPS = frozenset({Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ})
_LONG_TAGS = {
    Primitive.INT: b"i",
    Primitive.LONG: b"i",
    Primitive.DATE: b"D",
    Primitive.TIMESTAMP: b"t",
    Primitive.TIMESTAMPTZ: b"t",
    Primitive.FLOAT: b"f",
    Primitive.DOUBLE: b"f",
}
_SHA_BITS = 256
_HALF_DIGITS = 16


class UuidForm(StrEnum):
    """How a Spark column represents a UUID."""

    # As Spark reads Iceberg's uuid.
    TEXT = "text"
    # Sixteen bytes.
    BYTES = "bytes"


def key_hash_columns(
    columns: Sequence[tuple[Column, Scalar]], *, uuids: UuidForm = UuidForm.TEXT
) -> tuple[Column, Column]:
    """The upper and lower half of the key's hash, as bigints with the bits of the unsigned halves.

    The upper half is null exactly where a column of the key is. UnsupportedSchemaChangeError when
    columns of these types cannot be a key.
    """
    hashed_by = plan_key_hash([type_ for _, type_ in columns])
    if hashed_by is KeyHash.SHA256:
        encoded = [_encoded(column, type_, uuids) for column, type_ in columns]
        digits = sf.sha2(sf.concat(*encoded), _SHA_BITS)
        return _long_of_digits(digits, 1), _long_of_digits(digits, 1 + _HALF_DIGITS)
    ((column, type_),) = columns
    if hashed_by is KeyHash.UUID:
        digits = _uuid_digits(column, uuids)
        first, last = _long_of_digits(digits, 1), _long_of_digits(digits, 1 + _HALF_DIGITS)
        return _xxh64(first), last
    # Spark hashes a timestamp as the long it is, with a zone or without; smaller integers and
    # dates it would hash as four bytes.
    number = column if type_ in _TIMESTAMPS else _long(column, type_)
    return _xxh64(number), sf.lit(0).cast("bigint")


def _xxh64(number: Column) -> Column:
    # Spark's function skips nulls and would return the seed.
    return sf.when(number.isNotNull(), sf.xxhash64(number))


def _long_of_digits(digits: Column, start: int) -> Column:
    return sf.conv(sf.substring(digits, start, _HALF_DIGITS), 16, -10).cast("bigint")


def _uuid_digits(column: Column, form: UuidForm) -> Column:
    return sf.replace(column, sf.lit("-"), sf.lit("")) if form is UuidForm.TEXT else sf.hex(column)


def _long(column: Column, type_: Scalar) -> Column:
    """The integer whose eight bytes a value of this type is."""
    match type_:
        case Primitive.DATE:
            return sf.unix_date(column).cast("bigint")
        case Primitive.TIMESTAMPTZ:
            return sf.unix_micros(column)
        case Primitive.TIMESTAMP:
            # unix_micros would interpret it in the session's time zone; an interval has none.
            since = column - sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            seconds = since.cast("interval second").cast("decimal(24,6)")
            return (seconds * sf.lit(1_000_000)).cast("bigint")
        case Primitive.FLOAT | Primitive.DOUBLE:
            return _double_bits(column)
        case _:
            return column.cast("bigint")


def _double_bits(column: Column) -> Column:
    # Minus zero plus zero is zero, and this Java method has one form for every NaN. It accepts no
    # null.
    number = column.cast("double") + sf.lit(0.0)
    bits = sf.reflect(sf.lit("java.lang.Double"), sf.lit("doubleToLongBits"), number)
    return sf.when(column.isNotNull(), bits.cast("bigint"))


def _canonical_decimal(column: Column, scale: int) -> Column:
    """Without trailing zeros, as ``<unscaled>E<exponent>``."""
    # Small numbers are written with an exponent of their own in one mode and without in the other;
    # either way the digits before it are those of the unscaled value. No arithmetic: Spark rounds
    # even the absolute value of a decimal to 34 digits.
    mantissa = sf.substring_index(column.cast("string"), "E", 1)
    magnitude = sf.ltrim(mantissa, sf.lit("-"))
    written = sf.ltrim(sf.replace(magnitude, sf.lit("."), sf.lit("")), sf.lit("0"))
    unscaled = sf.rtrim(written, sf.lit("0"))
    exponent = sf.length(written) - sf.length(unscaled) - sf.lit(scale)
    sign = sf.when(mantissa.startswith("-"), "-").otherwise("")
    return sf.when(unscaled == "", "0E0").otherwise(
        sf.concat(sign, unscaled, sf.lit("E"), exponent.cast("string"))
    )


def _sized(tag: bytes, octets: Column) -> Column:
    """A value of variable length, after its tag and length."""
    return sf.concat(sf.lit(tag), _octets(sf.octet_length(octets), 4), octets)


def _head(tag: bytes, length: int) -> Column:
    return sf.lit(tag + length.to_bytes(4, "big"))


def _octets(number: Column, width: int) -> Column:
    """An integer in so many bytes, the highest first."""
    return sf.unhex(sf.lpad(sf.hex(number), 2 * width, "0"))


def _encoded(column: Column, type_: Scalar, uuids: UuidForm) -> Column:
    """The column's part of the canonical encoding."""
    match type_:
        case Decimal():
            return _sized(b"d", _canonical_decimal(column, type_.scale).cast("binary"))
        case Fixed() | Primitive.BINARY:
            return _sized(b"b", column)
        case Primitive.STRING:
            return _sized(b"s", column.cast("binary"))
        case Primitive.UUID:
            return sf.concat(_head(b"u", 16), sf.unhex(_uuid_digits(column, uuids)))
        case Primitive.BOOLEAN:
            return sf.concat(_head(b"o", 1), _octets(column.cast("int"), 1))
        case _:
            return sf.concat(_head(_LONG_TAGS[type_], 8), _octets(_long(column, type_), 8))
