"""Columns of a topic's records: exact where they can be read, and named where they cannot."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.config.models.kafscale_source import TopicColumn, TopicColumnType
from frazil.sources.kafscale.records.json_columns import (
    ARROW_TYPES,
    JsonColumns,
    ReadColumns,
    ValueProblem,
    ValueProblemKind,
)
from tests.support.sampling import examples

WRONG = ValueProblemKind.WRONG_TYPE
RANGE = ValueProblemKind.OUT_OF_RANGE
NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)


def read(type_: str, *values: bytes | None, required: bool = False) -> ReadColumns:
    column = TopicColumn(name="c", type=TopicColumnType(type_), required=required)
    return JsonColumns([column]).read(pa.array(values, pa.binary()))


def value_of(type_: str, text: str) -> Any:
    """The value of one field, or the kind of problem."""
    found = read(type_, b'{"c": %s, "other": [1, {}]}' % text.encode())
    if found.problems:
        assert found.arrays[0].to_pylist() == [None]
        return found.problems[0].kind
    return found.arrays[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", "1", WRONG),
        ("int", "2147483647", 2**31 - 1),
        ("int", "2147483648", RANGE),
        ("int", "3e9", RANGE),
        ("int", "-1.9", -1),
        ("int", '"1"', WRONG),
        ("int", "true", WRONG),
        ("long", "9007199254740993", 2**53 + 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", RANGE),
        ("float", "1.5", 1.5),
        ("float", "1e39", RANGE),
        ("double", "1e39", 1e39),
        ("double", "7", 7.0),
        ("double", "1" + "0" * 400, RANGE),
        ("string", '"é"', "é"),
        ("string", "1", WRONG),
        ("string", "{}", WRONG),
        ("binary", '"é"', "é".encode()),
        ("binary", "[]", WRONG),
        ("timestamp", "1704196800000", NOON),
        ("timestamp", '"2024-01-02T12:00:00Z"', NOON),
        ("timestamp", '"2024-01-02T14:00:00.000001+02:00"', NOON + timedelta(microseconds=1)),
        ("timestamp", '"1969-12-31T23:59:59.5Z"', datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)),
        ("timestamp", '"2024-01-02"', WRONG),
        ("timestamp", '"2024-01-02 12:00:00Z"', WRONG),
        ("timestamp", '"2024-01-02T12:00:00"', WRONG),
        ("timestamp", '"2024-02-30T12:00:00Z"', RANGE),
        ("timestamp", "9223372036854775807", RANGE),
        ("date", "19724", date(2024, 1, 2)),
        ("date", '"2024-01-02"', date(2024, 1, 2)),
        ("date", '"2024-01-02T23:59:59Z"', date(2024, 1, 2)),
        ("date", '"1969-12-31T01:00:00Z"', date(1969, 12, 31)),
        ("date", '"2024-13-01"', RANGE),
        ("date", "true", WRONG),
        ("date", "2932897", RANGE),
        ("string", "null", None),
    ],
)
@pytest.mark.fault("U15")
def test_a_value_is_exact_or_its_problem_is_named(type_: str, text: str, expected: object) -> None:
    found = value_of(type_, text)
    if isinstance(found, datetime):
        found = found.replace(tzinfo=UTC)
    assert found == expected
    assert type(found) is type(expected)


def test_what_is_no_json_object_has_no_columns_and_is_named_once() -> None:
    damaged = [b"[]", b"1", b"{", b"not json", b'{"c": "\xff"}', b"[" * 100_000]
    found = read("string", None, b"", *damaged, b'{"c": "x"}', required=False)
    assert found.arrays[0].to_pylist() == [None] * 8 + ["x"]
    assert found.problems == tuple(
        ValueProblem(at, None, ValueProblemKind.NOT_JSON) for at in range(2, 8)
    )


def test_a_required_value_that_is_missing_is_a_problem_of_its_record() -> None:
    found = read("long", b'{"c": 1}', b"{}", b'{"c": null}', None, b"[]", b'{"c": "x"}',
                 required=True)  # fmt: skip
    missing = ValueProblemKind.MISSING
    assert sorted(found.problems, key=lambda each: each.row) == [
        ValueProblem(1, "c", missing),
        ValueProblem(2, "c", missing),
        ValueProblem(3, "c", missing),
        ValueProblem(4, None, ValueProblemKind.NOT_JSON),
        ValueProblem(5, "c", WRONG),
    ]


def test_columns_are_matched_by_name_and_the_last_of_two_wins() -> None:
    names = ["b c", "a", "self", "f0"]
    columns = [TopicColumn(name=name, type=TopicColumnType.LONG) for name in names]
    value = b'{"a": 1, "x": 9, "b c": 2, "f0": 4, "self": 3, "a": 5}'
    found = JsonColumns(columns).read(pa.array([value]))
    assert [each.to_pylist() for each in found.arrays] == [[2], [5], [3], [4]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("abcdefghi"), JSON), max_size=8))
@examples(300)
def test_one_record_does_not_change_what_another_has(rows: list[dict[str, Any]]) -> None:
    columns = [
        TopicColumn(name=name, type=type_)
        for name, type_ in zip("abcdefghi", TopicColumnType, strict=True)
    ]
    reader = JsonColumns(columns)
    values = pa.array([json.dumps(row).encode() for row in rows], pa.binary())
    together = reader.read(values)
    alone = [reader.read(values[at : at + 1]) for at in range(len(rows))]
    for number, column in enumerate(columns):
        assert together.arrays[number].type == ARROW_TYPES[column.type]
        found = [each.as_py() for one in alone for each in one.arrays[number]]
        assert together.arrays[number].to_pylist() == found
    assert {(each.row, each.column, each.kind) for each in together.problems} == {
        (at, each.column, each.kind) for at, one in enumerate(alone) for each in one.problems
    }
