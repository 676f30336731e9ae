"""Change events of a topic: which rows each becomes, and which records become none."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from frazil.config.models.kafscale_source import Envelope, OnWrongValue
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.change_schema import change_schema
from frazil.sources.kafscale.changes.change_events import ChangeEvents, TopicChanges
from frazil.sources.protocol import CountedOutcome
from tests.support.kafscale.change_topics import PRODUCED_MS, as_json, change_plan, change_records

INVALID, UNREPRESENTABLE = RejectReason.INVALID, RejectReason.UNREPRESENTABLE
PLACEHOLDER = "__debezium_unavailable_value"
NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


def read(
    *records: tuple[Any, Any], partition: int = 2, first_offset: int = 10, **plan: Any
) -> TopicChanges:
    made = change_plan(**plan)
    found = ChangeEvents(made).read(change_records(*records, first_offset=first_offset), partition)
    assert found.rows.schema == change_schema(made.columns, made.key)
    found.rows.validate(full=True)
    return found


def rows(found: TopicChanges) -> list[tuple[Any, ...]]:
    """Operation and values of each row, the columns in their order."""
    assert found.rejected == ()
    values = [each for each in found.rows.schema.names if each.isdigit()]
    return [(row["operation"], *(row[each] for each in values)) for row in found.rows.to_pylist()]


def reasons(found: TopicChanges) -> list[tuple[int, RejectReason]]:
    return [(each.offset, each.reason) for each in found.rejected]


def event(op: str, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 5, **more}


A, B = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}


def test_each_operation_of_an_envelope_is_one_row() -> None:
    found = read(
        (None, event("r", A)),
        (None, event("c", A)),
        (None, event("u", B, A)),
        (None, event("d", None, B)),
        (None, {"op": "t", "source": {}, "ts_ms": 5}),
        (None, event("t")),
    )
    assert rows(found) == [
        ("READ", 1, "a"),
        ("INSERT", 1, "a"),
        ("UPDATE", 1, "b"),
        ("DELETE", 1, None),
        ("TRUNCATE", None, None),
        ("TRUNCATE", None, None),
    ]
    assert found.counts == {}


def test_rows_are_ordered_by_offset_and_say_where_they_come_from() -> None:
    source = {"ts_ms": 1_704_196_800_001}
    found = read((None, event("c", A, source=source)), (None, event("c", A)))
    first, second = found.rows.select(list(found.rows.schema.names)[2:]).to_pylist()
    assert first == {
        "operation": "INSERT",
        "position": 10,
        "ordinal": 3,
        "committed_at": NOON + timedelta(milliseconds=1),
        "origin": "orders:2:10",
        "unchanged": None,
        "previous_key": None,
    }
    assert (second["position"], second["origin"]) == (11, "orders:2:11")
    assert second["committed_at"] == datetime.fromtimestamp(PRODUCED_MS / 1000, UTC)


@pytest.mark.parametrize("stamp", [2**62, -(2**62), 2**70, 253402300800000])
def test_a_time_that_no_column_shows_is_unknown(stamp: int) -> None:
    found = read((None, event("c", A, source={"ts_ms": stamp})))
    assert found.rows.column("committed_at").to_pylist() == [None]


def test_a_delete_takes_its_key_from_the_record_when_the_old_row_has_none() -> None:
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 7}}
    found = read(
        ({"id": 5}, event("d")),
        (wrapped, event("d", None, {"name": "x"})),
        ({"schema": None, "payload": {"id": 9}}, event("d", None, {"id": None})),
        ({"other": 5}, event("d")),
        (None, event("d")),
    )
    assert [row["1"] for row in found.rows.to_pylist()] == [5, 7, 9]
    assert reasons(found) == [(13, INVALID), (14, INVALID)]


def test_a_tombstone_deletes_its_key_again_unless_a_field_orders_changes() -> None:
    tombstones = [
        ({"id": 1}, None),
        ({"id": 1}, b""),
        ({"id": 1}, {"schema": None, "payload": None}),
    ]
    assert rows(read(*tombstones)) == [("DELETE", 1, None)] * 3
    skipped = read(*tombstones, sequence="source.lsn")
    assert rows(skipped) == []
    assert skipped.counts == {CountedOutcome.SKIPPED: 3}
    plain = read(*tombstones[:2], envelope=Envelope.NONE, sequence="version")
    assert reasons(plain) == [(10, INVALID), (11, INVALID)]


def test_messages_about_no_row_are_skipped_and_counted() -> None:
    found = read((None, {"op": "m", "source": {}, "message": {"prefix": "p"}}), (None, event("m")))
    assert rows(found) == []
    assert found.counts == {CountedOutcome.SKIPPED: 2}


def test_an_update_of_the_key_is_a_delete_and_an_insert_that_knows_the_old_key() -> None:
    after = {"a": 1, "b": "y", "c": 5}
    columns = "a long, b string, c long"
    found = read((None, event("u", after, {"a": 1, "b": "x", "c": 4})), columns=columns, key="a b")
    assert rows(found) == [("DELETE", 1, "x", None), ("INSERT", 1, "y", 5)]
    assert found.rows.column("previous_key").to_pylist() == [None, {"1": 1, "2": "x"}]
    assert len(set(zip(*(found.rows.column(each).to_pylist() for each in ("position", "ordinal")),
                       strict=True))) == 1  # fmt: skip


@pytest.mark.parametrize("before", [{"id": 1.0}, {"id": None}, {"name": "a"}, {}])
def test_an_old_row_with_the_same_key_or_none_is_an_ordinary_update(before: object) -> None:
    found = read((None, event("u", A, before)))
    assert rows(found) == [("UPDATE", 1, "a")]
    assert found.rows.column("previous_key").to_pylist() == [None]


def test_a_key_change_is_refused_as_a_whole() -> None:
    found = read((None, event("u", A, {"id": "x"})), (None, event("u", A, {"id": 2})))
    assert reasons(found) == [(10, UNREPRESENTABLE)]
    assert [row["1"] for row in found.rows.to_pylist()] == [2, 1]
    assert found.rows.column("previous_key").to_pylist() == [None, {"1": 2}]


@pytest.mark.parametrize(
    ("added", "operation"),
    [
        ({"__deleted": "false"}, "UPDATE"),
        ({"__deleted": False, "__op": "c"}, "INSERT"),
        ({"__op": "r", "__table": "t"}, "READ"),
        ({"__op": "u"}, "UPDATE"),
        ({"__deleted": "true"}, "DELETE"),
        ({"__deleted": True, "__op": "d"}, "DELETE"),
        ({"__op": "d"}, "DELETE"),
    ],
)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_flattened_event_says_what_it_does_in_added_fields(
    added: dict[str, Any], operation: str, *, is_wrapped: bool
) -> None:
    # Columns may have the names of an envelope's fields.
    value: Any = {"id": 1, "name": "a", "before": "x", "source": 5, "payload": {}, **added}
    if is_wrapped:
        value = {"schema": {"type": "struct", "fields": []}, "payload": value}
    name = None if operation == "DELETE" else "a"
    assert rows(read((None, value))) == [(operation, 1, name)]


def test_a_flattened_event_may_bring_its_time_and_its_position() -> None:
    value = {**A, "__op": "c", "__source_ts_ms": NOON_US // 1000, "__source_lsn": 77}
    found = read((None, value), sequence="source.lsn").rows.to_pylist()[0]
    assert (found["position"], found["ordinal"], found["committed_at"]) == (77, 11, NOON)


@pytest.mark.parametrize(
    "value",
    [A, {}, {"op": "c"}, {"op": "c", "source": {}}, {"payload": A, "schema": None}, event("x", A),
     event("c"), event("u", None, A), event("c", 5), event("u", A, "x"), {"__op": 5}, b"5", b"[]",
     event("c", A, source=7)],
)  # fmt: skip
def test_what_is_no_change_event_is_invalid(value: object) -> None:
    found = read((None, value), (None, event("c", A)))
    assert reasons(found) == [(10, INVALID)]
    assert found.rejected[0].payload == as_json(value)
    assert (found.rejected[0].table, found.rejected[0].where) == ("orders", "orders/2")
    assert found.rows.num_rows == 1


@pytest.mark.parametrize("value", [b"{", b"no json", b'{"id":' + b"[" * 100_000])
@pytest.mark.parametrize("envelope", list(Envelope))
def test_what_is_not_json_is_malformed(value: bytes, envelope: Envelope) -> None:
    found = read((None, value), envelope=envelope)
    assert reasons(found) == [(10, RejectReason.MALFORMED)]


def test_a_value_that_was_not_sent_is_taken_from_the_old_row() -> None:
    encoded = base64.b64encode(PLACEHOLDER.encode()).decode()
    columns = "id long, name string, photo binary"
    after = {"id": 1, "name": PLACEHOLDER, "photo": encoded}
    found = read((None, event("u", after, {"id": 1, "name": "old", "photo": "p"})), columns=columns)
    assert rows(found) == [("UPDATE", 1, "old", b"p")]


@pytest.mark.parametrize("before", [None, {"id": 1}, {"name": None}, {"name": PLACEHOLDER}])
@pytest.mark.parametrize("on_wrong_value", list(OnWrongValue))
def test_a_value_that_was_not_sent_is_never_replaced_by_anything_else(
    before: object, on_wrong_value: OnWrongValue
) -> None:
    after = {"id": 1, "name": PLACEHOLDER}
    found = read(
        (None, event("u", after, before)),
        (None, {**after, "__op": "u"}),
        on_wrong_value=on_wrong_value,
    )
    assert reasons(found) == [(10, UNREPRESENTABLE), (11, UNREPRESENTABLE)]
    assert found.rows.num_rows == 0
    assert "name" in found.rejected[0].message
    assert "REPLICA IDENTITY FULL" in found.rejected[0].message


def test_a_plain_value_replaces_the_row_of_its_key() -> None:
    found = read((None, A), ({"id": 2}, {"name": "b"}), ({"id": 2}, None), envelope=Envelope.NONE)
    assert rows(found) == [("UPDATE", 1, "a"), ("UPDATE", 2, "b"), ("DELETE", 2, None)]


@pytest.mark.parametrize(
    ("type_", "key", "expected"),
    [
        ("long", b"5", 5),
        ("long", b"007", 7),
        ("long", b'{"schema":{"type":"int64"},"payload":6}', 6),
        ("string", b"some text", "some text"),
        ("string", b"5", "5"),
        ("string", b"1.50", "1.50"),
        ("string", b"true", "true"),
        ("string", b'"quoted"', "quoted"),
        ("string", b'{"id":"inner"}', "inner"),
        ("date", b"2024-01-02", date(2024, 1, 2)),
        ("timestamp", b'{"schema":{"type":"int64","name":"io.debezium.time.MicroTimestamp"},'
                      b'"payload":%d}' % NOON_US, NOON),
    ],
)  # fmt: skip
def test_a_single_key_column_may_be_the_whole_key(type_: str, key: bytes, expected: object) -> None:
    found = read((key, None), columns=f"id {type_}", envelope=Envelope.NONE)
    assert rows(found) == [("DELETE", expected)]


@pytest.mark.parametrize("key", [None, b"null", b"\xff", b"{}", b'{"id":null}', b"[]"])
def test_a_record_without_its_key_is_rejected(key: bytes | None) -> None:
    found = read((key, None), (key, {"name": "x"}), (key, A), envelope=Envelope.NONE)
    assert [offset for offset, _ in reasons(found)] == [10, 11]
    assert found.rejected[0].payload == b""
    assert found.rows.column("1").to_pylist() == [1]


def test_a_key_of_two_columns_is_not_read_from_one_value() -> None:
    found = read((b"5", None), columns="a long, b long", key="a b", envelope=Envelope.NONE)
    assert reasons(found) == [(10, INVALID)]


@pytest.mark.parametrize("value", ["x", 2**63, True, []])
def test_a_wrong_value_is_null_or_its_record_is_rejected_but_a_key_is_never_null(
    value: object,
) -> None:
    records = [({"id": 9}, {"id": value, "n": 1}), (None, {"id": 1, "n": value}), (None, {"id": 2})]
    columns = "id long, n long"
    nulled = read(
        *records, columns=columns, envelope=Envelope.NONE, on_wrong_value=OnWrongValue.NULL
    )
    assert reasons(nulled) == [(10, UNREPRESENTABLE)]
    assert nulled.rows.column("1").to_pylist() == [1, 2]
    assert nulled.counts == {CountedOutcome.NULLED: 1}
    strict = read(*records, columns=columns, envelope=Envelope.NONE)
    assert reasons(strict) == [(10, UNREPRESENTABLE), (11, UNREPRESENTABLE)]
    assert strict.counts == {}
    assert all(str(value) not in each.message for each in strict.rejected if value == 2**63)


def test_what_is_required_is_missing_in_every_row_but_a_delete() -> None:
    found = read(
        (None, event("c", {"id": 1})),
        (None, event("d", None, {"id": 1})),
        (None, event("t")),
        (None, event("c", {"id": 1, "n": "x"})),
        columns="id long!, n long!",
        on_wrong_value=OnWrongValue.NULL,
    )
    assert reasons(found) == [(10, INVALID), (13, UNREPRESENTABLE)]
    assert found.rows.column("operation").to_pylist() == ["DELETE", "TRUNCATE"]


@pytest.mark.parametrize(
    ("value", "position"),
    [(0, 0), (2**64 - 1, 2**64 - 1), ("16/B374D848", 0x16B374D848), ("ff/0", 0xFF << 32),
     ("12345678901", 12345678901)],
)  # fmt: skip
def test_a_field_orders_changes_with_the_offset_after_it(value: object, position: int) -> None:
    found = read((None, event("c", A, source={"lsn": value})), sequence="source.lsn")
    row = found.rows.to_pylist()[0]
    assert (row["position"], row["ordinal"], row["origin"]) == (position, 11, "orders:2:10")


@pytest.mark.parametrize(
    "source",
    [None, {}, {"lsn": None}, {"lsn": -1}, {"lsn": 2**64}, {"lsn": 1.5}, {"lsn": True},
     {"lsn": "x"}, {"lsn": "1/2/3"}, {"lsn": "99999999999999999999"}, {"lsn": [1]}],
)  # fmt: skip
def test_a_change_without_a_usable_position_is_rejected(source: object) -> None:
    found = read((None, event("c", A, source=source)), sequence="source.lsn")
    assert reasons(found) == [(10, INVALID)]
    assert "source.lsn" in found.rejected[0].message


def field(name: str, type_: str, logical: str | None = None, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": type_, "name": logical, "optional": True, **more}


def with_schema(fields: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    inner = {"type": "struct", "fields": fields}
    outer = [{**inner, "field": "before"}, {**inner, "field": "after"}, field("op", "string")]
    return {"schema": {"type": "struct", "fields": outer}, "payload": event("c", row)}


DEBEZIUM_TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("type_", "declared", "value", "expected"),
    [
        ("timestamp", ("int64", DEBEZIUM_TIME + "MicroTimestamp"), NOON_US + 1,
         NOON + timedelta(microseconds=1)),
        ("timestamp", ("int64", DEBEZIUM_TIME + "NanoTimestamp"), NOON_US * 1000 + 1999,
         NOON + timedelta(microseconds=1)),
        ("timestamp", ("int64", DEBEZIUM_TIME + "Timestamp"), NOON_US // 1000, NOON),
        ("timestamp", ("int64", CONNECT + "Timestamp"), NOON_US // 1000, NOON),
        ("timestamp", ("string", DEBEZIUM_TIME + "ZonedTimestamp"), "2024-01-02T13:00:00+01:00",
         NOON),
        ("timestamp", ("int32", DEBEZIUM_TIME + "Date"), 19724, NOON - timedelta(hours=12)),
        ("timestamp", ("int64", None), NOON_US // 1000, NOON),
        ("date", ("int32", DEBEZIUM_TIME + "Date"), 19724, date(2024, 1, 2)),
        ("date", ("int32", CONNECT + "Date"), -1, date(1969, 12, 31)),
        ("date", ("int64", DEBEZIUM_TIME + "MicroTimestamp"), -1, date(1969, 12, 31)),
        ("long", ("int64", DEBEZIUM_TIME + "MicroTimestamp"), NOON_US, NOON_US),
        ("binary", ("bytes", None), "AP8=", b"\x00\xff"),
        ("string", ("bytes", None), "AP8=", "AP8="),
    ],
)  # fmt: skip
def test_a_message_with_its_own_schema_is_read_by_it(
    type_: str, declared: tuple[str, str | None], value: object, expected: object
) -> None:
    message = with_schema([field("v", *declared)], {"id": 1, "v": value})
    assert rows(read((None, message), columns=f"id long, v {type_}")) == [("INSERT", 1, expected)]


@pytest.mark.parametrize(
    ("unscaled", "scale", "expected"),
    [(12345, "2", "123.45"), (-5, "2", "-0.05"), (7, "0", "7"), (7, "-2", "700"), (0, "3", "0.000"),
     (-(10**30), "10", "-100000000000000000000.0000000000")],
)  # fmt: skip
def test_a_decimal_is_exact_text(unscaled: int, scale: str, expected: str) -> None:
    octets = unscaled.to_bytes(16, "big", signed=True)
    declared = field("v", "bytes", CONNECT + "Decimal", parameters={"scale": scale})
    message = with_schema([declared], {"id": 1, "v": base64.b64encode(octets).decode()})
    assert rows(read((None, message), columns="id long, v string")) == [("INSERT", 1, expected)]


@pytest.mark.parametrize("value", ["not base64!", "", 5, "A" * 4096])
@pytest.mark.parametrize("scale", ["2", "x", "9999999999"])
def test_what_is_no_decimal_is_a_wrong_value(value: object, scale: str) -> None:
    declared = field("v", "bytes", CONNECT + "Decimal", parameters={"scale": scale})
    message = with_schema([declared], {"id": 1, "v": value})
    assert reasons(read((None, message), columns="id long, v string")) == [(10, UNREPRESENTABLE)]


def test_a_number_stays_a_wrong_value_of_a_text_column() -> None:
    assert reasons(read((None, event("c", {"id": 1, "name": 5})))) == [(10, UNREPRESENTABLE)]


def test_a_plain_message_may_have_its_own_schema_unless_its_columns_have_such_names() -> None:
    schema = {"type": "struct", "fields": [field("at", "int64", DEBEZIUM_TIME + "MicroTimestamp")]}
    message = {"schema": schema, "payload": {"id": 1, "at": NOON_US}}
    found = read((None, message), columns="id long, at timestamp", envelope=Envelope.NONE)
    assert rows(found) == [("UPDATE", 1, NOON)]
    own = {"id": 1, "payload": "p", "schema": None}
    columns = "id long, payload string, schema string"
    assert rows(read((None, own), columns=columns, envelope=Envelope.NONE)) == [
        ("UPDATE", 1, "p", None)
    ]


def test_without_a_key_a_delete_has_the_whole_row_and_a_tombstone_says_nothing() -> None:
    found = read((None, event("u", B, A)), (None, event("d", None, B)), (None, None), key="")
    assert rows(found) == [("UPDATE", 1, "b"), ("DELETE", 1, "b")]
    assert found.counts == {CountedOutcome.SKIPPED: 1}


def test_columns_that_the_fields_do_not_have_are_null() -> None:
    plan = change_plan("id long, name string")
    events = ChangeEvents(
        type(plan)(
            **{name: getattr(plan, name) for name in plan.__slots__} | {"fields": plan.fields[:1]}
        )
    )
    assert rows(events.read(change_records((None, event("c", A))), 0)) == [("INSERT", 1, None)]


def test_no_records_are_no_rows() -> None:
    assert rows(read()) == []
    assert isinstance(read().rows, pa.RecordBatch)
