"""Topics of changes become mirrors: the newest value of each key, whatever the arrival."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from frazil.errors import ConfigError
from frazil.pipeline.resync import load_resync
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.captured_topics import CapturedTopics, captured_topics
from tests.support.kafscale.segments import Message
from tests.support.sampling import a_seed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore

pytestmark = [pytest.mark.spark, pytest.mark.services]

PARTITIONS = 3
KEYS = range(12)
USERS: dict[str, Any] = {
    "topic": "users",
    "changelog": "prod.users_changelog",
    "mirror": "prod.users",
    "key": ["id"],
    "columns": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
MAIL = {"name": "mail", "type": "string"}


def key_of(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def plain(number: int, row: dict[str, Any] | None) -> Message:
    """A compacted topic: the newest value of a key, or a tombstone."""
    return Message(None if row is None else json.dumps(row).encode(), key=key_of(number))


def debezium(number: int, row: dict[str, Any] | None, lsn: int) -> Message:
    operation = "d" if row is None else "u"
    before = {"id": number} if row is None else None
    source = {"lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    event = {"op": operation, "before": before, "after": row, "source": source}
    return Message(json.dumps(event).encode(), key=key_of(number))


def mirrored(world: CapturedTopics) -> dict[int, tuple[Any, ...]]:
    rows = world.rows("prod.users")
    names = [name for name in ("name", "mail") if rows and name in rows[0]]
    assert len({each["id"] for each in rows}) == len(rows)
    return {each["id"]: tuple(each[name] for name in names) for each in rows}


def partition_of(number: int) -> TopicPartition:
    return TopicPartition("users", number % PARTITIONS)


def history(chance: random.Random, length: int) -> list[tuple[int, dict[str, Any] | None]]:
    steps: list[tuple[int, dict[str, Any] | None]] = []
    for at in range(length):
        number = chance.choice(KEYS)
        row = {"id": number, "name": f"name {at}", "mail": f"mail {at}"}
        steps.append((number, None if chance.random() < 0.3 else row))
    return steps


@pytest.mark.fault("U1")
def test_a_topic_with_keys_becomes_the_newest_value_of_each(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    chance = random.Random(a_seed())  # noqa: S311 - repeatable on purpose
    world = captured_topics(spark, object_store, tmp_path, topics=[USERS])
    state: dict[int, dict[str, Any]] = {}
    for round_ in range(3):
        if round_ == 2:
            grown = {**USERS, "columns": [*USERS["columns"], MAIL]}
            world.document["source"]["topics"] = [grown]
        for number, row in history(chance, 30):
            world.broker.produce(partition_of(number), [plain(number, row)])
            state.pop(number, None)
            if row is not None:
                state[number] = {**row, "grown": round_ == 2}
        world.ingest()
        world.merge()
        found = mirrored(world)
        assert {key: each[0] for key, each in found.items()} == {
            key: row["name"] for key, row in state.items()
        }
    mails = {key: row["mail"] if row["grown"] else None for key, row in state.items()}
    assert {key: each[1] for key, each in mirrored(world).items()} == mails


@pytest.mark.fault("U1")
def test_change_events_are_ordered_by_their_field_whatever_the_arrival(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    chance = random.Random(a_seed())  # noqa: S311 - repeatable on purpose
    topic = {
        **USERS,
        "columns": [*USERS["columns"], MAIL],
        "envelope": "debezium",
        "sequence": "source.lsn",
    }
    world = captured_topics(spark, object_store, tmp_path, topics=[topic])
    steps = history(chance, 60)
    events = [debezium(number, row, 100 + at) for at, (number, row) in enumerate(steps)]
    # Late ones, and some that come again.
    arriving = [*zip(steps, events, strict=True)]
    chance.shuffle(arriving)
    arriving += chance.sample(arriving, 10)
    half = len(arriving) // 2
    for some in (arriving[:half], arriving[half:]):
        for _, event in some:
            world.broker.produce(TopicPartition("users", chance.randrange(PARTITIONS)), [event])
        world.ingest()
        world.merge()
    state = {number: row for number, row in dict(steps).items() if row is not None}
    assert mirrored(world) == {key: (row["name"], row["mail"]) for key, row in state.items()}


def test_two_topics_into_one_mirror_are_refused_by_name(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    other = {**USERS, "topic": "people", "changelog": "prod.people_changelog"}
    world = captured_topics(spark, object_store, tmp_path, topics=[USERS, other])
    with pytest.raises(ConfigError, match=r"topics\[1\]\.mirror: is already topics\[0\]\.mirror"):
        _ = world.config


def test_a_resync_builds_the_mirror_again_from_the_oldest_record(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    world = captured_topics(spark, object_store, tmp_path, topics=[USERS])
    for number in range(6):
        row = {"id": number, "name": "old"}
        world.broker.produce(partition_of(number), [plain(number, row)])
    world.ingest()
    world.merge()
    spark.sql(f"delete from {world.name('prod.users').quoted} where id < 3")
    load_resync(world.lake, world.config, ["users"], everything=False).apply()
    world.ingest()
    world.merge()
    assert sorted(mirrored(world)) == list(range(6))
