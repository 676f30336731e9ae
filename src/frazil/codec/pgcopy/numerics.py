"""Numbers of arbitrary size in Postgres's binary form: digits to the base ten thousand.

Before the digits come their count, the power of the first one, the sign, and how many decimal
digits are shown. Digits are added up in 64 bits, which is enough for decimals up to a width; wider
ones are read from text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from frazil.codec.pgoutput.frames import refuse_where
from frazil.codec.pgtext.grammar import Read
from frazil.model.schema.types import Decimal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.codec.pgcopy.fields import BinaryColumn
    from frazil.model.schema.types import Type

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
