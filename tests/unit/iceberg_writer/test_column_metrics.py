from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.write.column_metrics import (
    COUNTS_ONLY,
    FULL,
    bound_lengths,
    lower_bound,
    serialised,
    upper_bound,
)
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.hooks import SeededRandomness, SystemClock
from frazil.model.schema.partitioning import UNSORTED, SortField, SortOrder, parse_transform
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from tests.unit.iceberg_writer.schemas import batch_of, binaries, texts

if TYPE_CHECKING:
    from pathlib import Path

P = Primitive


@given(texts, st.integers(1, 20))
def test_shortened_text_stays_a_bound(text: str, length: int) -> None:
    value = text.encode()
    lower, upper = lower_bound(value, P.STRING, length), upper_bound(value, P.STRING, length)
    assert lower <= value
    assert len(lower.decode()) <= length
    if upper is None:
        assert set(text[:length]) == {"\U0010ffff"}
    else:
        assert upper >= value
        assert len(upper.decode()) <= length


@given(binaries, st.integers(1, 20))
def test_shortened_bytes_stay_a_bound(data: bytes, length: int) -> None:
    lower, upper = lower_bound(data, P.BINARY, length), upper_bound(data, P.BINARY, length)
    assert lower <= data
    assert len(lower) <= length
    assert (upper is None and set(data[:length]) == {0xFF}) or (upper is not None and upper >= data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcd", "abd"),
        ("ab\ud7ffx", "ab\ue000"),
        ("ab\U0010ffffx", "ac"),
        ("a\uffff\U0010ffffx", "a\U00010000"),
        ("abc", "abc"),
    ],
)
def test_an_upper_bound_is_raised_at_the_last_character_that_can_be(
    text: str, expected: str
) -> None:
    bound = upper_bound(text.encode(), P.STRING, 3)
    assert bound is not None
    assert bound.decode() == expected


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (True, P.BOOLEAN, "01"),
        (-2, P.INT, "FEFFFFFF"),
        (1, P.LONG, "0100000000000000"),
        (1, P.DATE, "01000000"),
        (1, P.TIMESTAMP, "0100000000000000"),
        (-0.0, P.FLOAT, "00000080"),
        (1.0, P.DOUBLE, "000000000000F03F"),
        (1420, Decimal(9, 2), "058C"),
        (-1, Decimal(9, 2), "FF"),
        (128, Decimal(9, 2), "0080"),
        (-128, Decimal(9, 2), "80"),
        (0, Decimal(9, 2), "00"),
    ],
)
def test_bounds_have_icebergs_single_value_form(value: Any, type_: Any, expected: str) -> None:
    assert serialised(value, type_).hex().upper() == expected


FLAT = Schema(0, (Field(1, "a", P.LONG), Field(2, "b", P.STRING), Field(3, "c", P.DOUBLE)))
DEEP = Schema(
    0,
    (
        Field(1, "s", Struct((Field(4, "x", P.INT), Field(5, "l", list_of(6, P.INT))))),
        Field(2, "m", map_of(7, P.STRING, 8, P.INT)),
        Field(3, "i", P.INT),
    ),
)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {1: 16, 2: 16, 3: 16}),
        ({"write.metadata.metrics.default": "full"}, {1: FULL, 2: FULL, 3: FULL}),
        ({"write.metadata.metrics.default": "COUNTS"}, {1: 0, 2: 0, 3: 0}),
        ({"write.metadata.metrics.default": "truncate(4)"}, {1: 4, 2: 4, 3: 4}),
        ({"write.metadata.metrics.default": "nonsense"}, {1: 16, 2: 16, 3: 16}),
        ({"write.metadata.metrics.default": "none"}, {}),
        ({"write.metadata.metrics.column.b": "none"}, {1: 16, 3: 16}),
        (
            {
                "write.metadata.metrics.default": "none",
                "write.metadata.metrics.column.b": "counts",
            },
            {2: COUNTS_ONLY},
        ),
        ({"write.metadata.metrics.max-inferred-column-defaults": "2"}, {1: 16, 2: 16}),
    ],
)
def test_modes_follow_the_tables_properties(
    properties: dict[str, str], expected: dict[int, int]
) -> None:
    assert bound_lengths(FLAT, properties, UNSORTED) == expected


def test_the_limit_of_a_wide_table_counts_level_by_level() -> None:
    limit = {"write.metadata.metrics.max-inferred-column-defaults": "2"}
    assert bound_lengths(DEEP, limit, UNSORTED) == {3: 16, 4: 16}


def test_sorted_columns_keep_bounds_when_others_lose_them() -> None:
    order = SortOrder(
        1,
        (
            SortField(2, parse_transform("truncate[4]"), descending=False, nulls_first=True),
            SortField(1, parse_transform("bucket[4]"), descending=False, nulls_first=True),
        ),
    )
    properties = {"write.metadata.metrics.default": "none"}
    assert bound_lengths(FLAT, properties, order) == {2: 16}


def described(
    folder: Path,
    schema: Schema,
    *columns: list[Any],
    batches: int = 1,
    rows: int = 2**20,
    properties: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The descriptor of one file with these columns, cut into so many batches."""
    target = plan_write_target(
        table="t",
        location=str(folder),
        schema=schema,
        properties=properties or {},
        io_properties={},
    )
    target = replace(target, row_group_rows=rows)
    writer = TaskWriter(target, clock=SystemClock(), randomness=SeededRandomness(1))
    batch = batch_of(schema, list(columns))
    size = -(-batch.num_rows // batches)
    for start in range(0, batch.num_rows, size):
        writer.write(batch.slice(start, size))
    (file,) = writer.close()
    found: dict[str, Any] = json.loads(file.descriptor)
    return found


def pairs(descriptor: dict[str, Any], name: str) -> dict[int, Any]:
    return dict(zip(descriptor[name]["keys"], descriptor[name]["values"], strict=True))


def test_bounds_and_counts_cover_all_row_groups(tmp_path: Path) -> None:
    schema = Schema(
        0, (Field(1, "a", P.LONG), Field(2, "b", Decimal(38, 0)), Field(3, "c", P.STRING))
    )
    numbers = [5, -7, None, 3]
    letters = ["m", None, "z", "b"]
    found = described(tmp_path, schema, numbers, numbers, letters, batches=4, rows=1)
    assert len(found["split-offsets"]) == 4
    assert found["split-offsets"] == sorted(found["split-offsets"])
    assert pairs(found, "value-counts") == {1: 4, 2: 4, 3: 4}
    assert pairs(found, "null-value-counts") == {1: 1, 2: 1, 3: 1}
    assert pairs(found, "lower-bounds") == {
        1: struct.pack("<q", -7).hex().upper(),
        2: "F9",
        3: "62",
    }
    assert pairs(found, "upper-bounds") == {1: struct.pack("<q", 5).hex().upper(), 2: "05", 3: "7A"}


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "nans", "lower", "upper"),
    [
        ([0.0, None], 0, 0.0, 0.0),
        ([-0.0], 0, -0.0, -0.0),
        ([0.0, -0.0], 0, -0.0, 0.0),
        ([0.0, 1.0], 0, 0.0, 1.0),
        ([-1.0, -0.0], 0, -1.0, -0.0),
        ([NAN, NAN, None], 2, None, None),
        ([NAN, 1.0, -INF], 1, -INF, 1.0),
        ([None], 0, None, None),
    ],
)
@pytest.mark.parametrize("type_", [P.FLOAT, P.DOUBLE])
@pytest.mark.parametrize("rows", [1, 1000])
def test_floats_keep_the_sign_of_zero_and_leave_nan_out(  # noqa: PLR0917
    tmp_path: Path,
    values: list[float | None],
    nans: int,
    lower: float | None,
    upper: float | None,
    type_: Primitive,
    rows: int,
) -> None:
    form = "<f" if type_ is P.FLOAT else "<d"
    schema = Schema(0, (Field(1, "a", type_),))
    found = described(tmp_path, schema, values, batches=len(values), rows=rows)
    assert pairs(found, "nan-value-counts") == {1: nans}
    assert pairs(found, "null-value-counts") == {1: values.count(None)}
    for name, bound in (("lower-bounds", lower), ("upper-bounds", upper)):
        expected = {} if bound is None else {1: struct.pack(form, bound).hex().upper()}
        assert pairs(found, name) == expected


def test_values_too_long_for_a_footer_have_bounds_all_the_same(tmp_path: Path) -> None:
    schema = Schema(0, (Field(1, "a", P.STRING), Field(2, "b", P.BINARY)))
    found = described(
        tmp_path,
        schema,
        ["m", "z" * 5000, None, "a"],
        [b"m", b"\xff" * 5000, None, b"a"],
        batches=2,
    )
    assert pairs(found, "lower-bounds") == {1: "61", 2: "61"}
    assert pairs(found, "upper-bounds") == {1: (b"z" * 15 + b"{").hex().upper()}


def test_fields_of_lists_and_maps_have_sizes_only(tmp_path: Path) -> None:
    found = described(tmp_path, DEEP, [{"x": 1, "l": [1]}, None], [[("a", 1)], None], [1, None])
    assert set(found["column-sizes"]["keys"]) == {3, 4, 6, 7, 8}
    assert pairs(found, "value-counts") == {3: 2, 4: 2}
    assert pairs(found, "null-value-counts") == {3: 1, 4: 1}
    assert set(pairs(found, "lower-bounds")) == {3, 4}


def test_modes_decide_what_is_recorded(tmp_path: Path) -> None:
    properties = {
        "write.metadata.metrics.column.a": "none",
        "write.metadata.metrics.column.b": "full",
        "write.metadata.metrics.column.c": "counts",
    }
    text = "x" * 40
    found = described(tmp_path, FLAT, [1], [text], [NAN], properties=properties)
    assert set(found["column-sizes"]["keys"]) == {2, 3}
    assert pairs(found, "value-counts") == {2: 1, 3: 1}
    assert pairs(found, "nan-value-counts") == {3: 1}
    assert pairs(found, "upper-bounds") == {2: text.encode().hex().upper()}


def test_an_empty_batch_leaves_no_file(tmp_path: Path) -> None:
    target = plan_write_target(
        table="t", location=str(tmp_path), schema=FLAT, properties={}, io_properties={}
    )
    writer = TaskWriter(target, clock=SystemClock(), randomness=SeededRandomness(1))
    empty = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([], pa.int64()),
            "b": pa.array([], pa.string()),
            "c": pa.array([], pa.float64()),
        }
    )
    assert len(writer.write(empty).file) == 0
    assert writer.close() == ()
    assert list(tmp_path.iterdir()) == []
