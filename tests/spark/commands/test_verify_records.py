"""A table of records has a row for every record in its segments, or says which it has not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark.session import attach_session
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.pipeline.tables.captured_mirrors import dead_letters_name
from frazil.sources.kafscale.record_counts import KafscaleRecords
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.verify.offset_ranges import OffsetDifference, OffsetProblem
from frazil.verify.record_verifier import RecordVerifier
from tests.support.kafscale.captured_topics import captured_topics
from tests.support.kafscale.segments import Message

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.services]

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS = [{"name": "order_id", "type": "long", "required": True}]
ORDERS = {"topic": "orders", "table": "prod.orders", "columns": COLUMNS}


def orders(*numbers: int) -> list[Message]:
    return [Message(json.dumps({"order_id": each}).encode()) for each in numbers]


def test_rows_are_compared_with_records_by_partition_and_range_of_offsets(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    world = captured_topics(spark, object_store, tmp_path, topics=[ORDERS])
    config, broker = world.config, world.broker
    assert isinstance(config.source, KafscaleSection)
    listing = SegmentListing(broker.bucket, broker.namespace)
    records = KafscaleRecords(config.source, broker.bucket, listing)
    broker.produce(FIRST, orders(*range(10)))
    # Without what is required it is a dead letter.
    broker.produce(FIRST, [Message(b"{}"), *orders(11)])
    broker.produce(SECOND, orders(*range(5)))
    world.ingest()
    broker.produce(SECOND, orders(5))
    session, name = attach_session(spark, config), world.name("prod.orders")
    verifier = RecordVerifier(session, world.lake, records, dead_letters_name(config))

    same = verifier.verify(name, "orders")
    assert same.agrees, same
    assert (same.rows_expected, same.rows_found, same.offsets) == (17, 16, ())
    assert same.position == '{"orders/0":12,"orders/1":5}'

    session.sql(f"DELETE FROM {name.quoted} WHERE partition = 0 AND `offset` IN (3, 4, 8)")
    again = f"SELECT * FROM {name.quoted} WHERE partition = 1 AND `offset` = 2"
    session.sql(f"INSERT INTO {name.quoted} {again}")
    other = verifier.verify(name, "orders")
    assert other.differs
    assert (other.missing, other.surplus, other.differing_ranges) == (3, 1, 2)
    assert other.offsets == (
        OffsetDifference(OffsetProblem.MISSING, "orders/0", 3, 4),
        OffsetDifference(OffsetProblem.MISSING, "orders/0", 8, 8),
        OffsetDifference(OffsetProblem.SURPLUS, "orders/1", 2, 2),
    )
    assert other.next_step == "frazil resync orders"
