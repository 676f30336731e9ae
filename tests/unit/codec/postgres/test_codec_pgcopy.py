"""The binary form of COPY, written here value by value and read by the codec all at once."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgcopy.fields import rows_alone, split_fields
from frazil.codec.pgcopy.values import Wire, convert_binary, read_numerics, wire_of
from frazil.codec.pgoutput.frames import Frames
from frazil.codec.pgtext.convert import convert
from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.model.policy import OnUnrepresentable
from frazil.model.schema.types import Decimal, Primitive
from tests.support.postgres.columns import OIDS, column, numeric, pg

if TYPE_CHECKING:
    from frazil.codec.pgcopy.fields import BinaryColumn
    from frazil.codec.pgtext.convert import Converted
    from frazil.model.postgres.types import ColumnPlan, PostgresType

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NAN, INFINITE, MINUS_INFINITE = "NaN", "Infinity", "-Infinity"


def row(*fields: bytes | None) -> bytes:
    return struct.pack(">h", len(fields)) + b"".join(map(field, fields))


def field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def one_column(*values: bytes | None) -> BinaryColumn:
    (found,) = split_fields(Frames.of([row(each) for each in values]), 1)
    return found


def read(plan: ColumnPlan, oid: int, *values: bytes | None) -> Converted:
    wire = wire_of(oid, plan)
    assert wire is not Wire.PRINTED
    return convert_binary(one_column(*values), plan, wire)


def numeric_bytes(text: str) -> bytes:
    """As numeric_send writes it."""
    special = {NAN: 0xC000, INFINITE: 0xD000, MINUS_INFINITE: 0xF000}
    if text in special:
        return struct.pack(">hhHh", 0, 0, special[text], 0)
    # The point lies between two groups of four.
    integer, _, fraction = text.removeprefix("-").partition(".")
    shown = len(fraction)
    integer = integer.rjust(-(-len(integer) // 4) * 4, "0")
    both = integer + fraction.ljust(-(-shown // 4) * 4, "0")
    groups = [int(both[at : at + 4]) for at in range(0, len(both), 4)]
    power = len(integer) // 4 - 1
    while groups and groups[0] == 0:
        del groups[0]
        power -= 1
    while groups and groups[-1] == 0:
        del groups[-1]
    sign = 0x4000 if groups and text.startswith("-") else 0
    head = struct.pack(">hhHh", len(groups), power if groups else 0, sign, shown)
    return head + struct.pack(f">{len(groups)}H", *groups)


def blocks(*messages: bytes, size: int) -> list[Frames]:
    found = []
    for at in range(0, len(messages), size):
        some = messages[at : at + size]
        data = BytesIO()
        found.append(Frames.written(data, [data.write(each) for each in some]))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("has_own_header", [True, False])
def test_the_rows_of_a_copy_are_those_between_header_and_end(
    size: int, *, has_own_header: bool
) -> None:
    rows = [row(b"a"), row(None), row(b"c" * 100)]
    messages = [HEADER, *rows] if has_own_header else [HEADER + rows[0], *rows[1:]]
    found = [
        frames.message(number)
        for frames in rows_alone(blocks(*messages, TRAILER, size=size))
        for number in range(len(frames))
    ]
    assert found == rows


@pytest.mark.parametrize("messages", [[HEADER + TRAILER], [HEADER, TRAILER]])
def test_a_copy_without_rows_is_complete(messages: list[bytes]) -> None:
    assert list(rows_alone(blocks(*messages, size=1))) == []


@pytest.mark.parametrize(
    ("messages", "missing"),
    [
        ([HEADER + row(b"a")], "the end"),
        ([row(b"a"), TRAILER], "the header"),
        ([HEADER.replace(b"\xff", b"\xfe") + row(b"a"), TRAILER], "the header"),
        ([HEADER[:-1] + b"\x01" + row(b"a"), TRAILER], "the header"),
        ([], "the end"),
    ],
)
def test_a_copy_that_is_cut_or_framed_otherwise_is_refused(
    messages: list[bytes], missing: str
) -> None:
    with pytest.raises(MalformedFileError, match=missing):
        list(rows_alone(blocks(*messages, size=2)))


def test_fields_of_all_sizes_are_distinguished_from_null() -> None:
    frames = Frames.of([row(b"", None, b"xyz"), row(None, b"1", b""), row(b"ab", b"", None)])
    first, second, third = (each.octets().to_pylist() for each in split_fields(frames, 3))
    assert (first, second, third) == ([b"", None, b"ab"], [None, b"1", b""], [b"xyz", b"", None])


def test_rows_without_fields_are_rows() -> None:
    assert split_fields(Frames.of([row(), row()]), 0) == ()


def test_no_rows_have_no_values() -> None:
    (column_,) = split_fields(Frames.of([]), 1)
    assert column_.octets().to_pylist() == []
    assert convert_binary(column_, column("int4"), Wire.INT4).values.to_pylist() == []


@pytest.mark.parametrize(
    "message",
    [
        b"\0",
        row(b"a", b"b"),
        row(b"a") + b"\0",
        row(b"abc")[:-1],
        row(b"abc")[:4],
        struct.pack(">hi", 1, -2),
        struct.pack(">hi", 1, 2**31 - 1),
    ],
)
def test_incomplete_rows_are_refused(message: bytes) -> None:
    with pytest.raises(MalformedFileError):
        split_fields(Frames.of([row(b"a"), message, row(b"a")]), 1)


SCALARS: list[tuple[str, str, list[tuple[object, object]]]] = [
    ("bool", ">?", [(True, True), (False, False)]),
    ("int2", ">h", [(each, each) for each in (-(2**15), -1, 0, 2**15 - 1)]),
    ("int4", ">i", [(each, each) for each in (-(2**31), -1, 0, 2**31 - 1)]),
    ("int8", ">q", [(each, each) for each in (-(2**63), -1, 0, 2**63 - 1)]),
    ("oid", ">I", [(each, each) for each in (0, 2**32 - 1)]),
    ("float4", ">f", [(0.5, 0.5), (float("inf"), float("inf"))]),
    ("float8", ">d", [(0.1, 0.1), (float("-inf"), float("-inf"))]),
    ("date", ">i", [(0, date(2000, 1, 1)), (-730119, date.min), (2921939, date.max)]),
    (
        "timestamp",
        ">q",
        [
            (-1, datetime(1999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001 - has none
            (-63082281600000000, datetime.min),  # noqa: DTZ901 - has none
            (252455615999999999, datetime.max),  # noqa: DTZ901 - has none
        ],
    ),
    ("timestamptz", ">q", [(0, datetime(2000, 1, 1, tzinfo=UTC))]),
]


@pytest.mark.parametrize(("type_", "form", "values"), SCALARS, ids=[each[0] for each in SCALARS])
def test_values_of_one_size_are_read(
    type_: str, form: str, values: list[tuple[object, object]]
) -> None:
    # The last row is a NULL, whose value would lie outside.
    sent = [None, *(struct.pack(form, value) for value, _ in values), None]
    found = read(column(type_), OIDS[type_], *sent).values
    assert found.to_pylist() == [None, *(expected for _, expected in values), None]
    found.validate(full=True)


@pytest.mark.parametrize("type_", [*(each[0] for each in SCALARS), "uuid", "numeric"])
def test_a_value_of_another_size_is_refused(type_: str) -> None:
    plan = column(numeric(12, 2) if type_ == "numeric" else type_)
    for wrong in (b"", b"\0" * 3, b"\0" * 17):
        with pytest.raises(MalformedFileError):
            read(plan, OIDS[type_], wrong)


def test_negative_zero_and_nan_keep_their_bits() -> None:
    sent = [struct.pack(">d", -0.0), struct.pack(">d", float("nan"))]
    zero, nan = read(column("float8"), OIDS["float8"], *sent).values.to_pylist()
    assert (np.signbit(zero), np.isnan(nan)) == (True, True)


@pytest.mark.parametrize(
    ("type_", "declared", "sent", "expected"),
    [
        ("int2", Primitive.LONG, struct.pack(">h", -5), -5),
        ("float4", Primitive.DOUBLE, struct.pack(">f", 0.1), float(np.float32(0.1))),
        (
            "timestamp",
            Primitive.TIMESTAMPTZ,
            struct.pack(">q", 0),
            datetime(2000, 1, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_column_may_be_declared_wider(
    type_: str, declared: Primitive, sent: bytes, expected: object
) -> None:
    plan = column(type_, declared=declared)
    assert read(plan, OIDS[type_], sent).values.to_pylist() == [expected]


def test_texts_bytes_and_uuids_are_read() -> None:
    some = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert read(column("text"), OIDS["text"], b"", None, "ż".encode()).values.to_pylist() == [
        "",
        None,
        "ż",
    ]
    assert read(column("jsonb"), OIDS["jsonb"], b"\x01null", None).values.to_pylist() == [
        "null",
        None,
    ]
    assert read(column("bytea"), OIDS["bytea"], b"\0\xff", None, b"").values.to_pylist() == [
        b"\0\xff",
        None,
        b"",
    ]
    assert read(column("uuid"), OIDS["uuid"], some.bytes, None).values.to_pylist() == [
        some.bytes,
        None,
    ]


@pytest.mark.parametrize(
    ("type_", "sent"), [("text", b"\xff"), ("jsonb", b"\x02null"), ("jsonb", b"\x01\xff")]
)
def test_text_that_is_none_is_refused_without_being_shown(type_: str, sent: bytes) -> None:
    right = b"\x01a" if type_ == "jsonb" else b"a"
    with pytest.raises(MalformedChangeError, match="'seen': 1 values"):
        read(column(type_), OIDS[type_], right, sent)


MISFITS = [
    ("date", struct.pack(">i", 2**31 - 1)),
    ("date", struct.pack(">i", -(2**31))),
    ("date", struct.pack(">i", -730120)),
    ("timestamp", struct.pack(">q", 2**63 - 1)),
    ("timestamptz", struct.pack(">q", -(2**63))),
    ("timestamptz", struct.pack(">q", 252455616000000000)),
]


@pytest.mark.parametrize(("type_", "sent"), MISFITS)
def test_times_that_iceberg_lacks_follow_the_policy(type_: str, sent: bytes) -> None:
    right = bytes(len(sent))
    with pytest.raises(UnrepresentableValueError, match="1 of 3"):
        read(column(type_), OIDS[type_], right, sent, None)
    nulling = column(type_, policy=OnUnrepresentable.NULL)
    found = read(nulling, OIDS[type_], right, sent, None)
    assert ([each.is_valid for each in found.values.is_null()], found.nulled) == ([True] * 3, 1)
    assert found.values.is_null().to_pylist() == [False, True, True]


numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda each: f"{each:f}"),
    st.integers(-(10**20), 10**20).map(str),
    st.tuples(st.integers(-(10**20), 10**20), st.integers(0, 30)).map(
        lambda each: f"{Number(each[0]).scaleb(-each[1]):f}"
    ),
    st.sampled_from([NAN, INFINITE, MINUS_INFINITE, "0.00", "1.5000", "1" + "0" * 130]),
)
decimals = st.integers(1, 18).flatmap(
    lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision))
)


@given(type_=decimals, texts=st.lists(st.one_of(st.none(), numbers), max_size=30))
@example(type_=Decimal(12, 2), texts=["9999999999.99", "10000000000", "0.001", "-0.01", None])
@example(type_=Decimal(18, 18), texts=["0." + "9" * 18, "1", "-0." + "0" * 17 + "1"])
@example(type_=Decimal(18, 0), texts=["9" * 18, "-" + "9" * 18, "1" + "0" * 18, "0.5"])
def test_a_numeric_is_what_its_text_says(type_: Decimal, texts: list[str | None]) -> None:
    plan = column("numeric", declared=type_, policy=OnUnrepresentable.NULL)
    sent = [None if each is None else numeric_bytes(each) for each in texts]
    found = read(plan, OIDS["numeric"], *sent)
    expected = convert(pa.array(texts, pa.string()), plan)
    assert (found.values, found.nulled) == (expected.values, expected.nulled)


def test_a_digit_that_is_none_is_refused() -> None:
    sent = numeric_bytes("1")[:-2] + struct.pack(">H", 10_000)
    with pytest.raises(MalformedFileError, match="below ten thousand"):
        read(column(numeric(18, 2)), OIDS["numeric"], numeric_bytes("1"), sent)


def test_a_decimal_that_is_wider_than_64_bits_is_read_from_text() -> None:
    plan = column(numeric(19, 2))
    assert wire_of(OIDS["numeric"], plan) is Wire.PRINTED
    assert convert_binary(one_column(b"1.50", None), plan, Wire.PRINTED).values.to_pylist() == [
        Number("1.50"),
        None,
    ]


def test_a_numeric_is_read_into_decimals_only() -> None:
    with pytest.raises(TypeError, match="string"):
        read_numerics(one_column(numeric_bytes("1")), Primitive.STRING)


@pytest.mark.parametrize(
    ("type_", "oid"),
    [(pg("int4[]"), 1007), (pg("time"), 1083), (pg("text"), 3500), (pg("timestamp"), 1184)],
)
def test_what_has_no_plain_binary_form_is_printed(type_: PostgresType, oid: int) -> None:
    assert wire_of(oid, column(type_)) is Wire.PRINTED


def test_a_printed_value_that_is_not_text_is_refused() -> None:
    with pytest.raises(MalformedChangeError, match="'seen': 1 values"):
        convert_binary(one_column(b"\xff", b"a"), column("time"), Wire.PRINTED)
