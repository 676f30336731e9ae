"""KafScale under the contract of sources: a real object store, and leases in a real etcd."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from frazil.clients.etcd.client import Etcd
from frazil.clients.etcd.transactions import DeleteKey, Txn
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import CoordinationKeys
from frazil.sources.kafscale.coordination.workers import Coordination, connect_etcd
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.kafscale.source import KafscaleSource
from frazil.sources.kafscale.topic_tables import TopicTables
from frazil.testing.contract.partitions import LiveContract, PartitionContract
from frazil.testing.contract.records import RejectContract, planned
from frazil.testing.contract.replay import TIGHT
from frazil.testing.contract.suite import (
    COLUMNS,
    ORDERS,
    UNWANTED,
    SourceContract,
    begun,
    insert,
)
from frazil.testing.in_memory_database import InsertRow
from tests.support.kafscale.broker import Broker
from tests.support.kafscale.etcd_history import value_at
from tests.support.kafscale.segments import Message, segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from frazil.demo.services import EtcdServer, ObjectStore
    from frazil.model.schema.types import Primitive
    from frazil.testing.contract.under_test import SourceUnderTest
    from frazil.testing.in_memory_database import Change

pytestmark = pytest.mark.services

PARTITIONS = 3


class HurriedClock(SystemClock):
    """One to which nothing was asked a moment ago."""

    def __init__(self) -> None:
        self._asked = 0.0

    def monotonic(self) -> float:
        self._asked += 60.0
        return self._asked


class Configured:
    """The source of a worker, as its document is at the moment."""

    def __init__(self, current: dict[str, KafscaleSource], worker: str) -> None:
        self._of = current
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of[self._worker], name)


class TopicsInSegments:
    """Topics of three partitions, which take turns; a record is a segment."""

    has_keys = False
    has_copies = False

    def __init__(self, store: ObjectStore, etcd: EtcdServer, stack: ExitStack) -> None:
        self.broker = Broker(store)
        self._etcd = etcd
        self._prefix = f"test-{uuid4().hex}"
        self._stack = stack
        self._topics: dict[str, list[dict[str, object]]] = {}
        self._partitions: dict[str, int] = {}
        self._produced: dict[str, list[dict[str, object]]] = {}
        self._workers: dict[str, Coordination] = {}
        self._current: dict[str, KafscaleSource] = {}

    def open(self, worker: str = "one") -> Any:
        if worker in self._workers:
            # Its process has ended.
            self._workers.pop(worker).release()
        self._current[worker] = self._new(worker)
        return Configured(self._current, worker)

    def _new(self, worker: str) -> KafscaleSource:
        section = self._section()
        coordination = self._workers[worker] = Coordination(section)
        self._stack.callback(coordination.release)
        clock = HurriedClock()
        return KafscaleSource(
            section,
            self.broker.bucket,
            listing=self.broker.listing,
            cluster=ClusterPartitions(
                section, self.broker.listing, lambda: connect_etcd(section), clock=clock
            ),
            tables=TopicTables(section, SchemaRegistry(section.registry, clock)),
            coordination=coordination,
            gap_seconds=0.0,
        )

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        assert not key
        self._topics[name] = [
            {"name": each, "type": type_.value} for each, type_ in columns.items()
        ]
        self._partitions[name] = PARTITIONS
        self._produced[name] = []
        # Topics are named one by one: processes are started again with another document.
        for worker in self._current:
            self._workers.pop(worker).release()
            self._current[worker] = self._new(worker)
        for number in range(PARTITIONS):
            self.broker.put(f"{TopicPartition(name, number)}/ready", b"")

    def transact(self, *changes: Change) -> None:
        for change in changes:
            assert isinstance(change, InsertRow)
            self._produce(change.table, json.dumps(dict(change.values)).encode())
            self._produced[change.table].append(dict(change.values))

    def contents(self, table: str) -> list[dict[str, object]]:
        return self._produced[table]

    def damage(self, table: str) -> None:
        partition = self._next(table)
        base = self.broker.next_offsets[partition]
        self.broker.next_offsets[partition] += 1
        damaged = bytearray(segment([], base=base, last=base))
        damaged[0] ^= 1
        self.broker.upload(partition, base, bytes(damaged))

    def reject(self, table: str, payload: bytes) -> None:
        self._produce(table, payload)

    def partitions_of(self, table: str) -> list[str]:
        return [str(each) for each in self._of(table)]

    def add_partition(self, table: str) -> None:
        self._partitions[table] += 1

    def expire(self, partition: str) -> None:
        self.broker.delete(TopicPartition.parse(partition))

    def end_lease(self, *partitions: str) -> None:
        keys = CoordinationKeys(self._prefix)
        client = Etcd([self._etcd.endpoint])
        for each in partitions:
            client.commit(Txn([DeleteKey(keys.lease(TopicPartition.parse(each)))]))

    def acknowledged(self, partition: str) -> int:
        key = CoordinationKeys(self._prefix).offset(TopicPartition.parse(partition))
        value = value_at(self._etcd.endpoint, key)
        return 0 if value is None else int(json.loads(value)["offset"]) + 1

    def _section(self) -> KafscaleSection:
        return KafscaleSection.model_validate(
            {
                "kind": "kafscale",
                "bucket": self.broker.bucket.name,
                "namespace": self.broker.namespace,
                "offsets": {"key_prefix": self._prefix},
                "etcd": {"endpoints": [self._etcd.endpoint]},
                "topics": [
                    {"topic": name, "changelog": f"lake.{name}", "columns": columns}
                    for name, columns in self._topics.items()
                    if name.startswith("shop.")
                ],
            }
        )

    def _produce(self, table: str, value: bytes) -> None:
        self.broker.produce(self._next(table), [Message(value)])

    def _of(self, table: str) -> list[TopicPartition]:
        return [TopicPartition(table, number) for number in range(self._partitions[table])]

    def _next(self, table: str) -> TopicPartition:
        offsets = self.broker.next_offsets
        return min(self._of(table), key=lambda each: (offsets[each], each.partition))


class TestKafscale(SourceContract, LiveContract, PartitionContract, RejectContract):
    def test_wants_answers_for_tables_that_are_not_there(self, subject: SourceUnderTest) -> None:
        """Topics are named one by one, and need no segment to be wanted."""
        subject.add_table(ORDERS, COLUMNS)
        source = subject.open()
        assert source.selects(ORDERS)
        assert not source.selects(UNWANTED)

    def test_waiting_ends_when_there_is_enough_or_time_is_up(
        self, subject: SourceUnderTest
    ) -> None:
        """Segments are not announced; what a batch had to leave behind is not waited for."""
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1), insert(ORDERS, 2))
        capture.commit(planned(capture, TIGHT))
        assert capture.source.wait(600.0, TIGHT)
        capture.catch_up()
        assert not capture.source.wait(0.05, TIGHT)

    def test_the_further_a_position_the_less_is_kept_for_it(self, subject: SourceUnderTest) -> None:
        """A bucket keeps its segments for nobody in particular."""
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        assert capture.acknowledged is not None
        assert capture.source.kept_since(capture.acknowledged) == 0

    @pytest.fixture
    def subject(self, object_store: ObjectStore, etcd: EtcdServer) -> Iterator[TopicsInSegments]:
        with ExitStack() as stack:
            yield TopicsInSegments(object_store, etcd, stack)
