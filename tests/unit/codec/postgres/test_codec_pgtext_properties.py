"""Columns compared with the slow and obvious way to read each value."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal as Number
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.codec.pgtext.convert import convert
from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.model.policy import OnUnrepresentable
from frazil.model.schema.types import Decimal
from tests.support.postgres.columns import column, converted
from tests.support.postgres.printing import (
    MisfitError,
    StrangeError,
    array_elements,
    array_text,
    float_text,
    timestamp_text,
)
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable

NULL = OnUnrepresentable.NULL
MISFIT, STRANGE = "a misfit", "strange"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SPECIAL = st.text('{}",\\ ;NUL1:[]=\n', max_size=12)
DIGITS = st.text("0123456789", max_size=45).map(lambda digits: digits.lstrip("0") or "0")
FRACTIONS = st.text("0123456789", min_size=1, max_size=45) | st.text("0", min_size=1, max_size=60)


def column_of(values: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.none() | values, max_size=20)


def printed(values: list[object], name: str) -> list[str | None]:
    return [None if each is None else PRINTERS[name](each) for each in values]


PRINTERS: dict[str, Callable[[Any], str]] = {
    "int4": str,
    "int8": str,
    "date": lambda day: day.isoformat(),
    "timestamp": timestamp_text,
    "timestamptz": lambda moment: f"{timestamp_text(moment)}+00",
    "uuid": str,
    "bytea": lambda octets: f"\\x{octets.hex()}",
    "text": str,
    "bool": lambda truth: "t" if truth else "f",
}
VALUES: dict[str, st.SearchStrategy[object]] = {
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(datetime(1, 1, 1), datetime.max, timezones=st.just(UTC)),  # noqa: DTZ001, DTZ901 - bounds
    "uuid": st.uuids(),
    "bytea": st.binary(max_size=8),
    "text": TEXT,
    "bool": st.booleans(),
}


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_column_is_what_it_was_before_it_was_printed(name: str, data: st.DataObject) -> None:
    values = data.draw(column_of(VALUES[name]))
    found = converted(printed(values, name), name)
    found.values.validate(full=True)
    expected = [getattr(each, "bytes", each) for each in values]
    assert found.values.to_pylist() == expected


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=25)
@given(data=st.data())
def test_an_array_of_anything_is_what_it_was_before_it_was_printed(
    name: str, data: st.DataObject
) -> None:
    arrays = data.draw(st.lists(st.none() | column_of(VALUES[name]), max_size=8))
    texts = [None if each is None else array_text(printed(each, name)) for each in arrays]
    found = converted(texts, f"{name}[]")
    found.values.validate(full=True)
    expected = [
        None if each is None else [getattr(one, "bytes", one) for one in each] for each in arrays
    ]
    assert found.values.to_pylist() == expected


@examples(80)
@given(st.lists(st.none() | st.floats()))
def test_a_double_has_every_bit_that_python_reads(numbers: list[float | None]) -> None:
    texts = [None if each is None else float_text(each) for each in numbers]
    found = converted(texts, "float8").values.to_pylist()
    assert [bits(each) for each in found] == [
        None if each is None else bits(float(each)) for each in texts
    ]


@examples(80)
@given(st.lists(st.none() | st.floats(width=32)))
def test_a_real_is_the_number_that_was_printed_and_not_rounded_twice(
    numbers: list[float | None],
) -> None:
    texts = [None if each is None else float_text(each, width=32) for each in numbers]
    found = converted(texts, "float4").values.to_pylist()
    nothing = float("nan")
    assert [bits(each) for each in found] == [
        None if each is None else bits(nothing if each != each else each)  # noqa: PLR0124
        for each in numbers
    ]


@given(st.integers(0, 2**53), st.integers(-330, 310), st.booleans())
def test_any_digits_are_rounded_to_the_nearest_double(
    digits: int,
    exponent: int,
    negative: bool,  # noqa: FBT001
) -> None:
    text = f"{'-' * negative}{digits}e{exponent:+}"
    number = float(text)
    if number in {0, float("inf"), float("-inf")} and text not in {"0", "-0"}:
        with pytest.raises(MalformedChangeError):
            converted([text], "float8")
    else:
        assert bits(converted([text], "float8").values[0].as_py()) == bits(number)


def bits(number: float | None) -> bytes | None:
    if number is None:
        return None
    # All NaNs are one; everything else is compared with its sign and its last bit.
    return b"NaN" if number != number else struct.pack(">d", number)  # noqa: PLR0124


@st.composite
def numerics(draw: st.DrawFn) -> str:
    sign, digits = draw(st.sampled_from(["", "-"])), draw(DIGITS)
    fraction = draw(st.none() | FRACTIONS)
    return f"{sign}{digits}" if fraction is None else f"{sign}{digits}.{fraction}"


@st.composite
def decimals(draw: st.DrawFn) -> Decimal:
    precision = draw(st.integers(1, 38))
    return Decimal(precision, draw(st.integers(0, precision)))


@examples(100)
@given(st.lists(numerics() | st.sampled_from(["NaN", "Infinity", "-Infinity"])), decimals())
def test_a_decimal_holds_a_number_exactly_when_arithmetic_says_so(
    texts: list[str], type_: Decimal
) -> None:
    found = converted(texts, "numeric", declared=type_, policy=NULL)
    expected = [number_in(text, type_) for text in texts]
    assert found.values.to_pylist() == expected
    assert found.nulled == expected.count(None)


def number_in(text: str, type_: Decimal) -> Number | None:
    if not Number(text).is_finite():
        return None
    unscaled = Fraction(text) * 10**type_.scale
    fits = unscaled.denominator == 1 and abs(unscaled) < 10**type_.precision
    return Number(text) if fits else None


@examples(200)
@given(st.lists(SPECIAL | SPECIAL.map("{{{}}}".format), min_size=1, max_size=4))
def test_any_text_at_all_is_an_array_exactly_when_a_slow_reader_says_so(texts: list[str]) -> None:
    readings = [slowly_read(text) for text in texts]
    strange = readings.count(STRANGE)
    if strange:
        with pytest.raises(MalformedChangeError, match=f"'seen': {strange} values"):
            converted(texts, "text[]", policy=NULL)
    else:
        found = converted(texts, "text[]", policy=NULL)
        assert found.values.to_pylist() == [None if each == MISFIT else each for each in readings]
        assert found.nulled == readings.count(MISFIT)


def slowly_read(text: str) -> list[str | None] | str:
    try:
        return array_elements(text)
    except MisfitError:
        return MISFIT
    except StrangeError:
        return STRANGE


@given(st.lists(st.lists(st.none() | SPECIAL, max_size=4), max_size=4))
def test_elements_come_back_whatever_they_are_made_of(arrays: list[list[str | None]]) -> None:
    assert converted([array_text(each) for each in arrays], "text[]").values.to_pylist() == arrays


@given(st.lists(st.lists(st.none() | st.text("(),;1", max_size=6), max_size=3), max_size=4))
def test_boxes_are_kept_apart_by_semicolons(arrays: list[list[str | None]]) -> None:
    texts = [array_text(each, ";") for each in arrays]
    assert converted(texts, "box[]").values.to_pylist() == arrays


@given(st.lists(st.sampled_from(["{2020-01-01}", "{infinity,2020-01-01}", "{{2020-01-01}}", None])))
def test_an_array_with_an_element_that_does_not_fit_is_null(
    texts: list[str | None],
) -> None:
    found = converted(texts, "date[]", policy=NULL)
    found.values.validate(full=True)
    assert [each is not None for each in found.values.to_pylist()] == [
        each == "{2020-01-01}" for each in texts
    ]
    assert found.nulled == sum(each not in {None, "{2020-01-01}"} for each in texts)
    # Nothing lies beneath a null.
    assert len(found.values.values) == len(found.values.flatten())


@given(st.lists(st.sampled_from(["2020-01-01", "infinity", "0044-03-15 BC"]), min_size=1))
def test_one_value_that_does_not_fit_is_enough_to_fail(texts: list[str]) -> None:
    if set(texts) == {"2020-01-01"}:
        assert converted(texts, "date").values.null_count == 0
    else:
        misfits = len(texts) - texts.count("2020-01-01")
        with pytest.raises(UnrepresentableValueError, match=f"{misfits} of {len(texts)} "):
            converted(texts, "date")


def test_a_million_bytes_in_one_value_are_no_special_case() -> None:
    octets = bytes(range(256)) * 4096
    text = f"\\x{octets.hex()}"
    assert converted([text, None, text], "bytea").values.to_pylist() == [octets, None, octets]
    texts = ["word " * 1000] * 200
    assert converted([array_text(texts)], "text[]").values.to_pylist() == [texts]


def test_text_itself_is_not_copied() -> None:
    text = pa.array(["a", None])
    assert convert(text, column("text")).values is text
