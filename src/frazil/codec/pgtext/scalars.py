"""Booleans, numbers, times, uuids and byte strings as Postgres prints them, in UTC and ISO style.

Of dates and timestamps, the years 1 to 9999 are supported. Iceberg's days and microseconds reach
further, and readers do not: Spark promises no other years, Python has none, and engines disagree on
how to show them.
"""

from __future__ import annotations

import binascii
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgtext.grammar import (
    NotAsPrintedError,
    Read,
    octets,
    parse_all,
    read_printed,
    validity,
)

if TYPE_CHECKING:
    from frazil.model.schema.types import Decimal

_INTEGER = r"0|-?[1-9]\d*"
_FLOAT = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?|-?Infinity|NaN"
_NUMERIC = r"-?\d+(?:\.\d+)?|-?Infinity|NaN"
# As lists: Arrow's arrays would load pandas, and tasks import this that need no number from text.
_ZEROS = ["0", "-0"]
_INFINITIES = ["Infinity", "-Infinity"]
# A sign, a point, and the zero before a point that Postgres always prints.
_OTHER_CHARACTERS = 3
# Postgres has no year 0: before 0001 comes 0001 BC.
_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
_DAY = r"-\d\d-\d\d"
_CLOCK = r" \d\d:\d\d:\d\d(?:\.\d{1,6})?"
# A date's year has seven digits at most, a timestamp's six.
_LATER_YEAR = r"[1-9]\d{4,6}"
_INFINITE = "-?infinity"

_ZONE = r"\+00"
_UTC = pa.timestamp("us", tz="UTC")
_UUID_TEXT = 36
_UUID_DASHES = (8, 13, 18, 23)
_UUID_DIGITS = np.delete(np.arange(_UUID_TEXT), _UUID_DASHES)
_NO_UUID = "00000000-0000-0000-0000-000000000000"

# The older form of bytea_output, `escape`, never begins like this: it doubles a backslash.
_PREFIX = "\\x"
_DASH, _BACKSLASH, _X = b"-\\x"


def read_booleans(text: pa.StringArray) -> Read:
    """``t`` and ``f``."""
    return read_printed(text, lambda each: pc.equal(each, "t"), fits="[tf]")


def read_integers(text: pa.StringArray, type_: pa.DataType) -> Read:
    """Integers that fit the type; every integer type of Postgres has one that holds it."""
    return read_printed(text, lambda each: each.cast(type_), fits=_INTEGER)


def read_floats(text: pa.StringArray, printed: pa.DataType, type_: pa.DataType) -> Read:
    """The nearest number of the printed width, then widened; infinities, NaN and −0 are kept.

    The session must print shortest-exact digits (``extra_float_digits`` of 1 or more), or the
    number at the source was another one.
    """
    read = read_printed(text, lambda each: each.cast(printed), fits=_FLOAT)
    _check_range(text, read.values)
    return Read(read.values.cast(type_), read.misfits)


def read_numerics(text: pa.StringArray, type_: Decimal) -> Read:
    """Numbers that the decimal holds to the last digit; zeros behind its scale count for nothing.

    NaN, infinities and numbers with more digits are misfits.
    """
    integer_digits = type_.precision - type_.scale
    before = rf"(?:0|[1-9]\d{{0,{integer_digits - 1}}})" if integer_digits else "0"
    behind = rf"\d{{1,{type_.scale}}}0*" if type_.scale else "0+"
    parse = partial(_parse_decimals, type_=type_)
    return read_printed(text, parse, fits=rf"-?{before}(?:\.{behind})?", printed=_NUMERIC)


def _parse_decimals(text: pa.StringArray, type_: Decimal) -> pa.Array:
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    if longest > type_.precision + _OTHER_CHARACTERS:
        # Arrow counts all digits before it scales; zeros that say nothing would be too many.
        kept = rf"(\.\d{{{type_.scale}}})0+$" if type_.scale else r"()\.0+$"
        text = pc.replace_substring_regex(text, pattern=kept, replacement=r"\1")
    return text.cast(pa.decimal128(type_.precision, type_.scale))


def _check_range(text: pa.StringArray, values: pa.Array) -> None:
    """Refuse numbers that ended as an infinity or a zero only because the type has no nearer one.

    Postgres refuses them as well, so such text belongs to another type.
    """
    ends = ((pc.is_inf(values), _INFINITIES), (pc.equal(values, 0), _ZEROS))
    for reached, spellings in ends:
        strange = reached.true_count - _true(pc.is_in(text, value_set=pa.array(spellings)))
        if strange:
            raise NotAsPrintedError(strange)


def _true(mask: pa.BooleanArray) -> int:
    count: int = mask.true_count
    return count


def read_dates(text: pa.StringArray) -> Read:
    """Dates; infinities, BC and years of five digits are misfits."""
    return read_printed(
        text,
        lambda each: each.cast(pa.date32()),
        fits=f"{_YEAR}{_DAY}",
        printed=_outside(_DAY),
    )


def read_timestamps(text: pa.StringArray) -> Read:
    """Timestamps without a zone, in microseconds; misfits as for dates."""
    return read_printed(
        text,
        lambda each: each.cast(pa.timestamp("us")),
        fits=f"{_YEAR}{_DAY}{_CLOCK}",
        printed=_outside(f"{_DAY}{_CLOCK}"),
    )


def read_timestamps_as_utc(text: pa.StringArray) -> Read:
    """Timestamps without a zone, whose owner says that their clock shows UTC."""
    read = read_timestamps(text)
    return Read(read.values.view(_UTC), read.misfits)


def read_timestamptzs(text: pa.StringArray) -> Read:
    """Moments; misfits as for dates.

    Another zone than UTC is refused though it could be read: in that session, columns kept as text
    would change with the zone.
    """
    return read_printed(
        text,
        lambda each: each.cast(_UTC),
        fits=f"{_YEAR}{_DAY}{_CLOCK}{_ZONE}",
        printed=_outside(f"{_DAY}{_CLOCK}{_ZONE}"),
    )


def _outside(rest: str) -> str:
    """What Postgres prints for times that are not supported, where this follows the year."""
    return f"{_INFINITE}|{_LATER_YEAR}{rest}|{_YEAR}{rest} BC"


def read_uuids(text: pa.StringArray) -> Read:
    """The sixteen bytes of each."""
    return Read(parse_all(text, _parse_uuids))


def read_bytea(text: pa.StringArray) -> Read:
    """The bytes of each; the session must print them with ``bytea_output = hex``."""
    return Read(parse_all(text, _parse_bytea))


def _parse_uuids(text: pa.StringArray) -> pa.Array:
    offsets, data = octets(pc.fill_null(text, _NO_UUID))
    if (np.diff(offsets) != _UUID_TEXT).any():
        raise ValueError("a uuid has 36 characters")
    signs = data.reshape(-1, _UUID_TEXT)
    if (signs[:, _UUID_DASHES] != _DASH).any():
        raise ValueError("a uuid has dashes between its parts")
    # Refuses what is not a digit.
    buffers = [validity(text), pa.py_buffer(binascii.unhexlify(signs[:, _UUID_DIGITS].tobytes()))]
    return pa.Array.from_buffers(pa.binary(16), len(text), buffers)


def _parse_bytea(text: pa.StringArray) -> pa.Array:
    offsets, data = octets(pc.fill_null(text, _PREFIX))
    starts, sizes = offsets[:-1], np.diff(offsets)
    if (sizes < len(_PREFIX)).any() or (sizes % 2).any():
        raise ValueError("bytes are printed as a prefix and pairs of digits")
    if (data[starts] != _BACKSLASH).any() or (data[starts + 1] != _X).any():
        raise ValueError("bytes are printed with a prefix")
    digit = np.ones(len(data), np.bool_)
    digit[starts] = False
    digit[starts + 1] = False
    ends = np.zeros(len(offsets), np.int32)
    np.cumsum(sizes // 2 - 1, out=ends[1:])
    digits = binascii.unhexlify(data[digit].tobytes())
    buffers = [validity(text), pa.py_buffer(ends), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers)
