"""Partitions are those of the bucket and, by setting, those that brokers serve."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.config.models.kafscale_source import KafscaleSection
from frazil.errors import SourceUnavailableError
from frazil.hooks import ManualClock
from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPICS = ["orders"]


class Bucket:
    """A listing that counts how often it is asked."""

    def __init__(self) -> None:
        self.partitions = {FIRST, SECOND}
        self.asked = 0

    def list_partitions(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        self.asked += 1
        return frozenset(each for each in self.partitions if each.topic in topics)


def served(*numbers: int) -> Callable[[], Any]:
    """A broker's description with these partitions, and none without a number."""
    topic = {"Topic": "orders", "Partitions": [{"Partition": each} for each in numbers]}
    value = json.dumps({"Topics": [topic]}).encode()
    found = [SimpleNamespace(value=value)] if numbers else []
    return lambda: SimpleNamespace(read_each=lambda _ranges: [found])


def away() -> Any:
    message = "etcd is away."
    raise SourceUnavailableError(message)


def partitions(discovery: str, connect: Callable[[], Any], **others: Any) -> ClusterPartitions:
    section = KafscaleSection.model_validate(
        {
            "kind": "kafscale",
            "bucket": "b",
            "discovery": discovery,
            "offsets": {"backend": "none"},
            "etcd": {"endpoints": ["http://127.0.0.1:1"]},
            **others,
        }
    )
    listing: Any = Bucket()
    return ClusterPartitions(section, listing, connect)


def test_s3_does_not_ask_etcd() -> None:
    assert partitions("s3", away).find(TOPICS) == {FIRST, SECOND}


def test_etcd_leaves_out_what_brokers_do_not_serve() -> None:
    assert partitions("etcd", served(1, 2)).find(TOPICS) == {SECOND}


@pytest.mark.parametrize("connect", [away, served()])
def test_etcd_without_a_description_is_an_error(connect: Callable[[], Any]) -> None:
    with pytest.raises(SourceUnavailableError):
        partitions("etcd", connect).find(TOPICS)


@pytest.mark.fault("U21")
def test_auto_asks_etcd_where_there_is_one_and_goes_on_without_it() -> None:
    assert partitions("auto", served(1)).find(TOPICS) == {SECOND}
    for connect in (away, served()):
        assert partitions("auto", connect).find(TOPICS) == {FIRST, SECOND}
    none = partitions("auto", away, etcd={"endpoints": []})
    assert none.find(TOPICS) == {FIRST, SECOND}


def test_partitions_are_looked_up_again_after_some_seconds() -> None:
    clock, bucket = ManualClock(datetime(2026, 1, 2, tzinfo=UTC)), Bucket()
    section = KafscaleSection.model_validate(
        {"kind": "kafscale", "bucket": "b", "discovery": "s3", "offsets": {"backend": "none"}}
    )
    listing: Any = bucket
    found = ClusterPartitions(section, listing, away, clock=clock)
    assert found.find(TOPICS) == found.find(TOPICS) == {FIRST, SECOND}
    assert bucket.asked == 1
    bucket.partitions.add(new := TopicPartition("orders", 2))
    clock.advance(60.0)
    assert new in found.find(TOPICS)
    assert bucket.asked == 2
