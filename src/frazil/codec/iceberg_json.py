"""Schemas, defaults, partition specs and sort orders in the JSON that Iceberg's parsers print."""

from __future__ import annotations

import json
import math
from datetime import time
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from frazil.codec.malformed import MalformedFileError, quoted
from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.partitioning import (
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    parse_transform,
)
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    List,
    Map,
    Nested,
    Primitive,
    Schema,
    Struct,
    list_of,
    map_of,
    parse_scalar,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.model.schema.types import Default, Type

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

_SCHEMA_KEYS = frozenset({"type", "schema-id", "identifier-field-ids", "fields"})
_STRUCT_KEYS = frozenset({"type", "fields"})
_FIELD_KEYS = frozenset(
    {"id", "name", "required", "type", "doc", "initial-default", "write-default"}
)
_LIST_KEYS = frozenset({"type", "element-id", "element", "element-required"})
_MAP_KEYS = frozenset({"type", "key-id", "key", "value-id", "value", "value-required"})
_SPEC_KEYS = frozenset({"spec-id", "fields"})
_PARTITION_KEYS = frozenset({"name", "transform", "source-id", "field-id"})
_ORDER_KEYS = frozenset({"order-id", "fields"})
_SORT_KEYS = frozenset({"transform", "source-id", "direction", "null-order"})


def schema_to_json(schema: Schema) -> str:
    """What Iceberg's SchemaParser prints."""
    document: dict[str, Json] = {"type": "struct", "schema-id": schema.schema_id}
    if schema.identifier_ids:
        document["identifier-field-ids"] = [*sorted(schema.identifier_ids)]
    document["fields"] = [_field_to_json(each) for each in schema.fields]
    return _dump(document)


def schema_from_json(text: str) -> Schema:
    """Read a schema; raises MalformedFileError, or names the type that is not supported."""
    document = _load(text, _SCHEMA_KEYS)
    if document.get("type") != "struct":
        raise _unexpected("a schema of type struct")
    identifiers = document.get("identifier-field-ids", [])
    if not isinstance(identifiers, list) or not all(_is_int(each) for each in identifiers):
        raise _unexpected("identifier-field-ids as a list of numbers")
    return Schema(
        _int(document, "schema-id") if "schema-id" in document else 0,
        _fields(document),
        frozenset(each for each in identifiers if isinstance(each, int)),
    )


def spec_to_json(spec: PartitionSpec) -> str:
    """What Iceberg's PartitionSpecParser prints."""
    fields: list[Json] = [
        {
            "name": each.name,
            "transform": str(each.transform),
            "source-id": each.source_id,
            "field-id": each.field_id,
        }
        for each in spec.fields
    ]
    return _dump({"spec-id": spec.spec_id, "fields": fields})


def spec_from_json(text: str) -> PartitionSpec:
    """Read a partition spec; raises MalformedFileError, or names the unknown transform."""
    document = _load(text, _SPEC_KEYS)
    return PartitionSpec(
        _int(document, "spec-id"),
        tuple(
            PartitionField(
                _int(each, "source-id"),
                _int(each, "field-id"),
                _text(each, "name"),
                parse_transform(_text(each, "transform")),
            )
            for each in _objects(document, "fields", _PARTITION_KEYS)
        ),
    )


def sort_order_to_json(order: SortOrder) -> str:
    """What Iceberg's SortOrderParser prints."""
    fields: list[Json] = [
        {
            "transform": str(each.transform),
            "source-id": each.source_id,
            "direction": "desc" if each.descending else "asc",
            "null-order": "nulls-first" if each.nulls_first else "nulls-last",
        }
        for each in order.fields
    ]
    return _dump({"order-id": order.order_id, "fields": fields})


def sort_order_from_json(text: str) -> SortOrder:
    """Read a sort order; raises MalformedFileError, or names the unknown transform."""
    document = _load(text, _ORDER_KEYS)
    return SortOrder(
        _int(document, "order-id"),
        tuple(
            SortField(
                _int(each, "source-id"),
                parse_transform(_text(each, "transform")),
                _choice(each, "direction", ("asc", "desc")) == "desc",
                _choice(each, "null-order", ("nulls-first", "nulls-last")) == "nulls-first",
            )
            for each in _objects(document, "fields", _SORT_KEYS)
        ),
    )


def _field_to_json(field: Field) -> Json:
    document: dict[str, Json] = {
        "id": field.id,
        "name": field.name,
        "required": field.required,
        "type": _type_to_json(field.type),
    }
    if field.doc is not None:
        document["doc"] = field.doc
    if field.initial_default is not None:
        document["initial-default"] = field.initial_default
    if field.write_default is not None:
        document["write-default"] = field.write_default
    return document


def _type_to_json(type_: Type) -> Json:
    match type_:
        case Struct(fields):
            return {"type": "struct", "fields": [_field_to_json(each) for each in fields]}
        case List(element):
            return {
                "type": "list",
                "element-id": element.id,
                "element": _type_to_json(element.type),
                "element-required": element.required,
            }
        case Map(key, value):
            return {
                "type": "map",
                "key-id": key.id,
                "key": _type_to_json(key.type),
                "value-id": value.id,
                "value": _type_to_json(value.type),
                "value-required": value.required,
            }
        case _:
            return str(type_)


def _fields(document: Mapping[str, Json]) -> tuple[Field, ...]:
    return tuple(
        Field(
            _int(each, "id"),
            _text(each, "name"),
            _type(each.get("type")),
            _bool(each, "required"),
            _text(each, "doc") if "doc" in each else None,
            _default(each, "initial-default"),
            _default(each, "write-default"),
        )
        for each in _objects(document, "fields", _FIELD_KEYS)
    )


def _type(document: Json) -> Type:
    if isinstance(document, str):
        return parse_scalar(document)
    kind = document.get("type") if isinstance(document, dict) else None
    if isinstance(document, dict) and kind == "struct":
        _check_keys(document, _STRUCT_KEYS)
        return Struct(_fields(document))
    if isinstance(document, dict) and kind == "list":
        _check_keys(document, _LIST_KEYS)
        element = _type(document.get("element"))
        required = _bool(document, "element-required")
        return list_of(_int(document, "element-id"), element, required=required)
    if isinstance(document, dict) and kind == "map":
        _check_keys(document, _MAP_KEYS)
        return map_of(
            _int(document, "key-id"),
            _type(document.get("key")),
            _int(document, "value-id"),
            _type(document.get("value")),
            value_required=_bool(document, "value-required"),
        )
    if isinstance(kind, str):
        message = f"the Iceberg type {quoted(kind)} is not supported"
        raise UnsupportedSchemaChangeError(message)
    raise _unexpected("a type")


def _default(document: Mapping[str, Json], key: str) -> Default | None:
    value = document.get(key)
    if isinstance(value, list | dict):
        message = f"the {key} of column {quoted(_text(document, 'name'))} is nested: not supported"
        raise UnsupportedSchemaChangeError(message)
    return value


def _dump(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _load(text: str, keys: frozenset[str]) -> dict[str, Json]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedFileError("expected JSON", offset=error.pos) from error
    except RecursionError as error:
        raise _unexpected("JSON of a reasonable depth") from error
    if not isinstance(document, dict):
        raise _unexpected("an object")
    _check_keys(document, keys)
    return document


def _check_keys(document: Mapping[str, Json], keys: frozenset[str]) -> None:
    unknown = sorted(document.keys() - keys)
    if unknown:
        known = f"nothing but {', '.join(sorted(keys))}, found {quoted(unknown[0])}"
        raise _unexpected(known)


def _objects(document: Mapping[str, Json], key: str, keys: frozenset[str]) -> list[dict[str, Json]]:
    found = document.get(key)
    if not isinstance(found, list):
        raise _unexpected("a list", key)
    objects = [each for each in found if isinstance(each, dict)]
    if len(objects) != len(found):
        raise _unexpected("a list of objects", key)
    for each in objects:
        _check_keys(each, keys)
    return objects


def _is_int(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(document: Mapping[str, Json], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _unexpected("a number", key)
    return value


def _text(document: Mapping[str, Json], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise _unexpected("text", key)
    return value


def _bool(document: Mapping[str, Json], key: str) -> bool:
    value = document.get(key)
    if not isinstance(value, bool):
        raise _unexpected("true or false", key)
    return value


def _choice(document: Mapping[str, Json], key: str, choices: tuple[str, ...]) -> str:
    value = _text(document, key)
    if value not in choices:
        raise _unexpected(" or ".join(choices), key)
    return value


def _unexpected(shape: str, key: str | None = None) -> MalformedFileError:
    what = f"expected {shape}" if key is None else f"expected {key} as {shape}"
    # The parts of a JSON document have no useful offset once it is parsed.
    return MalformedFileError(what, offset=0)


def default_to_json(value: pa.Scalar, type_: Type) -> Default | None:
    """The default that shows this value; None where there is none.

    That is a null, anything nested, and what is no number in JSON: NaN and the infinities.
    """
    if not value.is_valid or isinstance(type_, Nested):
        return None
    found = value.as_py()
    if isinstance(type_, Decimal):
        # Never with an exponent; the scale is part of the text.
        return format(found, "f")
    if isinstance(type_, Fixed):
        return _hexadecimal(found)
    return _TO_JSON[type_](found)


def default_from_json(default: Default, type_: Type, target: pa.DataType) -> pa.Scalar:
    """The value that a default of this type represents."""
    match type_:
        case Primitive.UUID:
            return pa.scalar(UUID(str(default)).bytes, target)
        case Primitive.BINARY | Fixed():
            return pa.scalar(bytes.fromhex(str(default)), target)
        case Primitive.TIME:
            # Arrow reads no times of day.
            return pa.scalar(time.fromisoformat(str(default)), target)
        case _:
            return pa.array([default]).cast(target)[0]


def _hexadecimal(value: bytes) -> str:
    return value.hex()


def _iso(value: object) -> str:
    return value.isoformat()  # type: ignore[attr-defined, no-any-return]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _itself(value: Default) -> Default:
    return value


def _canonical(value: bytes) -> str:
    return str(UUID(bytes=value))


_TO_JSON: Mapping[Primitive, Callable[..., Default | None]] = {
    Primitive.BOOLEAN: _itself,
    Primitive.INT: _itself,
    Primitive.LONG: _itself,
    Primitive.FLOAT: _number,
    Primitive.DOUBLE: _number,
    Primitive.DATE: _iso,
    Primitive.TIME: _iso,
    Primitive.TIMESTAMP: _iso,
    Primitive.TIMESTAMPTZ: _iso,
    Primitive.STRING: _itself,
    Primitive.UUID: _canonical,
    Primitive.BINARY: _hexadecimal,
}
