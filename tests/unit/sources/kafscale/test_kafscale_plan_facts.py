"""What a plan finds in the bucket: from the marker on, without taking part in anything."""

from __future__ import annotations

from typing import Any

from frazil.errors import SourceReplacedError
from frazil.hooks import SystemClock
from frazil.model.marker import Marker
from frazil.sources.kafscale.health import NothingPublished
from frazil.sources.kafscale.plan_facts import KafscalePlanFacts
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.kafscale.topic_tables import TopicTables
from frazil.sources.protocol import TableProgress
from tests.support.kafscale.partitions_in_memory import NAMESPACE, TOPIC, PartitionsInMemory

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NOTHING = TableProgress(None, "", "")


def facts_of(world: PartitionsInMemory) -> KafscalePlanFacts:
    listing = SegmentListing(world.bucket, NAMESPACE)
    return KafscalePlanFacts(
        world.section,
        world.bucket,
        listing=listing,
        partitions=listing.list_partitions([TOPIC]),
        tables=TopicTables(world.section, SchemaRegistry(world.section.registry, SystemClock())),
        published=NothingPublished(),
    )


def partitions(document: Any) -> dict[str, tuple[int, int, int, int]]:
    return {
        each["partition"]: (each["offset"], each["newest"], each["lag"], each["segments"])
        for each in document["partitions"]
    }


def test_what_waits_is_counted_from_the_marker_on_and_nothing_before_it_is_listed() -> None:
    world = PartitionsInMemory()
    for base in range(0, 400, 2):
        world.add(FIRST, base, count=2)
    world.add(SECOND, 5, count=3)
    facts = facts_of(world)
    world.forget_requests()
    at = TableProgress({"orders/0": 396}, TOPIC, "[]")
    found = facts.load_waiting(TOPIC, at, {"orders/0": 390})
    assert found.has_any
    # The ledger knows nothing of the second one: it begins with its oldest segment.
    assert partitions(found.document) == {"orders/0": (396, 400, 4, 2), "orders/1": (5, 8, 3, 1)}
    assert len([each for each in world.bucket.listed if "/0/" in each]) == 4
    assert len(world.bucket.ends) == 2
    size = sum(len(world.bucket.objects[key]) for key in (*world.bucket.ends,))
    assert found.document["bytes"] == size + len(world.bucket.objects[_segment(FIRST, 396)])
    assert found.lines[0][0] == "orders/0"
    assert "from offset 396 to 400, 4 behind: 2 segments" in found.lines[0][1]


def _segment(partition: TopicPartition, base: int) -> str:
    return f"{NAMESPACE}/{partition}/segment-{base:020d}.kfs"


def test_what_is_captured_leaves_nothing_and_what_is_missing_is_said() -> None:
    world = PartitionsInMemory()
    world.add(FIRST, 0, count=3)
    world.add(SECOND, 7)
    at = TableProgress({"orders/0": 3, "orders/1": 4}, TOPIC, "[]")
    found = facts_of(world).load_waiting(TOPIC, at, {"orders/0": 3, "orders/1": 4})
    assert partitions(found.document) == {"orders/0": (3, 3, 0, 0), "orders/1": (4, 8, 4, 1)}
    assert "nothing waits" in found.lines[0][1]
    assert found.lines[1][1].endswith("offsets 4 to 6 are missing")
    done = TableProgress({"orders/0": 3, "orders/1": 8}, TOPIC, "[]")
    assert facts_of(world).load_waiting(TOPIC, done, {}).has_any is False


def test_a_position_of_another_bucket_is_the_problem_of_the_plan() -> None:
    facts = facts_of(PartitionsInMemory())
    assert facts.plan_preparation([TOPIC], None).problem is None
    other = Marker(pipeline="p", source="kafscale://elsewhere/x", position={}, batch="b")
    assert isinstance(facts.plan_preparation([TOPIC], other).problem, SourceReplacedError)


def test_a_topic_without_a_segment_has_a_table_and_nothing_waits() -> None:
    facts = facts_of(PartitionsInMemory())
    found = facts.load_waiting(TOPIC, NOTHING, None)
    assert (found.has_any, found.document["partitions"]) == (False, [])
    assert set(facts.tables) == {TOPIC}
