"""Tables of topics: columns keep their numbers, and what is wrong concerns one topic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.config.models.kafscale_source import KafscaleSection, OnWrongValue
from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.hooks import ManualClock
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceTable, TableBegin
from frazil.sources.kafscale.reading.record_rows import BASE_COLUMNS
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.topic_tables import TopicTables

ORDERS: dict[str, Any] = {"topic": "orders", "table": "prod.orders"}
USERS: dict[str, Any] = {
    "topic": "users",
    "changelog": "prod.users_log",
    "mirror": "prod.users",
    "key": ["id"],
}
BASE = [name for name, _, _ in BASE_COLUMNS]


def column(name: str, type_: str = "long", **others: object) -> dict[str, object]:
    return {"name": name, "type": type_, **others}


def tables(*topics: dict[str, Any], **others: object) -> TopicTables:
    section = KafscaleSection.model_validate(
        {
            "kind": "kafscale",
            "bucket": "b",
            "offsets": {"backend": "none"},
            "topics": list(topics),
            **others,
        }
    )
    clock = ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    return TopicTables(section, SchemaRegistry(section.registry, clock))


def numbers(table: SourceTable) -> dict[str, int]:
    return {each.name: each.number for each in table.columns}


def test_a_table_of_records_has_the_processors_columns_and_then_its_own() -> None:
    table, plan = tables({**ORDERS, "columns": [column("a"), column("b", "string")]}).load(
        "orders", ""
    )
    assert [each.name for each in table.columns] == [*BASE, "a", "b"]
    assert list(numbers(table).values()) == list(range(1, 11))
    assert table.begins is TableBegin.STREAM
    assert table.layout.columns == ()
    assert table.layout.offset_columns == ("topic", "partition", "offset")
    assert plan.on_wrong_value is OnWrongValue.NULL
    assert plan.columns == table.columns


def test_a_table_of_records_is_arranged_as_its_topic_says() -> None:
    given = {"partition_by": ["day(at)"], "sort_by": ["at desc"]}
    orders = {"topic": "orders", "table": "lake.orders", "columns": [column("at", "timestamp")]}
    made = tables({**orders, **given}).declared("orders")
    assert made.layout.partition_by == (("", "day(at)"),)
    assert made.layout.sort_by == ("at desc",)
    changes = {"topic": "orders", "changelog": "lake.orders", "sort_by": ["at"]}
    with pytest.raises(ValueError, match="is for tables of records"):
        tables(changes)


@pytest.mark.fault("U14")
def test_columns_keep_their_numbers_wherever_they_are_declared() -> None:
    first, _ = tables({**ORDERS, "columns": [column("a"), column("b")]}).load("orders", "")
    now = tables({**ORDERS, "columns": [column("new"), column("b"), column("a")]})
    second, _ = now.load("orders", first.shape)
    assert {**numbers(first), "new": 11} == numbers(second)
    assert second.highest_number == 11


def test_a_column_that_is_not_declared_any_more_stays_and_may_come_back() -> None:
    wanted = [column("a", required=True), column("b")]
    first, _ = tables({**ORDERS, "columns": wanted}).load("orders", "")
    second, plan = tables({**ORDERS, "columns": [column("b")]}).load("orders", first.shape)
    assert numbers(second) == numbers(first)
    assert [each.name for each in plan.fields] == ["b"]
    assert not second.column(9).required, "it has nulls from now on"
    third, _ = tables({**ORDERS, "columns": wanted}).load("orders", second.shape)
    assert numbers(third) == numbers(first)


@pytest.mark.fault("U17")
def test_a_wider_type_is_followed_and_a_narrower_one_is_read_as_the_wider() -> None:
    narrow = tables({**ORDERS, "columns": [column("a", "int")]})
    wide = tables({**ORDERS, "columns": [column("a", "long")]})
    before, _ = narrow.load("orders", "")
    after, _ = wide.load("orders", before.shape)
    assert after.column(9).type is Primitive.LONG
    again, plan = narrow.load("orders", after.shape)
    assert again.column(9).type is Primitive.LONG
    assert [each.type.value for each in plan.fields] == ["long"]


@pytest.mark.parametrize(("type_", "widen"), [("long", False), ("string", True)])
def test_any_other_change_of_a_type_is_refused(type_: str, *, widen: bool) -> None:
    before, _ = tables({**ORDERS, "columns": [column("a", "int")]}).load("orders", "")
    changed = tables({**ORDERS, "columns": [column("a", type_)], "widen": widen})
    with pytest.raises(UnsupportedSchemaChangeError, match="column a changes from int"):
        changed.load("orders", before.shape)


def test_what_is_wrong_with_one_topic_is_its_obstacle_alone() -> None:
    named_alike = {**ORDERS, "columns": [column("offset")]}
    without_key = {**USERS, "columns": [column("name", "string")]}
    fine = {"topic": "fine", "table": "prod.fine"}
    found = tables(named_alike, without_key, fine)
    orders, users, others = (found.declared(each) for each in ("orders", "users", "fine"))
    assert isinstance(orders.obstacle, ConfigError)
    assert isinstance(users.obstacle, ConfigError)
    assert others.obstacle is None
    with pytest.raises(ConfigError, match="offset"):
        found.load("orders", "")


def test_a_topic_of_changes_has_its_columns_only_and_a_key() -> None:
    wanted = [column("id", required=True), column("name", "string")]
    table, plan = tables({**USERS, "columns": wanted, "sequence": "source.lsn"}).load("users", "")
    assert numbers(table) == {"id": 1, "name": 2}
    assert table.key == plan.key == (1,)
    assert not any(each.required for each in table.columns), "a delete has the key only"
    assert plan.sequence == ("source", "lsn")
    assert plan.on_wrong_value is OnWrongValue.DEAD_LETTER
    assert table.layout.has_operations
    assert table.layout.offset_columns is None


def test_a_key_that_the_registry_declares_is_no_obstacle_before_it_was_asked() -> None:
    found = tables(USERS, registry={"base_url": "http://127.0.0.1:1/schemas"})
    assert found.declared("users").obstacle is None
    assert not found.learns_columns("users")


def test_only_topics_of_changes_without_columns_learn_them_from_records() -> None:
    found = tables(ORDERS, USERS)
    assert [found.learns_columns(each) for each in ("orders", "users")] == [False, True]
    assert found.declared("users").obstacle is None
