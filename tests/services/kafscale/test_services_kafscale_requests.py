"""What a plan asks of the store depends on what is new, not on what was captured before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.config.models.kafscale_source import KafscaleSection
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.workers import Coordination, connect_etcd
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.kafscale.source import KafscaleSource
from frazil.sources.kafscale.topic_tables import TopicTables
from frazil.sources.protocol import Limit, Progress, TableProgress
from tests.support.faults.proxy import HttpProxy
from tests.support.kafscale.broker import Broker
from tests.support.kafscale.segments import Message, client_batch, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.object_store import Bucket
    from frazil.demo.services import ObjectStore
    from frazil.sources.protocol import Batch

pytestmark = pytest.mark.services

ORDERS = TopicPartition("orders", 0)
LIMIT = Limit(rows=1_000_000, bytes=1 << 28)
# So many that a listing of all has more than one page, of a thousand files.
MANY = 600
RECORDS = 10


class ForgetfulClock(SystemClock):
    """One by which everything was asked long ago, so that every plan looks for partitions."""

    def __init__(self) -> None:
        self._asked = 0.0

    def monotonic(self) -> float:
        self._asked += 60.0
        return self._asked


class CountedTopic:
    """A topic and its source, with a proxy in between that sees every request."""

    def __init__(self, store: ObjectStore, proxy: HttpProxy) -> None:
        self.broker = Broker(store)
        self._proxy = proxy
        self._offset = 0
        self._position: dict[str, int] = {}
        self._source = self._open(replace(self.broker.bucket, endpoint=proxy.url))

    def flush(self, count: int) -> None:
        """So many segments of some records each."""
        begins = self._offset
        self._offset += count * RECORDS
        with ThreadPoolExecutor(16) as threads:
            bases = range(begins, self._offset, RECORDS)
            list(threads.map(lambda base: self._upload(base, RECORDS), bases))

    def plan(self) -> tuple[Batch | None, Counter[str]]:
        """The next batch, and how many requests of each kind it took; it is captured then."""
        table = TableProgress(dict(self._position), "orders", "[]")
        before = len(self._proxy.requests)
        batch = self._source.plan(
            Progress(acknowledged=dict(self._position), tables={"orders": table}), LIMIT
        )
        if batch is not None:
            assert isinstance(batch.end, Mapping)
            self._position |= batch.end
        return batch, Counter(_kind(each.path) for each in self._proxy.requests[before:])

    def _upload(self, base: int, count: int) -> None:
        batch = client_batch(base, [Message(b"%d" % at) for at in range(count)])
        self.broker.upload(ORDERS, base, segment([batch], base=base))

    @property
    def reached(self) -> int:
        return self._position[str(ORDERS)]

    def restart(self) -> None:
        """Another process, which knows positions only."""
        self._source = self._open(replace(self.broker.bucket, endpoint=self._proxy.url))

    def _open(self, bucket: Bucket) -> KafscaleSource:
        section = KafscaleSection.model_validate(
            {
                "kind": "kafscale",
                "bucket": bucket.name,
                "namespace": self.broker.namespace,
                "offsets": {"backend": "none"},
                "topics": [{"topic": "orders", "table": "lake.orders"}],
            }
        )
        listing, clock = SegmentListing(bucket, self.broker.namespace), ForgetfulClock()
        return KafscaleSource(
            section,
            bucket,
            listing=listing,
            cluster=ClusterPartitions(section, listing, lambda: connect_etcd(section), clock=clock),
            tables=TopicTables(section, SchemaRegistry(section.registry, clock)),
            coordination=Coordination(section),
        )


def _kind(path: str) -> str:
    if "list-type" not in path:
        return "get"
    return "find partitions" if "delimiter" in path else "list"


@pytest.fixture
def topic(object_store: ObjectStore) -> Iterator[CountedTopic]:
    with HttpProxy(object_store.endpoint, keep_host=True) as proxy:
        yield CountedTopic(object_store, proxy)


@pytest.mark.fault("U9")
def test_what_was_captured_costs_no_request(topic: CountedTopic) -> None:
    topic.flush(1)
    # Where the partition begins, then its first segment.
    topic.plan()
    topic.plan()
    _, nothing_after_one = topic.plan()
    topic.flush(1)
    _, one_after_one = topic.plan()
    topic.flush(MANY)
    _, many = topic.plan()
    assert topic.reached == (MANY + 2) * RECORDS
    assert many["get"] == MANY, "a footer of each"
    assert many["list"] == -(-2 * MANY // 1000), "a request for a thousand files"

    found, nothing_after_many = topic.plan()
    assert found is None
    assert nothing_after_many == nothing_after_one == {"find partitions": 1, "list": 1}
    topic.flush(1)
    found, one_after_many = topic.plan()
    assert found is not None
    assert one_after_many == one_after_one == {"find partitions": 1, "list": 1, "get": 1}

    topic.restart()
    found, first_of_process = topic.plan()
    assert found is None
    # It does not know whether a segment begins there: it looks at the one before once.
    assert first_of_process["list"] <= 3
    assert first_of_process["get"] <= 1
    assert topic.plan()[1] == nothing_after_one
