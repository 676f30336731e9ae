"""The hash of a key; tests/spark/lake/test_key_expressions.py holds Spark to the same."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal as Number

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.key_hashing import hash_column, hashes_columns
from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.key_index import KeyHash, plan_key_hash
from frazil.model.schema.types import Decimal, Fixed, Primitive, Scalar
from tests.support.codec.golden_keys import GoldenKey, golden_keys
from tests.support.codec.key_hash import encode_key, hash_key, xxh64_of_long
from tests.support.codec.xxh64_inverse import long_of_hash

LONGS = st.integers(-(2**63), 2**63 - 1)
BITS = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
UNHASHED = {Primitive.TIME, Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS}
GOLDEN = golden_keys()


def one(value: object, type_: Scalar) -> tuple[int, int]:
    return hash_key([value], [type_])


@pytest.mark.parametrize("key", GOLDEN, ids=str)
def test_the_hash_of_a_golden_key_stays_what_it_is(key: GoldenKey) -> None:
    assert hash_key(key.values, key.types) == (key.hi, key.lo)
    if key.encoded is not None:
        assert encode_key(key.values, key.types) == key.encoded


COLUMNS = {
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.DATE: pa.date32(),
    Primitive.TIMESTAMP: pa.timestamp("us"),
    Primitive.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    Primitive.UUID: pa.binary(16),
}


@pytest.mark.parametrize("type_", COLUMNS, ids=str)
def test_columns_are_hashed_like_their_values(type_: Primitive) -> None:
    keys = [each for each in GOLDEN if each.types == (type_,)]
    values = [
        each.bytes if isinstance(each, uuid.UUID) else each
        for (each,) in (key.values for key in keys)
    ]
    # From the second value on: a slice has its values at an offset.
    column = pa.array([values[0], *values], COLUMNS[type_]).slice(1)
    hash_ = plan_key_hash([type_])
    assert hashes_columns(hash_)
    hi, lo = hash_column(column, hash_)
    lower = [0] * len(keys) if lo is None else lo.tolist()
    assert list(zip(hi.tolist(), lower, strict=True)) == [(key.hi, key.lo) for key in keys]


@given(st.lists(LONGS, min_size=1))
def test_columns_of_longs_are_hashed_like_each_of_them(values: list[int]) -> None:
    hi, lo = hash_column(pa.array(values, pa.int64()), KeyHash.XXHASH64)
    assert lo is None
    assert hi.tolist() == [xxh64_of_long(each) for each in values]


def test_every_type_that_a_key_can_have_is_among_the_golden_ones() -> None:
    found = {
        type_ if isinstance(type_, Primitive) else type(type_)
        for key in GOLDEN
        for type_ in key.types
    }
    assert found == (set(Primitive) - UNHASHED) | {Decimal, Fixed}


def test_different_golden_keys_of_the_same_columns_have_different_hashes() -> None:
    by_hash: dict[object, set[object]] = {}
    for key in GOLDEN:
        # Zero has two signs, and NaN is not equal to itself.
        values = tuple("NaN" if value != value else value for value in key.values)  # noqa: PLR0124
        widened = str(key.types).replace("int", "long").replace("float", "double")
        by_hash.setdefault((widened, key.hi, key.lo), set()).add(values)
    assert all(len(values) == 1 for values in by_hash.values())


@given(LONGS)
def test_the_hash_of_a_long_can_be_taken_back_so_that_no_two_longs_share_one(value: int) -> None:
    assert long_of_hash(xxh64_of_long(value)) == value % 2**64
    assert one(value, Primitive.LONG) == (xxh64_of_long(value), 0)


@given(BITS)
def test_every_hash_is_that_of_some_long(bits: int) -> None:
    assert xxh64_of_long(long_of_hash(bits)) == bits


@given(st.uuids())
def test_the_hash_of_a_uuid_keeps_both_its_halves(value: uuid.UUID) -> None:
    hi, lo = one(value, Primitive.UUID)
    assert uuid.UUID(int=long_of_hash(hi) << 64 | lo) == value


@given(st.lists(TEXT, min_size=2, max_size=2), st.lists(TEXT, min_size=2, max_size=2))
def test_texts_that_join_to_the_same_are_different_keys(one: list[str], other: list[str]) -> None:
    types = [Primitive.STRING, Primitive.STRING]
    assert (encode_key(one, types) == encode_key(other, types)) == (one == other)


def test_the_order_of_the_columns_counts() -> None:
    assert hash_key([1, 2], [Primitive.LONG] * 2) != hash_key([2, 1], [Primitive.LONG] * 2)


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_int_that_becomes_a_long_keeps_its_hash(value: int) -> None:
    assert one(value, Primitive.INT) == one(value, Primitive.LONG)
    with_text = [
        hash_key([value, "x"], [type_, Primitive.STRING])
        for type_ in (Primitive.INT, Primitive.LONG)
    ]
    assert with_text[0] == with_text[1]


@given(st.floats(width=32))
def test_a_float_that_becomes_a_double_keeps_its_hash(value: float) -> None:
    assert one(value, Primitive.FLOAT) == one(value, Primitive.DOUBLE)


def test_zero_has_one_hash_whatever_its_sign_and_so_has_every_nan() -> None:
    assert one(-0.0, Primitive.DOUBLE) == one(0.0, Primitive.DOUBLE)
    bits = (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF)
    numbers = [struct.unpack(">d", each.to_bytes(8, "big"))[0] for each in bits]
    assert len({one(each, Primitive.DOUBLE) for each in numbers}) == 1


@given(st.integers(-(10**30), 10**30), st.integers(0, 8), st.integers(0, 8))
def test_a_decimal_is_hashed_as_the_number_it_is_however_many_zeros_it_ends_in(
    unscaled: int, scale: int, zeros: int
) -> None:
    short, long = (
        Number(f"{unscaled}E-{scale}"),
        Number(f"{unscaled}{'0' * zeros}E-{scale + zeros}"),
    )
    assert one(short, Decimal(38, scale)) == one(long, Decimal(38, scale + zeros))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("0", "0E0"), ("0.00", "0E0"), ("-0.0", "0E0"), ("1.0", "1E0"), ("1.00", "1E0"),
        ("100", "1E2"), ("100.00", "1E2"), ("-12.30", "-123E-1"), ("0.05", "5E-2"),
        ("1E+3", "1E3"), ("1050", "105E1"),
    ],
)  # fmt: skip
def test_a_decimal_is_written_without_trailing_zeros(value: str, written: str) -> None:
    head = b"d" + len(written).to_bytes(4, "big")
    assert encode_key([Number(value)], [Decimal(38, 2)]) == head + written.encode()


def test_an_instant_has_one_hash_in_every_zone() -> None:
    moment = datetime(2021, 3, 14, 7, 30, tzinfo=UTC)
    east = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert one(moment, Primitive.TIMESTAMPTZ) == one(east, Primitive.TIMESTAMPTZ)
    # And that of the same clock without a zone.
    assert one(moment, Primitive.TIMESTAMPTZ) == one(
        moment.replace(tzinfo=None), Primitive.TIMESTAMP
    )


def test_bytes_of_a_fixed_length_are_bytes() -> None:
    assert one(b"abcd", Fixed(4)) == one(b"abcd", Primitive.BINARY) != one("abcd", Primitive.STRING)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (None, Primitive.LONG), (None, Primitive.STRING), (True, Primitive.LONG),
        (1.0, Primitive.LONG), (1, Primitive.DOUBLE), (1, Primitive.BOOLEAN),
        (date(2024, 1, 1), Primitive.TIMESTAMP), (datetime(2024, 1, 1, tzinfo=UTC), Primitive.DATE),
        (datetime(2024, 1, 1, tzinfo=UTC), Primitive.TIMESTAMP),
        (datetime(2024, 1, 1), Primitive.TIMESTAMPTZ),  # noqa: DTZ001 - that is what is refused
        ("secret", Primitive.BINARY), (b"secret", Primitive.STRING), ("secret", Primitive.UUID),
        (1.5, Decimal(10, 1)), (Number("NaN"), Decimal(10, 1)), ("secret", Fixed(6)),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_and_not_shown(value: object, type_: Scalar) -> None:
    for values, types in (([value], [type_]), ([value, 1], [type_, Primitive.INT])):
        with pytest.raises(TypeError) as refused:
            hash_key(values, types)
        assert "secret" not in str(refused.value)


def test_a_number_beyond_a_long_is_refused() -> None:
    with pytest.raises(OverflowError):
        one(2**63, Primitive.LONG)


def test_a_key_has_a_value_for_each_of_its_columns() -> None:
    with pytest.raises(ValueError, match="argument"):
        hash_key([1], [Primitive.LONG, Primitive.LONG])


@pytest.mark.parametrize("type_", sorted(UNHASHED))
def test_what_spark_cannot_read_is_not_hashed(type_: Primitive) -> None:
    with pytest.raises(UnsupportedSchemaChangeError, match=type_.value):
        hash_key([0], [type_])
