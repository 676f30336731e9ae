"""Tables in layouts that their source gives: KafScale's records and the buffer's changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.clients.iceberg.lake import Lake
from frazil.config import load_config
from frazil.ledger.table_state import Copying, Paused, Streaming
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings
from frazil.model.policy import Order
from frazil.model.schema.table_layout import OwnColumn, TableLayout
from frazil.model.schema.types import Primitive
from frazil.pipeline.tables.captured_mirrors import CapturedMirror
from frazil.pipeline.tables.merge_settings import merge_settings
from frazil.testing.in_memory_database import DeleteRow, InsertRow, RejectRecord, UpdateRow
from tests.support.ingest.world import USERS, World, world

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["world"]

pytestmark = [pytest.mark.spark, pytest.mark.services]

P = Primitive
TOPIC, EVENTS = "orders", "shop.customers"
BASE = {
    "record_id": P.STRING, "topic": P.STRING, "partition": P.INT, "offset": P.LONG,
    "timestamp_ms": P.LONG, "key": P.BINARY, "value": P.BINARY, "headers": P.STRING,
}  # fmt: skip
REQUIRED = ("record_id", "topic", "partition", "offset", "timestamp_ms", "amount")
RECORDS = TableLayout(columns=(), required=frozenset())
BUFFERED = TableLayout(
    columns=tuple(each for each in OwnColumn if each is not OwnColumn.PREVIOUS_KEY),
    required=frozenset(OwnColumn) - {OwnColumn.UNCHANGED, OwnColumn.PREVIOUS_KEY},
    partition_by=(("{prefix}date", "day({prefix}timestamp)"),),
)


def produced(offset: int, **more: object) -> InsertRow:
    base = {
        "record_id": f"orders:0:{offset}",
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp_ms": 1_700_000_000_000 + offset,
        "key": b"k",
        "headers": "",
        "amount": offset,
    }
    return InsertRow(TOPIC, {**base, **more})


def add_topic(world: World, layout: TableLayout = RECORDS) -> None:
    columns = {**BASE, "amount": P.LONG}
    world.database.add_table(TOPIC, columns, required=REQUIRED, layout=layout)


def columns_of(world: World, table: str) -> list[tuple[int, str, bool]]:
    schema = world.case.lake.open(world.changelog(table)).load_schema()
    return [(each.id, each.name, each.required) for each in schema.fields]


def test_records_of_a_topic_have_upstreams_columns_and_none_of_ours(world: World) -> None:
    add_topic(world)
    ingester = world.run()
    world.database.transact(produced(0), produced(1, value=b"{}"))
    world.run(ingester)
    names = [*BASE, "amount"]
    expected = [(at, name, name in REQUIRED) for at, name in enumerate(names, start=1)]
    assert columns_of(world, TOPIC) == expected
    # A user's own column stays, and so does one that is declared no more; both may be empty.
    world.spark.sql(f"alter table {world.changelog(TOPIC).quoted} add column mine string")
    world.database.drop_column(TOPIC, "amount")
    world.database.add_column(TOPIC, "note", P.STRING)
    extra = {"amount": 2, "note": "x"}
    row = {name: value for name, value in produced(2).values.items() if name not in extra}
    world.database.transact(InsertRow(TOPIC, {**row, "note": "x"}))
    world.run(ingester)
    assert world.states(ingester)[TOPIC] == Streaming()
    rows = world.case.lake.open(world.changelog(TOPIC)).read().orderBy("offset").collect()
    assert [(row.offset, row.amount, row.note, row.mine) for row in rows] == [
        (0, 0, None, None), (1, 1, None, None), (2, None, "x", None),
    ]  # fmt: skip
    assert [row.value for row in rows] == [None, b"{}", None]
    assert {name for _, name, required in columns_of(world, TOPIC) if required} == {*REQUIRED[:-1]}


def test_a_record_without_a_required_value_stops_its_table_by_name(world: World) -> None:
    add_topic(world)
    ingester = world.run()
    world.database.transact(produced(0, amount=None, value=b"canary"))
    world.add(USERS, 1)
    world.run(ingester)
    state = world.states(ingester)[TOPIC]
    assert isinstance(state, Paused)
    assert "amount" in state.cause.reason
    assert "canary" not in str(state.cause)
    world.check(USERS)


def test_a_table_of_the_owner_is_taken_as_it_is_and_never_made(world: World) -> None:
    add_topic(world, replace(RECORDS, is_created=False))
    ingester = world.run()
    state = world.states(ingester)[TOPIC]
    assert isinstance(state, Copying)
    assert state.cause is not None
    assert f"create {world.changelog(TOPIC)}" in str(state.cause.remedy)
    world.spark.sql(
        f"create table {world.changelog(TOPIC).quoted} (mine string, `offset` bigint not null, "
        "record_id string, topic string, partition int, timestamp_ms bigint, key binary, "
        "value binary) using iceberg partitioned by (topic)"
    )
    ingester.close()
    ingester = world.run()
    world.database.transact(produced(0))
    world.run(ingester)
    assert world.states(ingester)[TOPIC] == Streaming()
    (row,) = world.case.lake.open(world.changelog(TOPIC)).read().collect()
    assert (row.offset, row.topic, row.amount, row.headers, row.mine) == (0, "orders", 0, "", None)
    assert [name for _, name, _ in columns_of(world, TOPIC)][:2] == ["mine", "offset"]


def test_records_that_are_there_are_not_replaced_by_a_copy(world: World) -> None:
    add_topic(world)
    world.database.transact(produced(0))
    ingester = world.run()
    world.database.drop_table(TOPIC)
    world.run(ingester)
    add_topic(world)
    ingester.close()
    ingester = world.run()
    state = world.states(ingester)[TOPIC]
    assert not isinstance(state, Streaming)
    assert len(world.case.lake.open(world.changelog(TOPIC)).read().collect()) == 1


DOCUMENT = """
pipeline: shop
catalog: {{name: {catalog}, kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}}
source: {{kind: buffer, dsn: 'postgresql://h/d'}}
"""


def merge(world: World, folder: Path) -> None:
    """As a pipeline over a buffer does without any setting of the table."""
    document = folder / "frazil.yaml"
    document.write_text(DOCUMENT.format(catalog=world.case.catalog))
    config = load_config(document, environ={}).config
    captured = CapturedMirror(EVENTS, world.changelog(EVENTS), ("id",))
    settings = merge_settings(config, f"{world.namespace}.customers", captured=captured)
    assert settings.order is Order.PER_KEY
    settings = replace(settings, index=IndexSettings(cache_dir=folder))
    Merger(world.spark, Lake(world.spark, world.case.catalog), settings).merge()


def test_a_buffers_changes_are_kept_by_day_and_merged(world: World, tmp_path: Path) -> None:
    world.prefix = "_cdc_"
    columns = {"id": P.LONG, "name": P.STRING}
    world.database.add_table(EVENTS, columns, key=["id"], layout=BUFFERED)
    ingester = world.run()
    world.database.transact(*(InsertRow(EVENTS, {"id": each, "name": "a"}) for each in (1, 2, 3)))
    world.run(ingester)
    merge(world, tmp_path)
    world.database.transact(
        UpdateRow(EVENTS, (1,), {"id": 1, "name": "b"}),
        DeleteRow(EVENTS, (2,)),
        UpdateRow(EVENTS, (3,), {"id": 30, "name": "moved"}),
        RejectRecord(EVENTS, b"poison"),
    )
    world.database.add_column(EVENTS, "email", P.STRING)
    world.database.transact(InsertRow(EVENTS, {"id": 4, "name": "d", "email": "d@x"}))
    world.run(ingester)
    merge(world, tmp_path)
    assert columns_of(world, EVENTS) == [
        (1, "id", False), (2, "name", False), (9, "email", False),
        (3, "_cdc_operation", True), (4, "_cdc_sequence_number", True),
        (5, "_cdc_timestamp", True), (6, "_cdc_lsn", True), (7, "_cdc_unchanged", False),
    ]  # fmt: skip
    version = world.case.lake.open(world.changelog(EVENTS)).load_version()
    assert [(each.name, str(each.transform)) for each in version.spec.fields] == [
        ("_cdc_date", "day")
    ]
    mirror = f"{world.namespace}.customers"
    found = world.spark.table(f"{world.case.catalog}.{mirror}").collect()
    shown = sorted((row.id, row.name, row.email) for row in found)
    contents = world.database.contents(EVENTS)
    assert shown == sorted((row["id"], row["name"], row["email"]) for row in contents)
    assert set(found[0].asDict()) == {"id", "name", "email", "_cdc_sequence_number"}
    assert world.letters() == [(EVENTS, b"poison")]
