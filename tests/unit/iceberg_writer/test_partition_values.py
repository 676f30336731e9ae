from __future__ import annotations

import decimal
import uuid
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.write.partition_text import human_text, json_form, path_part
from frazil.clients.iceberg.write.partition_values import (
    hash_bytes,
    hash_longs,
    hash_text,
    transform_values,
)
from frazil.errors import UnrepresentableValueError
from frazil.model.schema.partitioning import TransformKind, parse_transform
from frazil.model.schema.types import Decimal, Fixed, Primitive, Scalar
from tests.unit.iceberg_writer.schemas import decimals

P = Primitive
D = decimal.Decimal


def signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def transformed(values: list[Any], type_: pa.DataType, source: Scalar, text: str) -> list[Any]:
    # With a row before that is cut away again: offsets must not be forgotten.
    array = pa.array([values[0], *values], type_).slice(1)
    result: list[Any] = transform_values(array, source, parse_transform(text)).to_pylist()
    return result


def test_hashes_are_those_of_icebergs_specification() -> None:
    assert hash_longs(np.array([34])).view(np.int32)[0] == 2017239379
    assert signed(hash_text("iceberg")) == 1210000089
    four = np.array([0, 1, 2, 3], np.uint8)
    assert hash_bytes(four, np.zeros(1, int), np.array([4])).view(np.int32)[0] == -188683207


# The specification's hashes, turned into buckets of two to the thirty-one less one.
WIDE = "bucket[2147483647]"
HASHES: list[tuple[Any, pa.DataType, Scalar, int]] = [
    (34, pa.int32(), P.INT, 2017239379),
    (34, pa.int64(), P.LONG, 2017239379),
    (D("14.20"), pa.decimal128(9, 2), Decimal(9, 2), -500754589),
    (17486, pa.date32(), P.DATE, -653330422),
    (81068000000, pa.time64("us"), P.TIME, -662762989),
    (1510871468000000, pa.timestamp("us"), P.TIMESTAMP, -2047944441),
    (1510871468000001, pa.timestamp("us"), P.TIMESTAMP, -1207196810),
    (1510871468000000, pa.timestamp("us", tz="UTC"), P.TIMESTAMPTZ, -2047944441),
    (1510871468000001001, pa.timestamp("ns"), P.TIMESTAMP_NS, -1207196810),
    (1510871468000001001, pa.timestamp("ns", tz="UTC"), P.TIMESTAMPTZ_NS, -1207196810),
    ("iceberg", pa.string(), P.STRING, 1210000089),
    (
        uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
        pa.binary(16),
        P.UUID,
        1488055340,
    ),
    (b"\x00\x01\x02\x03", pa.binary(4), Fixed(4), -188683207),
    (b"\x00\x01\x02\x03", pa.binary(), P.BINARY, -188683207),
]


@pytest.mark.parametrize(("value", "type_", "source", "expected"), HASHES)
def test_buckets_follow_the_specifications_hashes(
    value: Any, type_: pa.DataType, source: Scalar, expected: int
) -> None:
    buckets = transformed([value, None, value], type_, source, WIDE)
    positive = expected & 0x7FFFFFFF
    assert buckets == [positive % 2147483647, None, positive % 2147483647]


@given(st.lists(st.binary(max_size=40), min_size=1))
def test_many_byte_strings_hash_as_each_alone(values: list[bytes]) -> None:
    together = transformed(list(values), pa.binary(), P.BINARY, "bucket[1000]")
    alone = [transformed([each], pa.binary(), P.BINARY, "bucket[1000]")[0] for each in values]
    assert together == alone


@given(st.lists(decimals(Decimal(38, 0)), min_size=1))
def test_decimals_hash_by_their_significant_bytes(values: list[D]) -> None:
    found = transformed(list(values), pa.decimal128(38, 0), Decimal(38, 0), "bucket[1000]")
    shortest = [
        (number := int(each)).to_bytes(
            (number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True
        )
        for each in values
    ]
    assert found == transformed(shortest, pa.binary(), P.BINARY, "bucket[1000]")


MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2017, 11, 16, 22, 31, 8, 1, UTC),
    datetime(1965, 1, 1, tzinfo=UTC),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year", [-1, 0, -1969, 47, -5, None]),
        ("month", [-1, 0, -23628, 574, -60, None]),
        ("day", [-1, 0, -719162, 17486, -1826, None]),
        ("hour", [-1, 0, -17259888, 419686, -43824, None]),
    ],
)
def test_calendar_parts_count_from_1970_in_both_directions(
    text: str, expected: list[int | None]
) -> None:
    zoned = transformed([*MOMENTS, None], pa.timestamp("us", tz="UTC"), P.TIMESTAMPTZ, text)
    assert zoned == expected
    if text != "hour":
        days = [each.date() for each in MOMENTS]
        assert transformed([*days, None], pa.date32(), P.DATE, text) == expected
    # Nanoseconds reach from 1677 to 2262.
    recent = [each for each in MOMENTS if each.year > 1]
    wanted = [each for each, moment in zip(expected, MOMENTS, strict=False) if moment.year > 1]
    assert transformed(recent, pa.timestamp("ns"), P.TIMESTAMP_NS, text) == wanted


def test_truncation_of_numbers_goes_down_also_below_zero() -> None:
    numbers = [1, -1, 0, 19, -11, None]
    expected = [0, -10, 0, 10, -20, None]
    assert transformed(numbers, pa.int32(), P.INT, "truncate[10]") == expected
    assert transformed(numbers, pa.int64(), P.LONG, "truncate[10]") == expected


def test_truncation_at_the_end_of_the_numbers_wraps_as_javas_does() -> None:
    least = -(2**31)
    assert transformed([least], pa.int32(), P.INT, "truncate[10]") == [2147483646]


@given(st.lists(decimals(Decimal(38, 3)), min_size=1), st.integers(1, 2**31 - 1))
def test_truncation_of_decimals_is_that_of_their_unscaled_integers(
    values: list[D], width: int
) -> None:
    values = [each for each in values if abs(each) < D(10) ** 34] or [D("1.065")]
    source = Decimal(38, 3)
    text = f"truncate[{width}]"
    found = transformed([*values, None], pa.decimal128(38, 3), source, text)
    with decimal.localcontext(prec=60):
        unscaled = [int(each.scaleb(3)) for each in values]
        expected = [D(each - each % width).scaleb(-3) for each in unscaled]
    assert found == [*expected, None]


def test_a_decimal_that_underflows_is_refused_without_its_value() -> None:
    with pytest.raises(UnrepresentableValueError) as refusal:
        transformed([D("-0.98"), None], pa.decimal128(2, 2), Decimal(2, 2), "truncate[50]")
    assert "not all of them fit decimal128(2, 2)" in str(refusal.value)
    assert "98" not in str(refusal.value)


def test_truncation_of_text_counts_characters_and_of_bytes_counts_bytes() -> None:
    texts = ["iceberg", "\U0001f9ca\U0001f9ca\U0001f9ca\U0001f9ca", "é", "", None]
    short = ["ice", "\U0001f9ca\U0001f9ca\U0001f9ca", "é", "", None]
    assert transformed(texts, pa.string(), P.STRING, "truncate[3]") == short
    assert transformed([b"\xff\x00\x01\x02", None], pa.binary(), P.BINARY, "truncate[3]") == [
        b"\xff\x00\x01",
        None,
    ]


def test_void_is_null_whatever_the_column_holds() -> None:
    assert transformed([1, None], pa.int64(), P.LONG, "void") == [None, None]


@pytest.mark.parametrize(
    ("value", "kind", "type_", "human", "json_value"),
    [
        (None, TransformKind.IDENTITY, P.STRING, "null", None),
        (True, TransformKind.IDENTITY, P.BOOLEAN, "true", True),
        (-5, TransformKind.YEAR, P.INT, "1965", -5),
        (-1, TransformKind.MONTH, P.INT, "1969-12", -1),
        (-1, TransformKind.DAY, P.DATE, "1969-12-31", "1969-12-31"),
        (-1, TransformKind.HOUR, P.INT, "1969-12-31-23", -1),
        (3_000_000, TransformKind.DAY, P.DATE, "10183-09-21", "+10183-09-21"),
        (-719_529, TransformKind.DAY, P.DATE, "-001-12-31", "-0001-12-31"),
        (1, TransformKind.IDENTITY, P.TIMESTAMP, "1970-01-01T00:00:00.000001", None),
        (-1, TransformKind.IDENTITY, P.TIMESTAMPTZ, "1969-12-31T23:59:59.999999+00:00", None),
        (0, TransformKind.IDENTITY, P.TIMESTAMP, "1970-01-01T00:00:00", None),
        (1, TransformKind.IDENTITY, P.TIMESTAMPTZ_NS, "1970-01-01T00:00:00.000000001+00:00", None),
        (0, TransformKind.IDENTITY, P.TIME, "00:00", "00:00:00"),
        (1_500_000, TransformKind.IDENTITY, P.TIME, "00:00:01.500", "00:00:01.5"),
        (D("0.0000001"), TransformKind.IDENTITY, Decimal(9, 7), "1E-7", "0.0000001"),
        (1e7, TransformKind.IDENTITY, P.DOUBLE, "1.0E7", 1e7),
        (-0.0, TransformKind.IDENTITY, P.FLOAT, "-0.0", -0.0),
        (0.1, TransformKind.IDENTITY, P.FLOAT, "0.1", 0.1),
        (b"\xff\x00", TransformKind.IDENTITY, P.BINARY, "/wA=", "FF00"),
        (uuid.UUID(int=1), TransformKind.IDENTITY, P.UUID, str(uuid.UUID(int=1)), None),
    ],
)
def test_values_are_spelt_as_iceberg_spells_them(
    value: Any, kind: TransformKind, type_: Scalar, human: str, json_value: object
) -> None:
    assert human_text(value, kind, type_) == human
    assert json_form(value, type_) == (
        human if json_value is None and value is not None else json_value
    )


def test_paths_are_encoded_as_javas_forms_are() -> None:
    assert path_part("a b", "x/y=~*_.-é+") == "a+b=x%2Fy%3D%7E*_.-%C3%A9%2B"
