"""Columns that messages declare for themselves."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.config.models.kafscale_source import Envelope, TopicColumn, TopicColumnType
from frazil.sources.kafscale.changes.connect_schema import own_columns
from tests.support.kafscale.change_topics import as_json

Type = TopicColumnType
DEBEZIUM, NONE = Envelope.DEBEZIUM, Envelope.NONE


def columns(schema: Any, envelope: Envelope, payload: Any = None) -> Any:
    value = as_json({"schema": schema, "payload": payload})
    assert value is not None
    found = own_columns(value, envelope)
    return None if found is None else [(each.name, each.type) for each in found]


def struct(*fields: tuple[str, str], **more: Any) -> dict[str, Any]:
    made = [{"field": name, "type": type_, "optional": False} for name, type_ in fields]
    return {"type": "struct", "fields": made, **more}


def test_every_simple_type_has_its_column_and_structures_have_none() -> None:
    types = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
    schema = struct(*((each, each) for each in [*types, "struct", "array", "map", "unknown"]))
    expected = [Type.INT, Type.INT, Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE, Type.BOOLEAN,
                Type.STRING, Type.BINARY]  # fmt: skip
    assert columns(schema, NONE) == list(zip(types, expected, strict=True))


@pytest.mark.parametrize(
    ("name", "type_", "expected"),
    [
        ("io.debezium.time.Date", "int32", Type.DATE),
        ("org.apache.kafka.connect.data.Date", "int32", Type.DATE),
        ("io.debezium.time.Timestamp", "int64", Type.TIMESTAMP),
        ("io.debezium.time.MicroTimestamp", "int64", Type.TIMESTAMP),
        ("io.debezium.time.NanoTimestamp", "int64", Type.TIMESTAMP),
        ("io.debezium.time.ZonedTimestamp", "string", Type.TIMESTAMP),
        ("org.apache.kafka.connect.data.Timestamp", "int64", Type.TIMESTAMP),
        ("org.apache.kafka.connect.data.Decimal", "bytes", Type.STRING),
        ("io.debezium.data.Json", "string", Type.STRING),
        ("io.debezium.time.MicroTime", "int64", Type.LONG),
    ],
)
def test_a_logical_name_decides_the_type(name: str, type_: str, expected: Type) -> None:
    schema = {"type": "struct", "fields": [{"field": "c", "type": type_, "name": name}]}
    assert columns(schema, NONE) == [("c", expected)]


def test_of_an_envelope_the_columns_are_those_of_the_row() -> None:
    row = struct(("id", "int64"), ("before", "string"))
    envelope = struct(("op", "string"))
    envelope["fields"] += [{**row, "field": "before"}, {**row, "field": "after"}]
    assert columns(envelope, DEBEZIUM) == [("id", Type.LONG), ("before", Type.STRING)]
    assert columns(envelope, NONE) == [("op", Type.STRING)]


def test_what_flattening_adds_is_no_column() -> None:
    schema = struct(("id", "int64"), ("__private", "string"), ("__deleted", "string"))
    assert columns(schema, DEBEZIUM) == [("id", Type.LONG)]
    assert columns(schema, NONE) == [
        ("id", Type.LONG), ("__private", Type.STRING), ("__deleted", Type.STRING)
    ]  # fmt: skip


def test_no_column_is_required() -> None:
    value = as_json({"schema": struct(("id", "int64")), "payload": {"id": 1}})
    assert value is not None
    assert own_columns(value, NONE) == (TopicColumn(name="id", type=Type.LONG),)


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"5", b'"payload"', b'{"id":1}', b'{"schema":null,"payload":{}}',
     b'{"schema":5,"payload":{}}', b'{"schema":{"type":"int64"},"payload":5}'],
)  # fmt: skip
@pytest.mark.parametrize("envelope", list(Envelope))
def test_other_messages_declare_nothing(value: bytes, envelope: Envelope) -> None:
    assert own_columns(value, envelope) is None
