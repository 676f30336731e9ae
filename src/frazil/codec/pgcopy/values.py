"""Values in Postgres's binary form, turned into Arrow's: the very ones that their text gives.

Only what has a form as plain as a number's is read here; everything else is requested as text and
goes through ``pgtext``. Both ways share the policy for what does not fit.

A numeric has digits to the base ten thousand. Before them come their count, the power of the first
one, the sign, and how many decimal digits are shown. Digits are added up in 64 bits, which is
enough for decimals up to a width; wider ones are read from text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from frazil.codec.malformed import refuse_where
from frazil.codec.pgtext.convert import by_policy, convert, malformed
from frazil.codec.pgtext.grammar import NotAsPrintedError, Read, parse_all
from frazil.model.postgres.types import NUMERIC_OID, Form
from frazil.model.schema.types import Decimal, Primitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from frazil.codec.pgcopy.fields import BinaryColumn
    from frazil.codec.pgtext.convert import Converted
    from frazil.model.postgres.types import ArrayForm, ColumnPlan
    from frazil.model.schema.types import Type

_EPOCH = date(2000, 1, 1)
_MIDNIGHT = datetime(2000, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_DAYS = ((date.min - _EPOCH) // _DAY, (date.max - _EPOCH) // _DAY)
_MICROSECONDS = (
    (datetime.min.replace(tzinfo=UTC) - _MIDNIGHT) // _MICROSECOND,
    (datetime.max.replace(tzinfo=UTC) - _MIDNIGHT) // _MICROSECOND,
)
_UNIX_DAYS = (_EPOCH - date(1970, 1, 1)) // _DAY
_UNIX_MICROSECONDS = (_MIDNIGHT - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
# The only version there is, in one byte before the text.
_JSONB_VERSION = 1
# Any number with so many decimal digits fits 64 bits.
MOST_DIGITS = 18

_HEAD_BYTES = 8
_DIGIT_BYTES = 2
# Decimal digits in one digit of the server's.
_WIDTH = 4
_BASE = 10**_WIDTH
# No digit is worth less than nothing.
_DOES_NOT_FIT = -1
_NEGATIVE = 0x4000
# NaN and the infinities.
_SPECIAL = 0xC000


class Wire(StrEnum):
    """How a column's values come."""

    PRINTED = "text, as the server prints it"
    TEXT = "text, which is its own binary form"
    JSONB = "text behind a version"
    BOOL = "bool"
    INT2 = "int2"
    INT4 = "int4"
    INT8 = "int8"
    OID = "oid"
    FLOAT4 = "float4"
    FLOAT8 = "float8"
    NUMERIC = "numeric"
    DATE = "date"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BYTEA = "bytea"


# By OID, as types are known everywhere; char(n) comes with its blanks in either form.
_WIRES: Mapping[tuple[int, Form], Wire] = {
    (16, Form.BOOLEAN): Wire.BOOL,
    (17, Form.BYTEA): Wire.BYTEA,
    (19, Form.AS_PRINTED): Wire.TEXT,
    (20, Form.INTEGER): Wire.INT8,
    (21, Form.INTEGER): Wire.INT2,
    (23, Form.INTEGER): Wire.INT4,
    (25, Form.AS_PRINTED): Wire.TEXT,
    (26, Form.INTEGER): Wire.OID,
    (114, Form.AS_PRINTED): Wire.TEXT,
    (700, Form.REAL): Wire.FLOAT4,
    (701, Form.DOUBLE): Wire.FLOAT8,
    (1042, Form.AS_PRINTED): Wire.TEXT,
    (1043, Form.AS_PRINTED): Wire.TEXT,
    (1082, Form.DATE): Wire.DATE,
    (1114, Form.TIMESTAMP): Wire.TIMESTAMP,
    (1184, Form.TIMESTAMPTZ): Wire.TIMESTAMP,
    (NUMERIC_OID, Form.NUMERIC): Wire.NUMERIC,
    (2950, Form.UUID): Wire.UUID,
    (3802, Form.AS_PRINTED): Wire.JSONB,
}


def wire_of(type_oid: int, column: ColumnPlan) -> Wire:
    """How to request a column; the OID is a domain's base, as answers to queries have it."""
    if isinstance(column.type, Decimal) and column.type.precision > MOST_DIGITS:
        return Wire.PRINTED
    return _known_wire(type_oid, column.form)


def _known_wire(type_oid: int, form: Form | ArrayForm) -> Wire:
    return _WIRES.get((type_oid, form), Wire.PRINTED) if isinstance(form, Form) else Wire.PRINTED


def convert_binary(values: BinaryColumn, column: ColumnPlan, wire: Wire) -> Converted:
    """The values as the column's type holds them, exactly those that ``pgtext.convert`` gives.

    Raises what that does, and MalformedFileError for values of a wrong size.
    """
    try:
        if wire is Wire.PRINTED:
            return convert(_texts(values, after=0), column)
        read = _READERS[wire](values, column.type)
    except NotAsPrintedError as error:
        strange = error.count
    else:
        return by_policy(read, column)
    raise malformed(column, strange)


def _texts(values: BinaryColumn, *, after: int) -> pa.StringArray:
    return parse_all(values.octets(after=after), lambda each: each.cast(pa.string()))


def _read_text(values: BinaryColumn, _type: Type) -> Read:
    return Read(_texts(values, after=0))


def _read_jsonb(values: BinaryColumn, _type: Type) -> Read:
    strange = values.is_known & (values.numbers(np.uint8) != _JSONB_VERSION)
    if strange.any():
        raise NotAsPrintedError(int(np.count_nonzero(strange)))
    return Read(_texts(values, after=1))


def _read_bytea(values: BinaryColumn, _type: Type) -> Read:
    return Read(values.octets())


def _read_numbers(values: BinaryColumn, type_: Type, *, kind: str) -> Read:
    """Numbers of this kind, widened where the column is declared wider; none is changed by that."""
    found = np.dtype(kind)
    values.require_size(found.itemsize)
    numbers = values.numbers(found).astype(_NUMBERS[type_][0])
    return Read(_array(numbers, values, _NUMBERS[type_][1]))


def _read_booleans(values: BinaryColumn, _type: Type) -> Read:
    values.require_size(1)
    bits = np.packbits(values.numbers(np.uint8) != 0, bitorder="little")
    return Read(_array(bits, values, pa.bool_()))


def _read_uuids(values: BinaryColumn, _type: Type) -> Read:
    values.require_size(16)
    halves = np.empty((len(values), 2), np.uint64)
    halves[:, 0] = values.numbers(np.uint64)
    halves[:, 1] = values.numbers(np.uint64, after=8)
    return Read(_array(halves, values, pa.binary(16)))


def _read_dates(values: BinaryColumn, _type: Type) -> Read:
    values.require_size(4)
    days = values.numbers(">i4").astype(np.int32)
    misfits = values.is_known & ((days < _DAYS[0]) | (days > _DAYS[1]))
    return _shifted(values, days, misfits, np.int32(_UNIX_DAYS), pa.date32())


def _read_timestamps(values: BinaryColumn, type_: Type) -> Read:
    values.require_size(8)
    moments = values.numbers(">i8").astype(np.int64)
    misfits = values.is_known & ((moments < _MICROSECONDS[0]) | (moments > _MICROSECONDS[1]))
    zone = "UTC" if type_ is Primitive.TIMESTAMPTZ else None
    return _shifted(
        values, moments, misfits, np.int64(_UNIX_MICROSECONDS), pa.timestamp("us", tz=zone)
    )


def _shifted(
    values: BinaryColumn,
    counted: NDArray[np.int32] | NDArray[np.int64],
    misfits: NDArray[np.bool_],
    shift: np.int32 | np.int64,
    type_: pa.DataType,
) -> Read:
    """Counted from Arrow's epoch; what is infinite wraps around, and is a misfit."""
    if not misfits.any():
        return Read(_array(counted + shift, values, type_))
    kept = pa.py_buffer(np.packbits(values.is_known & ~misfits, bitorder="little"))
    buffers = [kept, pa.py_buffer(counted + shift)]
    return Read(pa.Array.from_buffers(type_, len(values), buffers), misfits)


def _array(data: NDArray[np.generic], values: BinaryColumn, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [values.validity, pa.py_buffer(data)])


@dataclass(frozen=True, eq=False, slots=True)
class _DigitValues:
    """What each digit is worth in a decimal at each power of ten thousand, from ``lowest`` upwards.

    ``worths`` has all digits of one power after those of another, and ``_DOES_NOT_FIT`` for a digit
    with which the number does not fit. At both ends is a power where only zero fits, as with all
    powers beyond.
    """

    lowest: int
    count: int
    worths: NDArray[np.int64]


@cache
def _digit_values(type_: Decimal) -> _DigitValues:
    # Cached, because a copy needs the same decimal with every batch.
    integer_digits = type_.precision - type_.scale
    lowest = -_groups(type_.scale) - 1
    powers = np.arange(lowest, _groups(integer_digits) + 1)
    limits = 10 ** np.clip(integer_digits - _WIDTH * powers, 0, _WIDTH)
    limits[0] = 1
    shifts = _WIDTH * powers + type_.scale
    divisors = 10 ** np.clip(-shifts, 0, _WIDTH)
    factors = 10 ** np.clip(shifts, 0, MOST_DIGITS)
    digits = np.arange(_BASE)[None, :]
    worths = digits // divisors[:, None] * factors[:, None]
    fits = (digits < limits[:, None]) & (digits % divisors[:, None] == 0)
    return _DigitValues(lowest, len(powers), np.where(fits, worths, _DOES_NOT_FIT).ravel())


def _groups(digits: int) -> int:
    """How many digits of the server's hold so many decimal ones."""
    return -(-digits // _WIDTH)


def read_numerics(values: BinaryColumn, type_: Type) -> Read:
    """Numbers that the decimal holds to the last digit.

    NaN, infinities and numbers with more digits are misfits. The decimal must not be wider than
    ``MOST_DIGITS``.
    """
    if not isinstance(type_, Decimal):
        message = f"no numeric in binary form can be read as {type_}"
        raise TypeError(message)
    heads = _Heads.of(values)
    misfits = values.is_known & (heads.signs >= _SPECIAL)
    unscaled = _sums(values, heads, _digit_values(type_), misfits)
    unscaled[heads.signs == _NEGATIVE] *= -1
    read = _decimals(unscaled, values.is_known & ~misfits, type_)
    return Read(read, misfits if misfits.any() else None)


@dataclass(frozen=True, eq=False, slots=True)
class _Heads:
    """What is before the digits: how many there are, the power of the first, and the sign."""

    counts: NDArray[np.int64]
    powers: NDArray[np.int64]
    signs: NDArray[np.uint16]

    @classmethod
    def of(cls, values: BinaryColumn) -> Self:
        """The heads of all values; MalformedFileError unless the digits are there, too."""
        encoded = values.numbers(">u8").astype(np.uint64)
        counts = (encoded >> np.uint64(48)).astype(np.int64)
        wrong = values.stops - values.starts != _HEAD_BYTES + _DIGIT_BYTES * counts
        what = "expected a numeric with all its digits"
        refuse_where(wrong & values.is_known, values.starts, what)
        powers = (encoded >> np.uint64(32)).astype(np.int16).astype(np.int64)
        return cls(counts, powers, (encoded >> np.uint64(16)).astype(np.uint16))


def _sums(
    values: BinaryColumn, heads: _Heads, worth: _DigitValues, misfits: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The numbers without sign and point; those with a digit that does not fit join the misfits."""
    unscaled = np.zeros(len(values), np.int64)
    rows = np.flatnonzero(values.is_known & ~misfits)
    number = 0
    while len(rows := rows[heads.counts[rows] > number]):
        after = _HEAD_BYTES + _DIGIT_BYTES * number
        digits = values.numbers(">u2", after=after, rows=rows).astype(np.int64)
        refuse_where(digits >= _BASE, values.starts[rows], "expected digits below ten thousand")
        power = np.clip(heads.powers[rows] - number - worth.lowest, 0, worth.count - 1)
        worths = worth.worths[power * _BASE + digits]
        misfits[rows] |= worths == _DOES_NOT_FIT
        unscaled[rows] += worths
        number += 1
    return unscaled


def _decimals(unscaled: NDArray[np.int64], fits: NDArray[np.bool_], type_: Decimal) -> pa.Array:
    # The upper half of a small number is all sign.
    halves = np.empty((len(unscaled), 2), np.int64)
    halves[:, 0] = unscaled
    halves[:, 1] = unscaled >> 63
    validity = None if fits.all() else pa.py_buffer(np.packbits(fits, bitorder="little"))
    decimal = pa.decimal128(type_.precision, type_.scale)
    return pa.Array.from_buffers(decimal, len(unscaled), [validity, pa.py_buffer(halves)])


_NUMBERS: Mapping[Type, tuple[type[np.generic], pa.DataType]] = {
    Primitive.INT: (np.int32, pa.int32()),
    Primitive.LONG: (np.int64, pa.int64()),
    Primitive.FLOAT: (np.float32, pa.float32()),
    Primitive.DOUBLE: (np.float64, pa.float64()),
}

_READERS: Mapping[Wire, Callable[[BinaryColumn, Type], Read]] = {
    Wire.TEXT: _read_text,
    Wire.JSONB: _read_jsonb,
    Wire.BOOL: _read_booleans,
    Wire.INT2: partial(_read_numbers, kind=">i2"),
    Wire.INT4: partial(_read_numbers, kind=">i4"),
    Wire.INT8: partial(_read_numbers, kind=">i8"),
    Wire.OID: partial(_read_numbers, kind=">u4"),
    Wire.FLOAT4: partial(_read_numbers, kind=">f4"),
    Wire.FLOAT8: partial(_read_numbers, kind=">f8"),
    Wire.NUMERIC: read_numerics,
    Wire.DATE: _read_dates,
    Wire.TIMESTAMP: _read_timestamps,
    Wire.UUID: _read_uuids,
    Wire.BYTEA: _read_bytea,
}
