"""Workers that share a topic and are killed, paused and stopped capture every record once."""

from __future__ import annotations

import json
import random
import signal
from typing import TYPE_CHECKING

import pytest

from frazil.sources.kafscale.coordination.keys import CoordinationKeys, parse_offset
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from tests.support.kafscale.broker import Broker
from tests.support.kafscale.etcd_history import history, value_at
from tests.support.kafscale.topic_workers import (
    TOPIC,
    Production,
    TopicServices,
    TopicWorkers,
    value_of,
)
from tests.support.sampling import a_seed

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services import EtcdServer, ObjectStore, RestCatalog
    from tests.support.kafscale.etcd_history import Event

pytestmark = [pytest.mark.spark, pytest.mark.services]

FAULTS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)


@pytest.fixture
def world(object_store: ObjectStore, etcd: EtcdServer, s3_catalog: RestCatalog) -> TopicServices:
    return TopicServices.on(object_store, etcd, s3_catalog)


@pytest.mark.fault("K12", "L1", "L4")
@pytest.mark.timeout(900)
@pytest.mark.fault("U3")
def test_two_workers_capture_every_record_once_through_kills_and_pauses(
    world: TopicServices, tmp_path: Path
) -> None:
    capture_with_faults(world, tmp_path, workers=2, partitions=6, segments=1_000, faults=3)


@pytest.mark.fault("K12", "L1", "L4")
@pytest.mark.deep
@pytest.mark.timeout(0)
def test_three_workers_capture_many_segments_once_through_many_faults(
    world: TopicServices, tmp_path: Path
) -> None:
    capture_with_faults(world, tmp_path, workers=3, partitions=12, segments=20_000, faults=15)


def capture_with_faults(
    world: TopicServices,
    folder: Path,
    *,
    workers: int,
    partitions: int,
    segments: int,
    faults: int,
) -> None:
    seed = a_seed()
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    broker = Broker(world.store)
    production = Production(broker, partitions=partitions, segments=segments, seed=seed)
    with production, TopicWorkers(world.document(broker), folder) as processes:
        for _ in range(workers):
            processes.start()
        processes.wait_until_all_work()
        *others, last = plan_faults(chance, faults)
        for fault in others:
            processes.interfere(fault, chance)
            processes.wait_until_all_work()
        # Those that are left take its partitions.
        processes.interfere(last, chance, replaces=False)
        production.finish()
        processes.wait_until(lambda: world.offsets() == production.offsets)
        processes.stop()
    print(*processes.events, f"{production.written} segments", sep="\n")  # noqa: T201
    print(*processes.troubles().most_common(), sep="\n")  # noqa: T201
    assert production.written >= segments
    require_every_record_once(world, production.offsets)
    require_published(world, production.offsets)
    require_no_claim_stolen(history(world.etcd.endpoint, world.name), world.keys)


def plan_faults(chance: random.Random, count: int) -> list[signal.Signals]:
    """Each kind as often as the others, in any order, and at last one that ends a worker."""
    faults = list(FAULTS * (count // len(FAULTS)))
    while True:
        chance.shuffle(faults)
        if faults[-1] is not signal.SIGSTOP:
            return faults


def require_every_record_once(world: TopicServices, ends: dict[str, int]) -> None:
    """Every offset of every partition is one row, with the values of its record."""
    table = world.table()
    assert table is not None
    rows = table.scan(selected_fields=("partition", "offset", "value", "place")).to_arrow()
    found = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    expected = [
        (partition.partition, offset)
        for partition in sorted(map(TopicPartition.parse, ends))
        for offset in range(ends[str(partition)])
    ]
    places = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
    assert list(places) == expected
    assert found["value"].to_pylist() == [value_of(*each) for each in expected]
    assert found["place"].to_pylist() == [f"{partition}-{offset}" for partition, offset in expected]


def require_published(world: TopicServices, ends: dict[str, int]) -> None:
    """Etcd has the last offset of each partition, and of the topic that of the slowest."""
    endpoint, keys = world.etcd.endpoint, world.keys
    for name, end in ends.items():
        partition = TopicPartition.parse(name)
        for key in (keys.offset(partition), keys.watermark(partition)):
            assert parse_offset(key, value_at(endpoint, key) or b"") == end - 1
    mark = value_at(endpoint, keys.topic_watermark(TOPIC)) or b""
    assert parse_offset(TOPIC, mark) == min(ends.values()) - 1


def require_no_claim_stolen(events: list[Event], keys: CoordinationKeys) -> None:
    """A claim changes hands over its end alone, and offsets move forward while there is one."""
    claims: dict[str, tuple[str, int]] = {}
    offsets: dict[str, int] = {}
    owners = set()
    for event in events:
        kind, _, name = event.key.removeprefix(f"{keys.prefix}/").partition("/")
        if kind == "leases" and event.value is None:
            del claims[name]
        elif kind == "leases":
            owner = json.loads(event.value or b"")["owner_id"]
            owners.add(owner)
            claim = owner, event.lease
            assert claims.setdefault(name, claim) == claim, f"{name} was stolen"
        elif kind == "offsets":
            offset = parse_offset(event.key, event.value or b"")
            assert name in claims, f"{name} moved without a claim"
            assert offset > offsets.get(name, -1)
            offsets[name] = offset
    assert claims == {}, "workers that were stopped in order left claims behind"
    assert len(owners) > 1
