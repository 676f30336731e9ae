"""The text of JSON values, turned into Arrow's: exactly, or not at all, row by row.

A document's numbers and strings come as the text that they have in it: what the text means decides,
not whether it was in quotes. Writers put dates, decimals and large numbers in quotes, or do not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgtext.grammar import NotAsPrintedError
from frazil.codec.pgtext.scalars import read_bytea, read_numerics, read_uuids
from frazil.model.schema.types import Decimal, Primitive
from frazil.sources.change_schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from frazil.model.schema.types import Scalar

    Parse = Callable[[pa.StringArray], pa.Array]

_INTEGER: Final = r"0|-?[1-9]\d{0,18}"
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_REAL: Final = rf"{_NUMBER}|-?Infinity|NaN"
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_ZONE: Final = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)"
_UTC_ZONE: Final = r"(?:[Zz]|[+-]00(?::?00)?)"
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def convert_text(text: pa.StringArray, type_: Scalar) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """The values, null where the text is, and where it does not fit; None: all of it fits."""
    if type_ is Primitive.STRING:
        return text, None
    if text.null_count == len(text):
        return pa.nulls(len(text), arrow_type(type_)), None
    fits, parse = _grammar(type_)
    # RE2's $ is the very end of the text.
    matches = pc.match_substring_regex(text, pattern=f"^(?:{fits})$")
    misfits = None
    if matches.false_count:
        misfits = np.asarray(pc.fill_null(pc.invert(matches), fill_value=False))
        text = pc.if_else(matches, text, pa.scalar(None, text.type))
    values, refused = _parse_rows(text, parse, arrow_type(type_))
    if refused is not None:
        misfits = refused if misfits is None else misfits | refused
    return values, misfits


def _parse_rows(
    text: pa.StringArray, parse: Parse, type_: pa.DataType
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Parse all rows at once; those that cannot be parsed are found by halving."""
    try:
        return parse(text), None
    except (ValueError, NotAsPrintedError):
        pass
    if len(text) == 1:
        return pa.nulls(1, type_), np.ones(1, np.bool_)
    half = len(text) // 2
    parts = [_parse_rows(each, parse, type_) for each in (text[:half], text[half:])]
    masks = [
        np.zeros(len(values), np.bool_) if refused is None else refused for values, refused in parts
    ]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate(masks)


def _grammar(type_: Scalar) -> tuple[str, Parse]:
    if isinstance(type_, Decimal):
        return r"-?\d+(?:\.\d+)?", partial(_parse_decimals, type_=type_)
    if not isinstance(type_, Primitive) or type_ not in _GRAMMARS:
        message = f"no value of JSON can be read as {type_}"
        raise TypeError(message)
    return _GRAMMARS[type_]


def _parse_decimals(text: pa.StringArray, type_: Decimal) -> pa.Array:
    read = read_numerics(text, type_)
    if read.misfits is not None:
        raise ValueError("a number has more digits than its column")
    return read.values


def _parse_reals(text: pa.StringArray, type_: pa.DataType) -> pa.Array:
    values = text.cast(type_)
    # Numbers that the type has no nearer one for than an infinity, or than nothing.
    is_digits = pc.match_substring_regex(text, pattern=r"^-?\d")
    is_lost = pc.or_(
        pc.and_(pc.is_inf(values), is_digits),
        pc.and_(pc.equal(values, 0), pc.match_substring_regex(text, pattern=r"^[^eE]*[1-9]")),
    )
    if pc.any(is_lost).as_py():
        raise ValueError("a number is out of the type's range")
    return values


def _parse_dates(text: pa.StringArray) -> pa.Array:
    _require_years(text)
    return text.cast(pa.date32())


def _parse_timestamps(text: pa.StringArray) -> pa.Array:
    # A writer whose clock knows zones shows the wall clock of such a column as UTC's.
    plain = pc.replace_substring_regex(text, pattern=rf"{_UTC_ZONE}$", replacement="")
    return _without_zeros(plain).cast(pa.timestamp("us"))


def _parse_moments(text: pa.StringArray) -> pa.Array:
    return _without_zeros(text).cast(pa.timestamp("us", tz="UTC"))


def _without_zeros(text: pa.StringArray) -> pa.StringArray:
    """Without zeros behind microseconds, which count for nothing."""
    _require_years(text)
    return pc.replace_substring_regex(text, pattern=r"(\.\d{6})0+", replacement=r"\1")


def _require_years(text: pa.StringArray) -> None:
    """There is no year 0."""
    if pc.any(pc.starts_with(text, "0000")).as_py():
        raise ValueError("a year is 0")


def _parse_uuids(text: pa.StringArray) -> pa.Array:
    return read_uuids(text).values


_GRAMMARS: Final[Mapping[Primitive, tuple[str, Parse]]] = {
    Primitive.BOOLEAN: ("true|false", lambda text: pc.equal(text, "true")),
    Primitive.INT: (_INTEGER, lambda text: text.cast(pa.int32())),
    Primitive.LONG: (_INTEGER, lambda text: text.cast(pa.int64())),
    Primitive.FLOAT: (_REAL, partial(_parse_reals, type_=pa.float32())),
    Primitive.DOUBLE: (_REAL, partial(_parse_reals, type_=pa.float64())),
    Primitive.DATE: (_DAY, _parse_dates),
    Primitive.TIMESTAMP: (rf"{_DAY}{_CLOCK}{_UTC_ZONE}?", _parse_timestamps),
    Primitive.TIMESTAMPTZ: (rf"{_DAY}{_CLOCK}{_ZONE}", _parse_moments),
    Primitive.UUID: (_UUID, _parse_uuids),
    Primitive.BINARY: (r"\\x(?:[0-9a-fA-F]{2})*", lambda text: read_bytea(text).values),
}
