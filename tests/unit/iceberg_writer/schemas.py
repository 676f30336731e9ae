"""Random schemas and rows that fit them, for tests that write files and compare."""

from __future__ import annotations

import decimal
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    list_of,
    map_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.model.schema.types import Type

# From 0001-01-01 to 9999-12-31, the days that Spark and Python both know.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
MICROS_A_DAY = 86_400_000_000

# What Iceberg knows and Spark 4.1 cannot write.
NOT_IN_SPARK = {Primitive.TIME, Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS}
IN_SPARK = [each for each in Primitive if each not in NOT_IN_SPARK]

# Ends of the code space, of the plane that UTF-16 splits, and of one, two and three bytes.
CORNERS = "\x00\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
characters = st.one_of(st.sampled_from(CORNERS), st.characters(exclude_categories=["Cs"]))
texts = st.one_of(
    st.text(characters, max_size=20),
    st.text(st.sampled_from(CORNERS), min_size=15, max_size=18),
    st.text("\U0010ffff", min_size=16, max_size=20),
    st.text("ab", min_size=4090, max_size=4100),
)
binaries = st.one_of(
    st.binary(max_size=20),
    st.integers(15, 18).map(lambda size: b"\xff" * size),
    st.integers(15, 18).map(lambda size: b"\xff" * (size - 2) + b"\x01\xff"),
)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def floats(width: int) -> st.SearchStrategy[float]:
    special = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf")])
    return st.one_of(special, st.floats(width=32 if width == 32 else 64))


def decimals(type_: Decimal) -> st.SearchStrategy[decimal.Decimal]:
    top = 10**type_.precision - 1
    numbers = st.one_of(st.sampled_from([top, -top, 0, 1, -1]), st.integers(-top, top))
    context = decimal.Context(prec=type_.precision + 1)
    return numbers.map(lambda number: context.scaleb(decimal.Decimal(number), -type_.scale))


VALUES: dict[Primitive, st.SearchStrategy[Any]] = {
    Primitive.BOOLEAN: st.booleans(),
    Primitive.INT: integers(32),
    Primitive.LONG: integers(64),
    Primitive.FLOAT: floats(32),
    Primitive.DOUBLE: floats(64),
    Primitive.DATE: st.integers(FIRST_DAY, LAST_DAY),
    Primitive.TIME: st.integers(0, MICROS_A_DAY - 1),
    Primitive.TIMESTAMP: st.integers(FIRST_DAY * MICROS_A_DAY, LAST_DAY * MICROS_A_DAY),
    Primitive.TIMESTAMPTZ: st.integers(FIRST_DAY * MICROS_A_DAY, LAST_DAY * MICROS_A_DAY),
    Primitive.TIMESTAMP_NS: integers(63),
    Primitive.TIMESTAMPTZ_NS: integers(63),
    Primitive.STRING: texts,
    Primitive.UUID: st.uuids().map(str),
    Primitive.BINARY: binaries,
}


def scalars(primitives: Iterable[Primitive] = tuple(Primitive)) -> st.SearchStrategy[Type]:
    wide = st.integers(1, 38).flatmap(
        lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision))
    )
    return st.one_of(st.sampled_from(list(primitives)), wide, st.builds(Fixed, st.integers(1, 20)))


@st.composite
def schemas(
    draw: st.DrawFn,
    primitives: Iterable[Primitive] = tuple(Primitive),
    *,
    most: int = 6,
    deep: int = 2,
) -> Schema:
    """An ``id`` and up to ``most`` other columns, nested up to so deep."""
    ids = iter(range(2, 1000))
    names = iter(f"c{number}" for number in range(1000))
    flat = scalars(primitives)

    def field(depth: int) -> Field:
        name, required = next(names), draw(st.booleans())
        return Field(next(ids), name, type_of(depth), required)

    def type_of(depth: int) -> Type:
        kinds = ["scalar"] * 4 + (["struct", "list", "map"] if depth else [])
        match draw(st.sampled_from(kinds)):
            case "struct":
                return Struct(tuple(field(depth - 1) for _ in range(draw(st.integers(1, 3)))))
            case "list":
                return list_of(next(ids), type_of(depth - 1), required=draw(st.booleans()))
            case "map":
                key = draw(st.sampled_from([Primitive.STRING, Primitive.LONG]))
                required = draw(st.booleans())
                return map_of(
                    next(ids), key, next(ids), type_of(depth - 1), value_required=required
                )
            case _:
                return draw(flat)

    columns = [field(deep) for _ in range(draw(st.integers(1, most)))]
    return Schema(0, (Field(1, "id", Primitive.LONG, required=True), *columns))


def values(field: Field) -> st.SearchStrategy[Any]:
    present = values_of(field.type)
    return present if field.required else st.one_of(st.none(), present)


def values_of(type_: Type) -> st.SearchStrategy[Any]:
    match type_:
        case Struct(fields):
            return st.fixed_dictionaries({each.name: values(each) for each in fields})
        case List(element):
            return st.lists(values(element), max_size=3)
        case Map(key, value):
            return st.dictionaries(values(key), values(value), max_size=3).map(
                lambda pairs: list(pairs.items())
            )
        case Decimal():
            return decimals(type_)
        case Fixed(length):
            return st.binary(min_size=length, max_size=length)
        case _:
            return VALUES[type_]


@st.composite
def batches(draw: st.DrawFn, schema: Schema, *, most: int = 12) -> pa.RecordBatch:
    """Rows numbered from zero, in the types that Spark would hand over."""
    count = draw(st.integers(1, most))
    columns = [
        draw(st.lists(values(each), min_size=count, max_size=count)) for each in schema.fields[1:]
    ]
    return batch_of(schema, [list(range(count)), *columns])


def batch_of(schema: Schema, columns: list[list[Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array(column, foreign_type(each.type))
        for column, each in zip(columns, schema.fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[each.name for each in schema.fields])


def foreign_type(type_: Type) -> pa.DataType:
    """As Spark spells it: uuids are text, fixed values are bytes, nothing is required."""
    match type_:
        case Struct(fields):
            return pa.struct([(each.name, foreign_type(each.type)) for each in fields])
        case List(element):
            return pa.list_(foreign_type(element.type))
        case Map(key, value):
            return pa.map_(foreign_type(key.type), foreign_type(value.type))
        case Primitive.UUID:
            return pa.string()
        case Fixed():
            return pa.binary()
        case _:
            return arrow_schema(Schema(0, (Field(1, "c", type_),))).field(0).type


def uuid_of(number: int) -> str:
    return str(uuid.UUID(int=number))
