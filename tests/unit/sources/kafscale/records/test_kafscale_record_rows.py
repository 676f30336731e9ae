"""Rows of a topic that is a table of its records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from frazil.config.models.kafscale_source import (
    OnWrongValue,
    TopicColumn,
    TopicColumnType,
    Validation,
)
from frazil.errors import MalformedChangeError
from frazil.model.records.rejected_record import RejectReason
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn
from frazil.sources.kafscale.records.record_schema import RecordSchema
from frazil.sources.protocol import CountedOutcome
from tests.support.kafscale.segments import TIMESTAMP, Message, client_batch, segment
from tests.support.kafscale.topics import TopicReading, planned, read_topic, topic_plan

if TYPE_CHECKING:
    from frazil.sources.kafscale.records.topic_plan import TopicPlan

LONG = TopicColumn(name="id", type=TopicColumnType.LONG)
REQUIRED = TopicColumn(name="id", type=TopicColumnType.LONG, required=True)
TEXT = TopicColumn(name="name", type=TopicColumnType.STRING)
SCHEMA = RecordSchema("orders", b'{"properties": {"id": {"type": "integer"}}}')


def read(*messages: Message, base: int = 40, plan: TopicPlan | None = None) -> TopicReading:
    data = segment([client_batch(base, messages)], base=base)
    chosen = topic_plan() if plan is None else plan
    return read_topic(chosen, [(planned(base, base + len(messages)), data)])


def read_values(*values: bytes | None, plan: TopicPlan) -> TopicReading:
    return read(*map(Message, values), plan=plan)


def test_a_record_becomes_the_columns_that_its_processor_writes() -> None:
    found = read(Message(b"\xffvalue", b"\0key", headers=(("h", b"v"),)))
    assert found.rows == [
        {
            "record_id": "orders:3:40",
            "topic": "orders",
            "partition": 3,
            "offset": 40,
            "timestamp_ms": TIMESTAMP,
            "key": b"\0key",
            "value": b"\xffvalue",
            "headers": '[{"key":"h","value":"v"}]',
            "operation": "INSERT",
            "position": 40,
            "ordinal": 4,
            "committed_at": datetime.fromtimestamp(TIMESTAMP / 1000, UTC),
            "origin": "orders:3:40",
            "unchanged": None,
        }
    ]


def test_null_and_empty_stay_what_they_are() -> None:
    found = read(Message(None, None), Message(b"", b""), Message(b"v", b"k"))
    assert [(row["key"], row["value"]) for row in found.rows] == [
        (None, None),
        (b"", b""),
        (b"k", b"v"),
    ]
    assert [row["headers"] for row in found.rows] == ["", "", ""]


@pytest.mark.parametrize("base", [0, 7, 98, 99, 995, 2**53 - 1])
def test_offsets_of_different_lengths_are_spelt_out(base: int) -> None:
    rows = read(*[Message(b"v")] * 12, base=base).rows
    assert [row["record_id"] for row in rows] == [f"orders:3:{base + at}" for at in range(12)]
    assert [row["origin"] for row in rows] == [row["record_id"] for row in rows]


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("a", None, '{"key":"a","value":""}'),
        ("a", b"", '{"key":"a","value":""}'),
        ("é", "日本".encode(), '{"key":"é","value":"日本"}'),
        ('q"\\', b"\x7f", '{"key":"q\\"\\\\","value":"\x7f"}'),
        ("a", b"\b\f\n\r\t\x00\x1f", r'{"key":"a","value":"\b\f\n\r\t\u0000\u001f"}'),
        ("<&>", b"v", r'{"key":"\u003c\u0026\u003e","value":"v"}'),
        ("a", "\u2028\u2029".encode(), r'{"key":"a","value":"\u2028\u2029"}'),
        # Each byte that is no UTF-8 is one mark; a mark that was sent stays.
        ("a", b"\xe2\x82x\xff", r'{"key":"a","value":"\ufffd\ufffdx\ufffd"}'),
        ("a", b"\xed\xa0\x80", r'{"key":"a","value":"\ufffd\ufffd\ufffd"}'),
        ("a", b"\xef\xbf\xbd", '{"key":"a","value":"\ufffd"}'),
    ],
)
def test_headers_are_the_json_that_go_prints(
    header: str, value: bytes | None, expected: str
) -> None:
    both = read(
        Message(b"v", headers=((header, value), ("z", b"1"))),
        Message(b"v"),
        Message(b"v", headers=((header, value), ("z", b"1"))),
    )
    text = f'[{expected},{{"key":"z","value":"1"}}]'
    assert [row["headers"] for row in both.rows] == [text, "", text]


@pytest.mark.parametrize("timestamp", [-1, 2**62, -(2**55), 253_402_300_800_000])
def test_a_time_that_is_unknown_or_impossible_is_no_time(timestamp: int) -> None:
    (row,) = read(Message(b"v", timestamp=timestamp)).rows
    assert row["timestamp_ms"] == timestamp
    assert row["committed_at"] is None


def test_the_first_and_last_millisecond_of_the_calendar_are_times() -> None:
    first, last = -62_135_596_800_000, 253_402_300_799_999
    rows = read(Message(b"v", timestamp=first)).rows + read(Message(b"v", timestamp=last)).rows
    assert rows[0]["committed_at"] == datetime(1, 1, 1, tzinfo=UTC)
    assert rows[1]["committed_at"] == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.fault("U14")
def test_fields_are_found_by_the_names_of_columns() -> None:
    found = read_values(b'{"name": "a", "id": 9007199254740993}', None, plan=topic_plan(LONG, TEXT))
    assert [(row["id"], row["name"]) for row in found.rows] == [(2**53 + 1, "a"), (None, None)]


def test_a_column_may_be_wider_than_its_field_or_not_read_any_more() -> None:
    narrow = TopicColumn(name="id", type=TopicColumnType.INT)
    plan = topic_plan(narrow)
    columns = tuple(
        SourceColumn(number=each.number, name=each.name, type=Primitive.LONG)
        if each.name == "id"
        else each
        for each in plan.columns
    )
    former = SourceColumn(number=99, name="former", type=Primitive.DOUBLE)
    found = read_values(
        b'{"id": 7, "former": 1.5}', plan=topic_plan(narrow, columns=(*columns, former))
    )
    assert [(row["id"], row["former"]) for row in found.rows] == [(7, None)]


WRONG = (b'{"id": "x"}', b"no json", b'{"id": 9223372036854775808}', b"[1]")


def test_wrong_values_become_null_and_are_counted() -> None:
    found = read_values(b'{"id": 1}', *WRONG, plan=topic_plan(LONG))
    assert [row["id"] for row in found.rows] == [1, None, None, None, None]
    assert found.rejected == []
    assert found.counts == {CountedOutcome.NULLED: 4}


@pytest.mark.parametrize("column", [LONG, REQUIRED])
def test_records_with_wrong_values_can_become_dead_letters(column: TopicColumn) -> None:
    plan = topic_plan(column, TEXT, on_wrong_value=OnWrongValue.DEAD_LETTER)
    both = b'{"id": "x", "name": 3}'
    found = read_values(b'{"id": 1}', both, b'{"id": 2}', plan=plan)
    assert [row["id"] for row in found.rows] == [1, 2]
    # One for a record, however many values of it are wrong.
    (letter,) = found.rejected
    assert letter.reason is RejectReason.UNREPRESENTABLE
    assert (letter.offset, letter.payload) == (41, both)
    assert (letter.table, letter.where) == ("orders", "orders/3")
    assert "id" in letter.message
    assert found.counts == {}


@pytest.mark.parametrize("policy", OnWrongValue)
@pytest.mark.parametrize("value", [b"{}", b'{"id": null}', None, b"", b"no json"])
@pytest.mark.fault("U16")
def test_a_record_without_a_required_value_is_never_a_row(
    policy: OnWrongValue, value: bytes | None
) -> None:
    plan = topic_plan(REQUIRED, TEXT, on_wrong_value=policy)
    found = read_values(b'{"id": 1}', value, plan=plan)
    assert [row["id"] for row in found.rows] == [1]
    (letter,) = found.rejected
    assert (letter.reason, letter.offset) == (RejectReason.INVALID, 41)
    assert letter.payload == (value or b"")
    assert found.counts == {}


def test_a_wrong_value_of_a_required_column_cannot_become_null() -> None:
    plan = topic_plan(REQUIRED, TEXT)
    found = read_values(b'{"id": "x", "name": 1}', b'{"id": 1, "name": 1}', plan=plan)
    assert [(row["id"], row["name"]) for row in found.rows] == [(1, None)]
    assert [each.reason for each in found.rejected] == [RejectReason.INVALID]
    assert found.counts == {CountedOutcome.NULLED: 1}


@pytest.mark.fault("U19")
def test_lenient_validation_rejects_records_and_shows_nothing_of_them() -> None:
    plan = topic_plan(LONG, validation=Validation.LENIENT, schema=SCHEMA)
    values = (b'{"id": 1}', b'{"id": "secret"}', b"secret", None, b"")
    found = read_values(*values, plan=plan)
    assert found.values == [b'{"id": 1}', None, b""]
    assert [(each.offset, each.reason, each.payload) for each in found.rejected] == [
        (41, RejectReason.INVALID, values[1]),
        (42, RejectReason.INVALID, values[2]),
    ]
    assert "properties/id/type" in found.rejected[0].message
    assert "secret" not in "".join(each.message for each in found.rejected)
    assert found.failure is None
    assert found.counts == {}


@pytest.mark.fault("U20")
def test_strict_validation_stops_the_partition_at_the_record() -> None:
    plan = topic_plan(validation=Validation.STRICT, schema=SCHEMA)
    found = read_values(b'{"id": 1}', b'{"id": "secret"}', b"secret", plan=plan)
    assert found.failure is not None
    assert (found.failure.partition, found.failure.offset) == ("orders/3", 41)
    assert isinstance(found.failure.error, MalformedChangeError)
    assert found.failure.error.position == "orders/3@41"
    assert "secret" not in str(found.failure.error)


def test_strict_validation_of_a_packed_payload_stops_within_its_segment() -> None:
    batches = [
        client_batch(base, [Message(json.dumps({"id": id_}).encode())])
        for base, id_ in ((0, 1), (99, "x"))
    ]
    plan = topic_plan(validation=Validation.STRICT, schema=SCHEMA)
    found = read_topic(plan, [(planned(0, 1), segment(batches, last=0))])
    assert found.failure is not None
    assert found.failure.offset == 0


def test_without_validation_a_schema_does_not_matter() -> None:
    found = read_values(b'{"id": "x"}', plan=topic_plan(schema=SCHEMA))
    assert found.values == [b'{"id": "x"}']
