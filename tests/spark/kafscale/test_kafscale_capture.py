"""Topics become tables: every record once, by name, and what cannot be a row is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from frazil.clients.etcd.client import Etcd
from frazil.clients.etcd.transactions import Range
from frazil.errors import (
    PermissionError,  # noqa: A004 - the published name of this error
    TableNotFoundError,
)
from frazil.pipeline.loops.loop import Ending
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.captured_topics import CapturedTopics, captured_topics
from tests.support.kafscale.etcd_history import put, value_at
from tests.support.kafscale.guarded_etcd import PASSWORD, guarded_etcd
from tests.support.kafscale.registry_server import registry
from tests.support.kafscale.segments import TIMESTAMP, Message

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import EtcdServer, ObjectStore
    from frazil.pipeline.planning.run_plan import TableStep

pytestmark = [pytest.mark.spark, pytest.mark.services]

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS: list[dict[str, object]] = [
    {"name": "order_id", "type": "long", "required": True},
    {"name": "price", "type": "double"},
    {"name": "placed_at", "type": "timestamp"},
]
ORDERS = {"topic": "orders", "table": "prod.orders", "columns": COLUMNS}


def order(number: int, **fields: object) -> Message:
    value = {"order_id": number, "price": number / 2, "placed_at": "2026-01-02T03:04:05Z", **fields}
    return Message(json.dumps(value).encode(), key=b"%d" % number)


@pytest.fixture
def topics(spark: SparkSession, object_store: ObjectStore, tmp_path: Path) -> CapturedTopics:
    return captured_topics(spark, object_store, tmp_path, topics=[ORDERS])


def ids(world: CapturedTopics, table: str = "prod.orders") -> list[tuple[int, int, int]]:
    rows = world.rows(table)
    return sorted((each["partition"], each["offset"], each["order_id"]) for each in rows)


def planned(world: CapturedTopics, topic: str) -> TableStep:
    step = world.plan()[topic].capture
    assert step is not None
    return step


def waiting(step: TableStep) -> dict[str, tuple[int, int, int]]:
    """Offset, newest and segments of each partition."""
    found: Any = step.waiting.document["partitions"]
    return {each["partition"]: (each["offset"], each["newest"], each["segments"]) for each in found}


def test_a_plan_says_what_a_run_does_with_topics_and_leaves_no_trace(
    topics: CapturedTopics,
) -> None:
    mirrored = {
        "topic": "stock",
        "changelog": "prod.stock_changes",
        "mirror": "prod.stock",
        "key": ["id"],
        "columns": [{"name": "id", "type": "long"}],
    }
    absent = {"topic": "absent", "table": "prod.absent", "create": False}
    topics.document["source"]["topics"] = [ORDERS, mirrored, absent]
    topics.broker.produce(FIRST, [order(1), order(2)])
    topics.broker.produce(FIRST, [order(3)])
    topics.broker.produce(SECOND, [order(4)])
    stock = TopicPartition("stock", 0)
    topics.broker.produce(stock, [Message(b'{"id": 7}', key=b"7")])
    found = topics.plan()
    orders = found["orders"].capture
    assert orders is not None
    assert orders.has_work
    assert orders.changelog is not None
    assert orders.changelog.is_new
    assert ("order_id", "long") in orders.changelog.columns
    assert waiting(orders) == {"orders/0": (0, 3, 2), "orders/1": (0, 1, 1)}
    assert orders.waiting.document["segments"] == 3
    stocked = found["stock"].capture
    assert stocked is not None
    assert stocked.mirror is not None
    assert (stocked.mirror.is_new, stocked.mirror.key) == (True, ("id",))
    refused = found["absent"].capture
    assert refused is not None
    assert isinstance(refused.problem, TableNotFoundError)
    with pytest.raises(TableNotFoundError):
        topics.lake.open(topics.name("prod.orders"))
    topics.document["source"]["topics"] = [ORDERS, mirrored]
    topics.ingest()
    found = topics.plan()
    assert not any(each.capture is not None and each.capture.has_work for each in found.values())
    assert found["stock"].merge is not None, "its changelog waits for a merge"
    widened = [*COLUMNS, {"name": "note", "type": "string"}]
    topics.document["source"]["topics"] = [{**ORDERS, "columns": widened}, mirrored]
    topics.broker.produce(SECOND, [order(5), order(6)])
    step = planned(topics, "orders")
    assert waiting(step) == {"orders/0": (3, 3, 0), "orders/1": (1, 3, 1)}
    assert step.changelog is not None
    assert step.changelog.changes == ("note is added as string",)
    assert not step.changelog.takes_over


@pytest.mark.fault("U4")
def test_records_become_rows_with_all_compressions(topics: CapturedTopics) -> None:
    broker = topics.broker
    for compression in range(5):
        messages = [order(compression * 10 + number) for number in range(3)]
        broker.produce(FIRST, messages, compression=compression)
    broker.produce(SECOND, [order(99)])
    topics.ingest()
    expected = [(0, at, at // 3 * 10 + at % 3) for at in range(15)]
    assert ids(topics) == [*expected, (1, 0, 99)]
    first = min(topics.rows("prod.orders"), key=lambda row: (row["partition"], row["offset"]))
    assert {name: first[name] for name in list(first)[:8]} == {
        "record_id": "orders:0:0",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": TIMESTAMP,
        "key": b"0",
        "value": order(0).value,
        "headers": "",
    }
    assert topics.offsets("prod.orders") == {"orders/0": 15, "orders/1": 1}
    # Once more, and with more.
    assert topics.ingest() == []
    broker.produce(SECOND, [order(100), order(101)])
    topics.ingest()
    assert ids(topics)[-2:] == [(1, 1, 100), (1, 2, 101)]


@pytest.mark.fault("U16")
def test_wrong_values_are_null_and_records_without_required_ones_are_dead_letters(
    topics: CapturedTopics,
) -> None:
    topics.broker.produce(
        FIRST, [order(1, price="much"), order(2, order_id=None), Message(b"no json"), order(3)]
    )
    topics.ingest()
    assert ids(topics) == [(0, 0, 1), (0, 3, 3)]
    letters = sorted(topics.dead_letters(), key=lambda each: each["position"])
    assert [each["reason_code"] for each in letters] == ["invalid", "invalid"]
    assert [each["payload"] for each in letters][1] == b"no json"


def test_a_table_is_partitioned_and_sorted_as_its_topic_says(topics: CapturedTopics) -> None:
    arranged = {**ORDERS, "partition_by": ["day(placed_at)"], "sort_by": ["price desc", "order_id"]}
    topics.document["source"]["topics"] = [arranged]
    prices = [3, 1, 2, None, 2]
    topics.broker.produce(
        FIRST,
        [
            order(number, price=price, placed_at=f"2026-01-0{day}T00:00:00Z")
            for day in (1, 2)
            for number, price in enumerate(prices)
        ],
    )
    topics.ingest()
    table = topics.lake.open(topics.name("prod.orders"))
    version = table.load_version()
    assert [each.name for each in version.spec.fields] == ["placed_at_day"]
    assert [each.descending for each in version.sort_order.fields] == [True, False]
    files = table.read().selectExpr("input_file_name() f").distinct().count()
    assert files == 2, "one for each day"
    rows = topics.rows("prod.orders")
    for day in (1, 2):
        found = [each for each in rows if each["placed_at"].day == day]
        assert [(each["price"], each["order_id"]) for each in found] == [
            (3.0, 0),
            (2.0, 2),
            (2.0, 4),
            (1.0, 1),
            (None, 3),
        ]
    # The order stays when columns come.
    arranged["columns"] = [*COLUMNS, {"name": "note", "type": "string"}]
    topics.broker.produce(FIRST, [order(7, price=1), order(8, price=2, note="new")])
    topics.ingest()
    assert [each["order_id"] for each in topics.rows("prod.orders") if each["offset"] > 9] == [8, 7]


@pytest.mark.fault("U10")
def test_a_damaged_segment_stops_its_partition_there_and_no_other(topics: CapturedTopics) -> None:
    broker = topics.broker
    broker.produce(FIRST, [order(1)])
    key = broker.produce(FIRST, [order(2)])
    broker.produce(FIRST, [order(3)])
    broker.produce(SECOND, [order(4)])
    data = bytearray(broker.bucket.read(key))
    data[60] ^= 1
    broker.put(key.removeprefix(f"{broker.namespace}/"), bytes(data))
    assert topics.ingest_once() is Ending.ACTION_REQUIRED
    assert ids(topics) == [(0, 0, 1), (1, 0, 4)]
    assert topics.offsets("prod.orders") == {"orders/0": 1, "orders/1": 1}
    # Repaired, it continues there.
    data[60] ^= 1
    broker.put(key.removeprefix(f"{broker.namespace}/"), bytes(data))
    assert topics.ingest_once() is Ending.DONE
    assert ids(topics) == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 4)]


@pytest.mark.fault("U17")
def test_columns_come_and_widen_and_those_that_are_not_listed_survive(
    topics: CapturedTopics,
) -> None:
    topics.document["source"]["topics"] = [
        {
            **ORDERS,
            "columns": [{"name": "order_id", "type": "int"}, {"name": "old", "type": "string"}],
        }
    ]
    topics.broker.produce(FIRST, [order(1, old="kept")])
    topics.ingest()
    topics.document["source"]["topics"] = [ORDERS]
    topics.broker.produce(FIRST, [order(1 << 40)])
    topics.ingest()
    rows = sorted(topics.rows("prod.orders"), key=lambda each: each["offset"])
    assert [(each["order_id"], each["old"], each["price"]) for each in rows] == [
        (1, "kept", None),
        (1 << 40, None, float(1 << 39)),
    ]


@pytest.mark.fault("N19")
def test_a_topic_that_is_made_again_goes_on_with_its_offsets(topics: CapturedTopics) -> None:
    topics.broker.produce(FIRST, [order(1), order(2)])
    topics.ingest()
    # Its objects expire; the broker counts on from where it was.
    topics.broker.delete(FIRST)
    assert topics.ingest() == []
    topics.broker.produce(FIRST, [order(3)])
    topics.ingest()
    assert ids(topics) == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]


@pytest.mark.fault("U11")
def test_etcd_has_the_offsets_of_the_markers(
    spark: SparkSession, object_store: ObjectStore, etcd: EtcdServer, tmp_path: Path
) -> None:
    topics = captured_topics(spark, object_store, tmp_path, topics=[ORDERS], etcd=etcd)
    topics.broker.produce(FIRST, [order(1), order(2)])
    topics.ingest()
    prefix = topics.document["source"]["offsets"]["key_prefix"]
    stored = value_at(etcd.endpoint, f"{prefix}/offsets/orders/0")
    assert stored is not None
    assert json.loads(stored)["offset"] == 1
    assert value_at(etcd.endpoint, f"{prefix}/leases/orders/0") is None, "it was released"


def test_etcd_with_a_password_over_tls_serves_a_run_from_claim_to_offset(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    with guarded_etcd(tmp_path) as (server, ca):
        access = {
            "endpoints": [server.tls_endpoint],
            "username": "writer",
            "password": PASSWORD,
            "ca": str(ca),
        }
        offsets = {"backend": "etcd", "key_prefix": "processors", "lease_ttl": "10s"}
        topics = captured_topics(
            spark,
            object_store,
            tmp_path,
            topics=[ORDERS],
            # The user may not read the brokers' description: the bucket says what there is.
            source={"etcd": access, "offsets": offsets},
        )
        for number in range(3):
            topics.broker.produce(FIRST, [order(number)])
        assert waiting(planned(topics, "orders")) == {"orders/0": (0, 3, 3)}
        topics.ingest()
        assert ids(topics) == [(0, at, at) for at in range(3)]
        client = Etcd(
            [str(server.tls_endpoint)], username="writer", password=SecretStr(PASSWORD), ca=ca
        )
        stored, lease, workers = client.read_each(
            [
                Range("processors/offsets/orders/0"),
                Range("processors/leases/orders/0"),
                Range("processors/workers/", is_prefix=True),
            ]
        )
        assert json.loads(stored[0].value)["offset"] == 2
        assert not lease
        assert not workers
        topics.document["source"]["etcd"] = {**access, "password": "wrong"}
        topics.broker.produce(FIRST, [order(9)])
        with pytest.raises(PermissionError):
            topics.ingest_once()
        assert len(ids(topics)) == 3


@pytest.mark.fault("U11")
def test_a_table_and_offsets_of_the_processor_are_taken_over(
    spark: SparkSession, object_store: ObjectStore, etcd: EtcdServer, tmp_path: Path
) -> None:
    topics = captured_topics(spark, object_store, tmp_path, topics=[ORDERS], etcd=etcd)
    broker, name = topics.broker, topics.name("prod.orders")
    for number in range(6):
        broker.produce(FIRST, [order(number)])
        broker.produce(SECOND, [order(10 + number)])
    columns = (
        "record_id string not null, topic string not null, `partition` int not null, "
        "offset bigint not null, timestamp_ms bigint not null, key binary, value binary, "
        "headers string, order_id bigint, note string"
    )
    lake = topics.lake
    lake.ensure_namespace(name)
    spark.sql(f"create table {name.quoted} ({columns}) using iceberg")
    written = [(0, at) for at in range(3)] + [(1, at) for at in range(2)]
    spark.sql(
        f"insert into {name.quoted} values "
        + ", ".join(
            f"('orders:{number}:{at}', 'orders', {number}, {at}, 0, null, null, '', {at}, 'old')"
            for number, at in written
        )
    )
    prefix = topics.document["source"]["offsets"]["key_prefix"]
    # It died before it could say that it had written one more; of the other it skipped one.
    for number, offset in ((0, 1), (1, 2)):
        value = json.dumps({"offset": offset, "last_timestamp_ms": 1, "updated_at": 1})
        put(etcd.endpoint, f"{prefix}/offsets/orders/{number}", value.encode())
    step = planned(topics, "orders")
    assert step.changelog is not None
    assert (step.changelog.is_new, step.changelog.takes_over) == (False, True)
    assert "price is added as double" in step.changelog.changes
    assert waiting(step) == {"orders/0": (3, 6, 3), "orders/1": (3, 6, 3)}
    topics.ingest()
    assert waiting(planned(topics, "orders")) == {"orders/0": (6, 6, 0), "orders/1": (6, 6, 0)}
    found = [(each["partition"], each["offset"]) for each in topics.rows("prod.orders")]
    assert sorted(found) == [*((0, at) for at in range(6)), *((1, at) for at in (0, 1, 3, 4, 5))]
    assert {each["note"] for each in topics.rows("prod.orders")} == {"old", None}
    assert topics.offsets("prod.orders") == {"orders/0": 6, "orders/1": 6}


def test_a_dead_letter_is_replayed_from_its_segment_and_is_one_row(topics: CapturedTopics) -> None:
    topics.broker.produce(FIRST, [order(1), order(2, order_id=None), order(3)])
    topics.ingest()
    assert ids(topics) == [(0, 0, 1), (0, 2, 3)]
    (letter,) = topics.letters()
    assert topics.replay().rejected == (letter.id,)
    # The record is no row as long as the column is required.
    optional = [{**COLUMNS[0], "required": False}, *COLUMNS[1:]]
    topics.document["source"]["topics"] = [{**ORDERS, "columns": optional}]
    assert topics.replay().appended == (letter.id,)
    assert topics.letters() == []
    rows = sorted(topics.rows("prod.orders"), key=lambda each: each["offset"])
    assert [(each["offset"], each["order_id"], each["key"]) for each in rows] == [
        (0, 1, b"1"),
        (1, None, b"2"),
        (2, 3, b"3"),
    ]
    assert topics.offsets("prod.orders") == {"orders/0": 3}
    topics.broker.produce(FIRST, [order(4)])
    topics.ingest()
    assert len(topics.rows("prod.orders")) == 4


@pytest.mark.fault("U20")
def test_strict_validation_stops_a_partition_before_a_record_that_is_invalid(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    document = {"type": "object", "required": ["order_id"]}
    with registry({"/orders.json": document}) as address:
        source = {"validation": "strict", "registry": {"base_url": address}}
        topics = captured_topics(spark, object_store, tmp_path, topics=[ORDERS], source=source)
        topics.broker.produce(FIRST, [order(1)])
        topics.broker.produce(FIRST, [Message(b'{"price": 1}')])
        topics.broker.produce(FIRST, [order(3)])
        topics.broker.produce(SECOND, [order(4)])
        assert topics.ingest_once() is Ending.ACTION_REQUIRED
        assert ids(topics) == [(0, 0, 1), (1, 0, 4)]
        topics.document["source"]["validation"] = "lenient"
        topics.ingest()
        assert ids(topics) == [(0, 0, 1), (0, 2, 3), (1, 0, 4)]
        assert [each.reason for each in topics.letters()] == ["invalid"]
