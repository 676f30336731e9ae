"""The Arrow schema that makes Parquet files of a table: field ids, nullability, exact types."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema import Decimal, Fixed, List, Map, Primitive, Struct

if TYPE_CHECKING:
    from frazil.model.schema import Field, Schema, Type

FIELD_ID = b"PARQUET:field_id"

_PRIMITIVES: dict[Primitive, pa.DataType] = {
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.DATE: pa.date32(),
    Primitive.TIME: pa.time64("us"),
    Primitive.TIMESTAMP: pa.timestamp("us"),
    Primitive.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    Primitive.TIMESTAMP_NS: pa.timestamp("ns"),
    Primitive.TIMESTAMPTZ_NS: pa.timestamp("ns", tz="UTC"),
    Primitive.STRING: pa.string(),
    # The extension type is what gives the column Parquet's UUID annotation.
    Primitive.UUID: pa.uuid(),
    Primitive.BINARY: pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a data file; their names are the ones Iceberg gives them in Parquet."""
    return pa.schema(_fields(schema.fields))


def arrow_type(type_: Type) -> pa.DataType:
    """How values of this type lie in memory, and hence in the file."""
    match type_:
        case Primitive():
            return _PRIMITIVES[type_]
        case Fixed(length):
            return pa.binary(length)
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Struct(fields):
            return pa.struct(_fields(fields))
        case List(element):
            return pa.list_(_field(element))
        case Map(key, value):
            return pa.map_(_field(key), _field(value))
        case _:
            assert_never(type_)


def parquet_name(name: str) -> str:
    """The name as Iceberg writes it: letters, digits and ``_``; anything else by its code."""
    units = name.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2)]
    return "".join(
        character if _plain(character, first=index == 0) else _escaped(character)
        for index, character in enumerate(characters)
    )


def _plain(character: str, *, first: bool) -> bool:
    category = unicodedata.category(character)
    return character == "_" or category[0] == "L" or (category == "Nd" and not first)


def _escaped(character: str) -> str:
    if unicodedata.category(character) == "Nd":
        return f"_{character}"
    return f"_x{ord(character):X}"


def _fields(fields: tuple[Field, ...]) -> list[pa.Field]:
    made = [_field(each) for each in fields]
    names = [each.name for each in made]
    twice = sorted({each.name for each in fields if names.count(parquet_name(each.name)) > 1})
    if twice:
        message = f"columns {', '.join(map(repr, twice))} have one name in Parquet"
        raise UnsupportedSchemaChangeError(message)
    return made


def _field(field: Field) -> pa.Field:
    return pa.field(
        parquet_name(field.name),
        arrow_type(field.type),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.id).encode()},
    )
