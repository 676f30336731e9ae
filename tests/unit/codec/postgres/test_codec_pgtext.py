"""Text of Postgres becomes values: exactly, or not at all."""

from __future__ import annotations

import math
import traceback
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal as Number

import pyarrow as pa
import pytest

from frazil.codec.pgtext.convert import convert
from frazil.errors import FrazilError, MalformedChangeError, UnrepresentableValueError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import ColumnPlan, Form, PostgresType, TypeKind
from frazil.model.schema.types import Decimal, Primitive, list_of
from tests.support.postgres.columns import column, converted, numeric

NULL, STRING = OnUnrepresentable.NULL, OnUnrepresentable.STRING
LONGEST_TEXT = "9" * 131_072


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("bool", "t", True),
        ("bool", "f", False),
        ("int2", "-32768", -32768),
        ("int4", "2147483647", 2147483647),
        ("int8", "-9223372036854775808", -(2**63)),
        ("int8", "0", 0),
        ("oid", "4294967295", 2**32 - 1),
        ("float4", "3.4028235e+38", 3.4028234663852886e38),
        ("float4", "1e-45", 1.401298464324817e-45),
        ("float4", "0.1", 0.10000000149011612),
        ("float8", "1.7976931348623157e+308", 1.7976931348623157e308),
        ("float8", "5e-324", 5e-324),
        ("float8", "100000000000000", 1e14),
        ("float8", "Infinity", math.inf),
        ("float8", "-Infinity", -math.inf),
        ("text", "", ""),
        ("text", "NULL", "NULL"),
        ("text", "żółw\n\t\\ 🐢", "żółw\n\t\\ 🐢"),
        ("bpchar", "ab   ", "ab   "),
        ("char", "\\303", "\\303"),
        ("json", '{"b": 1,  "a": null, "a": 2}', '{"b": 1,  "a": null, "a": 2}'),
        ("json", "null", "null"),
        ("time", "24:00:00", "24:00:00"),
        ("time", "12:34:56.5", "12:34:56.5"),
        ("numeric", "NaN", "NaN"),
        ("numeric", LONGEST_TEXT, LONGEST_TEXT),
        ("date", "0001-01-01", date(1, 1, 1)),
        ("date", "9999-12-31", date(9999, 12, 31)),
        ("date", "2000-02-29", date(2000, 2, 29)),
        ("timestamp", "0001-01-01 00:00:00", datetime(1, 1, 1)),  # noqa: DTZ001 - it has no zone
        ("timestamptz", "1969-12-31 23:00:00.9+00", datetime(1969, 12, 31, 23, 0, 0, 900000, UTC)),
        (
            "timestamptz",
            "9999-12-31 23:59:59.999999+00",
            datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        ),
        ("uuid", "00112233-4455-6677-8899-aabbccddeeff", bytes(range(0, 256, 17))),
        ("text[]", '{NULL,NUTS,FULL,"NULL",NULLS}', [None, "NUTS", "FULL", "NULL", "NULLS"]),
        ("bytea", "\\x", b""),
        ("bytea", "\\x00ff5c78", b"\x00\xff\\x"),
    ],
)  # fmt: skip
def test_a_value_is_what_was_printed_and_null_stays_null(
    name: str, text: str, value: object
) -> None:
    found = converted([None, text, None, text], name)
    assert found.values.to_pylist() == [None, value, None, value]
    assert found.nulled == 0


def test_minus_zero_and_nan_survive() -> None:
    for name in ("float4", "float8"):
        zero, nothing = converted(["-0", "NaN"], name).values.to_pylist()
        assert math.copysign(1, zero) == -1
        assert math.isnan(nothing)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("bool", pa.bool_()),
        ("int2", pa.int32()),
        ("int8", pa.int64()),
        ("float4", pa.float32()),
        ("float8", pa.float64()),
        ("text", pa.string()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", tz="UTC")),
        ("uuid", pa.binary(16)),
        ("bytea", pa.binary()),
    ],
)
def test_no_values_and_only_nulls_have_the_right_type_too(name: str, type_: pa.DataType) -> None:
    for text in ([], [None, None]):
        values = converted(text, name).values
        assert values.type == type_
        assert values.to_pylist() == text
        lists = converted(text, f"{name}[]").values
        assert lists.type == pa.list_(pa.field("element", type_))
        assert lists.to_pylist() == text


def test_a_declared_type_widens_without_changing_a_value() -> None:
    assert converted(["7"], "int2", declared=Primitive.LONG).values == pa.array([7], pa.int64())
    widened = converted(["0.1"], "float4", declared=Primitive.DOUBLE).values
    assert widened.to_pylist() == [0.10000000149011612]
    moment = converted(["2020-01-01 00:00:00"], "timestamp", declared=Primitive.TIMESTAMPTZ).values
    assert moment.to_pylist() == [datetime(2020, 1, 1, tzinfo=UTC)]
    name = "00112233-4455-6677-8899-aabbccddeeff"
    assert converted([name], "uuid", declared=Primitive.STRING).values.to_pylist() == [name]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.50", "1.5"),
        ("-12345678.99", "-12345678.99"),
        ("99999999.99", "99999999.99"),
        ("0.00", "0"),
        ("7", "7"),
        ("7.100000000000000000000000000000000000000000000000000000", "7.1"),
    ],
)
def test_a_numeric_that_fits_is_the_same_number(text: str, number: str) -> None:
    assert converted([text, None], numeric(10, 2)).values.to_pylist() == [Number(number), None]


def test_thousands_and_small_fractions_fit_the_decimals_made_for_them() -> None:
    assert converted(["99000"], numeric(2, -3)).values.to_pylist() == [Number(99000)]
    assert converted(["0.00999"], numeric(3, 5)).values.to_pylist() == [Number("0.00999")]


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "100000000.00", "1.001", f"1{'0' * 30}5"]
)
def test_a_numeric_that_does_not_fit_is_never_rounded_or_clamped(text: str) -> None:
    declared = Decimal(10, 2)
    with pytest.raises(UnrepresentableValueError, match="1 of 3"):
        converted(["1.00", text, None], "numeric", declared=declared)
    nulled = converted(["1.00", text, None], "numeric", declared=declared, policy=NULL)
    assert (nulled.values.to_pylist(), nulled.nulled) == ([Number(1), None, None], 1)
    kept = converted(["1.00", text, None], numeric(10, 2), policy=STRING)
    assert kept.values.to_pylist() == ["1.00", text, None]


# What lies just outside wraps around in readers that do not check: 2**128 + 1 resembles 1.
@pytest.mark.parametrize("text", [str(2**128 + 1), str(10**38), f"{10**38}.00", f"0.{'0' * 38}1"])
def test_the_widest_decimal_refuses_what_is_wider(text: str) -> None:
    assert converted([text], "numeric", declared=Decimal(38, 0), policy=NULL).nulled == 1


@pytest.mark.parametrize(
    ("name", "text", "fitting"),
    [
        ("date", "infinity", "2020-01-01"),
        ("date", "-infinity", "2020-01-01"),
        ("date", "0044-03-15 BC", "2020-01-01"),
        ("date", "4714-11-24 BC", "2020-01-01"),
        ("date", "10000-01-01", "2020-01-01"),
        ("date", "5874897-12-31", "2020-01-01"),
        ("timestamp", "infinity", "2020-01-01 00:00:00"),
        ("timestamp", "4714-11-24 00:00:00 BC", "2020-01-01 00:00:00"),
        ("timestamp", "294276-12-31 23:59:59.999999", "2020-01-01 00:00:00"),
        ("timestamptz", "-infinity", "2020-01-01 00:00:00+00"),
        ("timestamptz", "0044-03-15 00:00:00.5+00 BC", "2020-01-01 00:00:00+00"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00", "2020-01-01 00:00:00+00"),
        ("date[]", "{2020-01-01,infinity}", "{2020-01-01}"),
        ("int4[]", "[2:3]={1,2}", "{1,2}"),
        ("int4[]", "[0:0][-1:0]={{1,2}}", "{1,2}"),
        ("int4[]", "{{1,2},{3,4}}", "{}"),
        ("text[]", '{{a,"b}"},{NULL,""}}', '{"{{a"}'),
    ],
)
def test_what_iceberg_lacks_goes_where_the_policy_says(name: str, text: str, fitting: str) -> None:
    sent = [fitting, text, None, text]
    with pytest.raises(UnrepresentableValueError, match="'seen': 2 of 4") as refused:
        converted(sent, name)
    assert_shows_no_value(refused.value, text)

    nulled = converted(sent, name, policy=NULL)
    (value,) = converted([fitting], name).values.to_pylist()
    assert nulled.values.to_pylist() == [value, None, None, None]
    assert nulled.nulled == 2
    nulled.values.validate(full=True)

    kept = converted(sent, name, policy=STRING)
    assert (kept.values.to_pylist(), kept.nulled) == (sent, 0)


def test_a_declared_type_is_kept_under_string_and_what_does_not_fit_it_refused() -> None:
    with pytest.raises(UnrepresentableValueError):
        converted(["infinity"], "date", declared=Primitive.DATE, policy=STRING)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("bool", ["true", "T", "1", ""]),
        ("int4", ["", "0x10", "+1", " 1", "1\n", "007", "-0", "1.0", "2147483648", "１"]),
        ("int8", ["9223372036854775808", "1e3"]),
        ("float4", ["1e39", "1e-46", "", "inf", "nan", "0x1p3", ".5", "5.", "1,5"]),
        ("float8", ["1e309", "-1e309", "1e-400", "infinity", "Inf"]),
        ("numeric", ["", "1e5", ".5", "5.", "+1", "nan", "$1.00", "1,000.00", "0x1"]),
        ("date", ["", "0000-01-01", "2023-02-29", "2023-13-01", "31/12/2020", "Infinity"]),
        ("timestamp", ["2020-01-01", "2020-01-01T00:00:00", "2020-01-01 24:00:00"]),
        ("timestamp", ["2020-01-01 00:00:00+00", "Wed Jan 01 00:00:00 2020"]),
        ("timestamp", ["2020-01-01 00:00:60", "2020-01-01 00:00:00.1234567"]),
        ("timestamptz", ["2020-01-01 00:00:00", "2020-01-01 05:30:00+05:30"]),
        ("uuid", ["", "00112233445566778899aabbccddeeff", "0011223-34455-6677-8899-aabbccddeeff"]),
        ("uuid", ["0123456789abcdef" * 2 + "0123"]),
        ("uuid", ["00112233-4455-6677-8899-aabbccddeefg", "00112233-4455-6677-8899-aabbccddee  "]),
        ("bytea", ["", "\\", "abc", "\\000", "\\x0", "\\x0g", "\\\\x00", "x00", "\\X00", "\\x 0"]),
        ("int4[]", ["", "{", "1,2", "{1,2", "{1,,2}", "{,1}", "{1,}", "{1}{2}", "{1,{2}}", "{a}"]),
        ("text[]", ['{"a}', '{a"b"}', '{"a"b}', "{a\\b}", '{"a\\"}', "{a}b", "[1:2]="]),
    ],
)  # fmt: skip
def test_what_postgres_does_not_print_stops_whatever_the_policy(
    name: str, texts: list[str]
) -> None:
    declared = Decimal(10, 2) if name == "numeric" else None
    good = {"text[]": "{}", "int4[]": "{}"}.get(name)
    for text in texts:
        for policy in (OnUnrepresentable.FAIL, NULL):
            with pytest.raises(MalformedChangeError, match="'seen': 2 values") as refused:
                converted([text, good, None, text], name, declared=declared, policy=policy)
            assert_shows_no_value(refused.value, text)


@pytest.mark.parametrize("name", ["bool", "int4", "float8", "date", "uuid", "bytea", "int4[]"])
def test_a_column_of_nothing_but_empty_text_is_refused_unless_it_is_text(name: str) -> None:
    empty = pa.array(["", ""])
    assert convert(empty, column("text")).values == empty
    with pytest.raises(MalformedChangeError, match="2 values"):
        convert(empty, column(name))


def assert_shows_no_value(error: FrazilError, text: str) -> None:
    """Neither the message nor the error behind it: that of Arrow quotes what it could not parse."""
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = "".join(traceback.format_exception_only(error))
    assert len(text) < 5 or text not in shown


def test_text_that_is_not_utf_8_is_refused() -> None:
    latin = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xe9")]
    )
    with pytest.raises(MalformedChangeError, match="1 values"):
        convert(latin, column("text"))
    with pytest.raises(MalformedChangeError, match="2 values"):
        convert(latin, column("date"))


def test_the_error_of_a_column_names_its_type_and_what_to_do() -> None:
    with pytest.raises(UnrepresentableValueError) as refused:
        converted(["infinity"], "timestamptz")
    shown = str(refused.value)
    assert "timestamptz" in shown
    assert "on_unrepresentable" in shown
    with pytest.raises(UnrepresentableValueError, match="NaN"):
        converted(["NaN"], numeric(5, 2))
    with pytest.raises(UnrepresentableValueError, match="dimensions"):
        converted(["{{1}}"], "int4[]")


def test_a_label_that_an_enum_got_later_needs_no_new_plan() -> None:
    mood = PostgresType(99_999, "mood", TypeKind.ENUM)
    assert converted(["sad", "a label added later"], mood).values.to_pylist() == [
        "sad",
        "a label added later",
    ]


def test_a_plan_that_contradicts_itself_is_a_mistake_of_the_program() -> None:
    text = pa.array(["1"])
    for type_ in (Primitive.BOOLEAN, Decimal(5, 2), list_of(1, Primitive.INT)):
        with pytest.raises(TypeError, match="integer"):
            convert(text, ColumnPlan("seen", "int4", type_, Form.INTEGER))


def test_a_uuid_is_its_sixteen_bytes() -> None:
    names = [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]
    values = converted([str(each) for each in names], "uuid").values
    assert values.to_pylist() == [each.bytes for each in names]
