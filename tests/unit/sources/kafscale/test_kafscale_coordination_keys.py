"""Keys and values in etcd are byte for byte those of KafScale's processor and brokers."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from frazil.config.models.kafscale_source import KafscaleSection
from frazil.errors import ConfigError, MalformedChangeError
from frazil.hooks import SeededRandomness
from frazil.sources.kafscale.coordination.keys import (
    CoordinationKeys,
    lease_value,
    offset_value,
    parse_offset,
    refuse_other_pipelines,
    worker_topics,
    worker_value,
)
from frazil.sources.kafscale.coordination.workers import Coordination, new_owner
from frazil.sources.kafscale.segments.cluster_snapshot import parse_cluster_snapshot
from frazil.sources.kafscale.segments.object_keys import TopicPartition

KEYS = CoordinationKeys("processors")
ORDERS = TopicPartition("orders", 0)


def test_keys_are_those_of_the_processor() -> None:
    partition = TopicPartition("shop.orders_v2-eu", 12)
    assert KEYS.lease(partition) == "processors/leases/shop.orders_v2-eu/12"
    assert KEYS.offset(partition) == "processors/offsets/shop.orders_v2-eu/12"
    assert KEYS.watermark(partition) == "processors/watermarks/shop.orders_v2-eu/12"
    assert KEYS.topic_watermark(partition.topic) == "processors/watermarks/shop.orders_v2-eu"
    assert KEYS.claimed_partition(KEYS.lease(partition)) == partition
    assert KEYS.claimed_partition("processors/leases/something-else") is None


def test_values_are_those_of_the_processor() -> None:
    assert lease_value("host-1", expires_at_ms=1700000000000) == (
        b'{"owner_id":"host-1","lease_expires_at":1700000000000,"generation":1}'
    )
    assert offset_value(41, now_ms=1700000000000) == (
        b'{"offset":41,"last_timestamp_ms":1700000000000,"updated_at":1700000000000}'
    )
    assert parse_offset("k", offset_value(41, now_ms=1)) == 41


@pytest.mark.parametrize(
    "value", [b"", b"41", b"[]", b"{}", b'{"offset":"41"}', b'{"offset":true}']
)
def test_an_offset_that_is_none_is_named_by_its_key(value: bytes) -> None:
    with pytest.raises(MalformedChangeError, match="processors/offsets/orders/0"):
        parse_offset(KEYS.offset(ORDERS), value)


def test_a_worker_of_another_release_counts_for_no_topic() -> None:
    assert worker_topics(worker_value(["b", "a"])) == {"a", "b"}
    assert worker_topics(b'{"v":2}') == worker_topics(b"\xff") == frozenset()


def test_another_pipeline_with_our_topics_is_refused_by_name() -> None:
    ours, theirs = worker_value(["orders"], "shop"), worker_value(["orders", "returns"], "audit")
    mine = {"topics": ["orders", "stock"], "pipeline": "shop", "prefix": "processors"}
    # Of an earlier release, of another topic, and what is no worker at all.
    for value in (ours, b'{"topics":["orders"]}', worker_value(["x"], "audit"), b"\xff", b"[]"):
        refuse_other_pipelines([value], **mine)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pipeline audit share the partitions of orders") as no:
        refuse_other_pipelines([ours, theirs], **mine)  # type: ignore[arg-type]
    assert no.value.next_step is not None
    assert "source.offsets.key_prefix" in no.value.next_step


@pytest.mark.fault("L9")
def test_two_workers_of_one_host_have_different_names() -> None:
    randomness = SeededRandomness(1)
    assert new_owner(randomness) != new_owner(randomness)


def topic(**fields: object) -> dict[str, object]:
    return {
        "ErrorCode": 0,
        "Topic": "orders",
        "Partitions": [{"ErrorCode": 0, "Partition": 0}],
        **fields,
    }


def snapshot(*topics: dict[str, object]) -> bytes:
    return json.dumps(
        {"Brokers": [], "ControllerID": 1, "Topics": topics, "UnknownTags": {}}
    ).encode()


@pytest.mark.fault("U21")
def test_the_cluster_is_read_as_brokers_write_it_since_release_1_6() -> None:
    partitions = [
        {"ErrorCode": 0, "Partition": 0, "Leader": 1, "ISR": [1]},
        {"ErrorCode": 5, "Partition": 1},
        {"ErrorCode": 0, "Partition": 2, "OfflineReplicas": None},
    ]
    assert parse_cluster_snapshot(snapshot(topic(Partitions=partitions))) == {
        ORDERS,
        TopicPartition("orders", 2),
    }


@pytest.mark.fault("U21")
def test_the_cluster_is_read_as_older_brokers_wrote_it() -> None:
    old = {"ErrorCode": 0, "Name": "orders", "Partitions": [{"PartitionIndex": 0, "LeaderID": 1}]}
    assert parse_cluster_snapshot(snapshot(old)) == {ORDERS}


def test_topics_in_an_error_state_without_name_or_partitions_are_left_out() -> None:
    document = snapshot(
        topic(ErrorCode=3),
        topic(Topic=None),
        topic(Topic=""),
        topic(Topic="empty", Partitions=None),
    )
    assert parse_cluster_snapshot(document) == frozenset()
    assert parse_cluster_snapshot(b'{"Topics":null}') == frozenset()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"Topics":7}',
        b'{"Topics":[7]}',
        b"[" * 100_000,
        snapshot(topic(Topic=7)),
        snapshot(topic(Partitions=[{"Partition": "0"}])),
        snapshot(topic(Partitions=[{"Partition": -1}])),
        snapshot(topic(Partitions=[{}])),
        snapshot(topic(Partitions=7)),
    ],
)
def test_what_is_no_description_of_a_cluster_is_refused(document: bytes) -> None:
    with pytest.raises(MalformedChangeError, match="/kafscale/metadata/snapshot"):
        parse_cluster_snapshot(document)


def test_without_etcd_one_worker_has_everything_and_only_the_markers_count() -> None:
    section = KafscaleSection.model_validate(
        {"kind": "kafscale", "bucket": "b", "offsets": {"backend": "none"}}
    )
    assert section.offsets.lease_ttl == timedelta(seconds=30)
    alone, turns = Coordination(section), []
    alone.on_turn = lambda: turns.append(alone.may_merge)
    assert (alone.leases.held(), alone.may_merge) == (frozenset(), False)
    assert alone.rebalance([ORDERS]) == alone.leases.held() == {ORDERS}
    alone.rebalance([ORDERS])
    assert (alone.turns, turns) == (1, [True])
    alone.leases.require_held([ORDERS])
    assert alone.offsets.write({ORDERS: 7}) == {}
    assert alone.offsets.load([ORDERS]) == {ORDERS: -1}
    alone.release()
    assert not alone.may_merge
