"""Topics in memory, a real lake, and several processes that ingest at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import Lake
from frazil.errors import CommitConflictError, TableNotFoundError
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, TableState
from frazil.model.marker import MarkerRole
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import Limit
from frazil.testing.in_memory_topic_source import InMemoryTopicSource
from frazil.testing.in_memory_topics import InMemoryTopics
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.lake.catalogs import LakeCase

USERS, ORDERS = "shop.users", "shop.orders"
U0, U1, O0, O1 = f"{USERS}/0", f"{USERS}/1", f"{ORDERS}/0", f"{ORDERS}/1"
_ROOMY = 1 << 30


@dataclass
class Worker:
    """A process: its source, and its ingester."""

    source: InMemoryTopicSource
    ingester: Ingester

    def run(self) -> None:
        """Step until nothing is left, as the loop does: a conflict is tried again."""
        for _ in range(50):
            try:
                # A step notices that a table is to restart.
                stepped, copied = self.ingester.step(), self.ingester.copy_tables()
                if stepped is None and copied is None:
                    return
            except CommitConflictError:
                continue
        raise AssertionError("it never comes to its end")


@dataclass
class TopicsWorld:
    """Two topics with two partitions each, one ledger, one changelog for each topic."""

    spark: SparkSession
    case: LakeCase
    topics: InMemoryTopics = field(default_factory=InMemoryTopics)
    namespace: str = field(default_factory=lambda: f"topics_{uuid4().hex[:10]}")
    _made: int = 0

    def __post_init__(self) -> None:
        for name in (USERS, ORDERS):
            columns = {"id": Primitive.LONG, "name": Primitive.STRING}
            self.topics.add_topic(name, columns, partitions=2)

    def start(self, worker: str, *partitions: str) -> Worker:
        """A new process with leases of these partitions; without any it takes what is free."""
        for each in partitions:
            assert self.topics.lease(each, worker)
        most = len(partitions) or None
        source = InMemoryTopicSource(self.topics, worker=worker, most_partitions=most)
        lake = Lake(self.spark, self.case.catalog)
        ingester = Ingester(
            self.spark,
            lake,
            source,
            Ledger.ensure(lake, self.name("ledger")),
            settings=IngestSettings(
                pipeline="topics",
                limit=Limit(1000, _ROOMY),
                held_bytes=0,
                may_pass=may_pass,
                dead_letters=self.name("dead_letters"),
            ),
            captures=lambda table: CaptureSettings(changelog=self.changelog(table)),
        )
        return Worker(source, ingester)

    def name(self, table: str) -> TableName:
        return TableName(self.case.catalog, (self.namespace,), table)

    def changelog(self, topic: str) -> TableName:
        return self.name(topic.replace(".", "_"))

    def has_changelog(self, topic: str) -> bool:
        try:
            Lake(self.spark, self.case.catalog).open(self.changelog(topic))
        except TableNotFoundError:
            return False
        return True

    def produce(self, *partitions: str) -> None:
        """A record in each of these."""
        for each in partitions:
            self._made += 1
            self.topics.produce(each, {"id": self._made, "name": each})

    def ledger(self) -> Ledger:
        return Ledger.open(Lake(self.spark, self.case.catalog), self.name("ledger"))

    def offsets(self) -> Mapping[str, int]:
        """What the ledger says."""
        marker = self.ledger().acknowledged()
        assert marker is not None
        assert isinstance(marker.position, Mapping)
        return marker.position

    def acknowledged(self) -> dict[str, int]:
        """What the source knows."""
        return {name: each.acknowledged for name, each in self.topics.partitions.items()}

    def resync(self, topic: str) -> None:
        """What ``frazil resync`` writes."""
        ledger = self.ledger()
        (before,) = [each for each in ledger.table_states() if each.table == topic]
        again = TableState(table=topic, identity=before.identity, state=Copying())
        ledger.note([], pipeline="topics", batch=uuid4().hex, table_states=[again])

    def rows(self, topic: str, *, epoch: int = 0) -> list[str]:
        """The origin of every record of an epoch, as it was produced; in order."""
        found = self.case.lake.open(self.changelog(topic)).read().collect()
        return sorted(
            each.cdc_lsn
            for each in found
            if each.cdc_sequence_number.startswith(f"{epoch:04x}")
            and each.cdc_operation == "INSERT"
        )

    def check(self, *topics: str) -> None:
        """Every record is there once, and tables, ledger and source agree."""
        offsets, acknowledged = self.offsets(), self.acknowledged()
        for topic in topics:
            partitions = self.topics.of_topic(topic)
            expected = [f"{each.name}@{at}" for each in partitions for at in range(each.ends)]
            assert self.rows(topic) == sorted(expected)
            marker = self.case.lake.open(self.changelog(topic)).load_marker(MarkerRole.INGEST)
            assert marker is not None
            ends = {each.name: each.ends for each in partitions if each.ends}
            assert marker.position == ends
            for known in (offsets, acknowledged):
                assert {name: known[name] for name in ends} == ends


@pytest.fixture
def topics_world(spark: SparkSession, lake_of: Callable[[Kind], LakeCase]) -> TopicsWorld:
    return TopicsWorld(spark, lake_of(Kind.SQLITE_FILE))
