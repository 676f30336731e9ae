"""Sort orders over batches, against comparisons of one value with another."""

from __future__ import annotations

import math
import struct
from datetime import date
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.partition_values import transform_values
from frazil.clients.iceberg.write.sort_keys import plan_sort_keys
from frazil.model.schema.partitioning import SortField, SortOrder, parse_transform
from frazil.model.schema.types import Decimal, Field, Fixed, Primitive, Schema, Struct

if TYPE_CHECKING:
    from frazil.model.schema.types import Scalar

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Primitive.LONG: st.integers(-(2**40), 2**40) | st.integers(-3, 3),
    Primitive.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan, NEGATIVE_NAN]),
    Primitive.FLOAT: st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf]),
    Primitive.STRING: st.text(max_size=3) | st.sampled_from(["\uffee", "\U0001f600", "z"]),
    Primitive.BINARY: st.binary(max_size=3),
    Primitive.BOOLEAN: st.booleans(),
    Primitive.DATE: st.dates(date(1950, 1, 1), date(2040, 1, 1)),
    Primitive.UUID: st.binary(min_size=16, max_size=16),
    Fixed(2): st.binary(min_size=2, max_size=2),
    Decimal(9, 2): st.decimals(-1000, 1000, places=2),
}
TRANSFORMS = ("identity", "bucket[4]", "truncate[2]", "year", "month", "day")
NESTED = Schema(0, (Field(7, "outer", Struct((Field(9, "inner", Primitive.INT),))),))


def comparable(value: Any) -> Any:
    """In Python's order what Iceberg's specification puts in that order."""
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1
    return value.encode() if isinstance(value, str) else value


@st.composite
def orders(draw: st.DrawFn) -> tuple[Schema, SortOrder, dict[str, list[Any]]]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = draw(st.integers(0, 12))
    fields, columns, sorting = [], {}, []
    for number, type_ in enumerate(types):
        fields.append(Field(number, f"c{number}", type_))
        few = draw(st.lists(st.none() | VALUES[type_], min_size=1, max_size=4))
        columns[f"c{number}"] = [draw(st.sampled_from(few)) for _ in range(rows)]
        possible = [each for each in map(parse_transform, TRANSFORMS) if each.accepts(type_)]
        chosen = draw(st.sampled_from(possible))
        sorting.append(SortField(number, chosen, draw(st.booleans()), draw(st.booleans())))
    return Schema(0, tuple(fields)), SortOrder(1, tuple(sorting)), columns


@given(orders())
def test_rows_are_ordered_as_values_compare_one_by_one(
    case: tuple[Schema, SortOrder, dict[str, list[Any]]],
) -> None:
    schema, order, columns = case
    layout = arrow_schema(schema)
    arrays = [
        pa.array(values, each.type) for each, values in zip(layout, columns.values(), strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=layout)
    keys = plan_sort_keys(schema, order)
    assert keys is not None
    values = [
        transform_values(array, field.type, each.transform).to_pylist()  # type: ignore[arg-type]
        for array, field, each in zip(arrays, schema.fields, order.fields, strict=True)
    ]

    def compare(left: int, right: int) -> int:
        for each, column in zip(order.fields, values, strict=True):
            one, other = comparable(column[left]), comparable(column[right])
            if one == other:
                continue
            if one is None or other is None:
                return -1 if (one is None) == each.nulls_first else 1
            return (1 if one > other else -1) * (-1 if each.descending else 1)
        return left - right

    compared = keys.of(rows)
    expected = sorted(range(rows.num_rows), key=cmp_to_key(compare))
    assert keys.order(pa.Table.from_batches([compared])).tolist() == expected
    # In pieces it is the same.
    pieces = [keys.of(rows.slice(at, 5)) for at in range(0, rows.num_rows, 5)]
    if pieces:
        assert keys.order(pa.Table.from_batches(pieces)).tolist() == expected


def test_a_member_of_a_struct_is_null_where_the_struct_is() -> None:
    order = SortOrder(1, (SortField(9, parse_transform("identity"), True, True),))  # noqa: FBT003
    keys = plan_sort_keys(NESTED, order)
    assert keys is not None
    layout = arrow_schema(NESTED)
    values = [{"inner": 1}, {"inner": 3}, None, {"inner": None}, {"inner": 2}]
    rows = pa.RecordBatch.from_arrays([pa.array(values, layout.field(0).type)], schema=layout)
    compared = pa.Table.from_batches([keys.of(rows)])
    assert keys.order(compared).tolist() == [2, 3, 1, 4, 0]


@pytest.mark.parametrize(
    ("source", "transform"), [(4, "identity"), (7, "identity"), (9, "void"), (9, "day")]
)
def test_an_order_that_the_schema_cannot_follow_is_none(source: int, transform: str) -> None:
    sorting = SortField(source, parse_transform(transform), descending=False, nulls_first=True)
    assert plan_sort_keys(NESTED, SortOrder(1, (sorting,))) is None
    assert plan_sort_keys(NESTED, SortOrder()) is None
