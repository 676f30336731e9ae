"""The Arrow schema of a table's Parquet files: field ids, nullability, exact types."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import Decimal, Fixed, List, Map, Primitive, Struct

if TYPE_CHECKING:
    from frazil.model.schema.types import Field, Schema, Type

FIELD_ID = b"PARQUET:field_id"

_Types = dict[Primitive, pa.DataType]

_PRIMITIVES: _Types = {
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
    Primitive.UUID: pa.binary(16),
    Primitive.BINARY: pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a data file, with Iceberg's names in Parquet.

    UUIDs are plain bytes here: many Arrow functions do not support its extension type.
    """
    return pa.schema(_fields(schema.fields, _PRIMITIVES))


def parquet_schema(schema: Schema) -> pa.Schema:
    """The same with the extension type for uuids, which gives them Parquet's annotation."""
    return pa.schema(_fields(schema.fields, _PRIMITIVES | {Primitive.UUID: pa.uuid()}))


def _type(type_: Type, primitives: _Types) -> pa.DataType:
    match type_:
        case Primitive():
            return primitives[type_]
        case Fixed(length):
            return pa.binary(length)
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Struct(fields):
            return pa.struct(_fields(fields, primitives))
        case List(element):
            return pa.list_(_field(element, primitives))
        case Map(key, value):
            return pa.map_(_field(key, primitives), _field(value, primitives))
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


def _fields(fields: tuple[Field, ...], primitives: _Types) -> list[pa.Field]:
    made = [_field(each, primitives) for each in fields]
    names = [each.name for each in made]
    twice = sorted({each.name for each in fields if names.count(parquet_name(each.name)) > 1})
    if twice:
        message = f"columns {', '.join(map(repr, twice))} have one name in Parquet"
        raise UnsupportedSchemaChangeError(message)
    return made


def _field(field: Field, primitives: _Types) -> pa.Field:
    return pa.field(
        parquet_name(field.name),
        _type(field.type, primitives),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.id).encode()},
    )
