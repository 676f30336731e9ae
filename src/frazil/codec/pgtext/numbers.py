"""Booleans and numbers as Postgres prints them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgtext.grammar import NotAsPrintedError, Read, read_printed

if TYPE_CHECKING:
    from frazil.model.schema.types import Decimal

_INTEGER = r"0|-?[1-9]\d*"
_FLOAT = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?|-?Infinity|NaN"
_NUMERIC = r"-?\d+(?:\.\d+)?|-?Infinity|NaN"
_ZEROS = pa.array(["0", "-0"])
_INFINITIES = pa.array(["Infinity", "-Infinity"])
# A sign, a point, and the zero before a point that Postgres always prints.
_OTHER_CHARACTERS = 3


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
        strange = reached.true_count - _true(pc.is_in(text, value_set=spellings))
        if strange:
            raise NotAsPrintedError(strange)


def _true(mask: pa.BooleanArray) -> int:
    count: int = mask.true_count
    return count
