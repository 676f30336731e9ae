from __future__ import annotations

import json

import pytest
from hypothesis import given

from frazil.codec.iceberg_json import (
    schema_from_json,
    schema_to_json,
    sort_order_from_json,
    sort_order_to_json,
    spec_from_json,
    spec_to_json,
)
from frazil.codec.malformed import MalformedFileError
from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.partitioning import (
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    parse_transform,
)
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, list_of, map_of
from tests.unit.iceberg_writer.schemas import schemas

# As Iceberg 1.12's SchemaParser.toJson printed it.
PRINTED = (
    '{"type":"struct","schema-id":3,"identifier-field-ids":[1],"fields":['
    '{"id":1,"name":"id","required":true,"type":"long","doc":"the key"},'
    '{"id":2,"name":"price","required":false,"type":"decimal(9, 2)","initial-default":"1.50",'
    '"write-default":"1.50"},'
    '{"id":3,"name":"tags","required":false,"type":{"type":"list","element-id":4,'
    '"element":"string","element-required":false}},'
    '{"id":5,"name":"m","required":false,"type":{"type":"map","key-id":6,"key":"string",'
    '"value-id":7,"value":"int","value-required":true}}]}'
)
SCHEMA = Schema(
    3,
    (
        Field(1, "id", Primitive.LONG, required=True, doc="the key"),
        Field(2, "price", Decimal(9, 2), initial_default="1.50", write_default="1.50"),
        Field(3, "tags", list_of(4, Primitive.STRING)),
        Field(5, "m", map_of(6, Primitive.STRING, 7, Primitive.INT, value_required=True)),
    ),
    frozenset({1}),
)


def test_a_schema_is_printed_and_read_as_iceberg_does() -> None:
    assert schema_to_json(SCHEMA) == PRINTED
    assert schema_from_json(PRINTED) == SCHEMA


@given(schemas())
def test_any_schema_comes_back(schema: Schema) -> None:
    assert schema_from_json(schema_to_json(schema)) == schema


def test_a_spec_and_a_sort_order_come_back() -> None:
    spec = PartitionSpec(2, (PartitionField(1, 1000, "b", parse_transform("bucket[4]")),))
    assert spec_to_json(spec) == (
        '{"spec-id":2,"fields":[{"name":"b","transform":"bucket[4]","source-id":1,"field-id":1000}]}'
    )
    assert spec_from_json(spec_to_json(spec)) == spec
    order = SortOrder(
        1, (SortField(1, parse_transform("identity"), descending=True, nulls_first=False),)
    )
    assert sort_order_from_json(sort_order_to_json(order)) == order


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("fields", 0, "id"), "1", "id as a number"),
        (("fields", 0, "id"), True, "id as a number"),
        (("fields", 0, "name"), None, "name as text"),
        (("fields", 0, "required"), "yes", "required as true or false"),
        (("fields", 0, "surprise"), 1, "found 'surprise'"),
        (("fields", 0), [], "fields as a list of objects"),
        (("fields",), {}, "fields as a list"),
        (("fields", 0, "type"), 7, "a type"),
        (("type",), "list", "a schema of type struct"),
        (("identifier-field-ids",), ["1"], "identifier-field-ids"),
        (("schema-id",), 1.5, "schema-id as a number"),
        (("fields", 2, "type", "extra"), 1, "found 'extra'"),
    ],
)
def test_what_iceberg_would_not_print_is_refused(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    document = json.loads(PRINTED)
    member = document
    for step in path[:-1]:
        member = member[step]
    member[path[-1]] = value
    with pytest.raises(MalformedFileError) as refusal:
        schema_from_json(json.dumps(document))
    assert message in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[", "[]", "3", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(MalformedFileError):
        schema_from_json(text)
    with pytest.raises(MalformedFileError):
        spec_from_json(text)


@pytest.mark.parametrize("type_", ["variant", "unknown", {"type": "tuple"}])
def test_an_unsupported_type_is_refused_by_name(type_: object) -> None:
    document = json.loads(PRINTED)
    document["fields"][0]["type"] = type_
    name = type_ if isinstance(type_, str) else "tuple"
    with pytest.raises(UnsupportedSchemaChangeError, match=name):
        schema_from_json(json.dumps(document))


def test_a_nested_default_is_refused_by_column() -> None:
    document = json.loads(PRINTED)
    document["fields"][2]["initial-default"] = ["a"]
    with pytest.raises(UnsupportedSchemaChangeError, match="'tags'"):
        schema_from_json(json.dumps(document))
