"""The in-memory sources of the other forms: tables that begin live, partitions, several workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.hooks import ManualClock
from frazil.model.schema.table_layout import TableLayout
from frazil.model.source_table import TableBegin
from frazil.testing.contract.partitions import (
    LiveContract,
    PartitionContract,
    SharedContract,
)
from frazil.testing.contract.records import LayoutContract, RejectContract
from frazil.testing.contract.suite import KeyContract, LogContract, SourceContract
from frazil.testing.contract.tables import TroubleContract
from frazil.testing.in_memory_database import InMemoryDatabase, InsertRow
from frazil.testing.in_memory_topic_source import InMemoryTopicSource
from frazil.testing.in_memory_topics import InMemoryTopics
from tests.unit.sources.test_in_memory_source import InMemorySubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.model.schema.types import Primitive
    from frazil.testing.in_memory_database import Change

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PARTITIONS = 3


class LiveSubject(InMemorySubject):
    """One log with transactions, whose tables begin live."""

    has_copies = False

    def __init__(self) -> None:
        super().__init__()
        self.database = InMemoryDatabase(self.clock, begins=TableBegin.STREAM)


class TestLiveSource(
    LiveContract, SourceContract, LogContract, KeyContract, TroubleContract, RejectContract
):
    @pytest.fixture
    def subject(self) -> LiveSubject:
        return LiveSubject()


class TopicsSubject:
    """Topics of three partitions, which take turns."""

    has_keys = False
    has_copies = False

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.topics = InMemoryTopics(clock=self.clock)
        self._produced: dict[str, list[dict[str, object]]] = {}

    def open(
        self, worker: str = "one", *, most_partitions: int | None = None
    ) -> InMemoryTopicSource:
        return InMemoryTopicSource(
            self.topics,
            worker=worker,
            wanted=("shop.*",),
            most_partitions=most_partitions,
            clock=self.clock,
        )

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        assert not key
        self.topics.add_topic(name, columns, partitions=PARTITIONS)
        self._produced[name] = []

    def transact(self, *changes: Change) -> None:
        for change in changes:
            assert isinstance(change, InsertRow)
            self.topics.produce(self._next_partition(change.table), change.values)
            self._produced[change.table].append(dict(change.values))

    def contents(self, table: str) -> list[dict[str, object]]:
        return self._produced[table]

    def spoil(self, table: str) -> None:
        error = UnrepresentableValueError("spoilt", table=table)
        self.topics.produce(self._next_partition(table), {}, error=error)

    def damage(self, table: str) -> None:
        error = MalformedChangeError("cut short", table=table)
        self.topics.produce(self._next_partition(table), {}, error=error)

    def reject(self, table: str, payload: bytes) -> None:
        self.topics.produce(self._next_partition(table), {}, rejected=payload)

    def add_records_table(self, name: str, columns: Mapping[str, Primitive]) -> None:
        records = TableLayout(columns=(), required=frozenset())
        self.topics.add_topic(
            name, columns, partitions=PARTITIONS, required=columns, layout=records
        )
        self._produced[name] = []

    def partitions_of(self, table: str) -> list[str]:
        return [each.name for each in self.topics.of_topic(table)]

    def add_partition(self, table: str) -> None:
        self.topics.add_partitions(table, 1)

    def expire(self, partition: str) -> None:
        log = self.topics.partitions[partition]
        log.expire(log.ends)

    def end_lease(self, *partitions: str) -> None:
        self.topics.end_lease(*partitions)

    def acknowledged(self, partition: str) -> int:
        return self.topics.partitions[partition].acknowledged

    def _next_partition(self, table: str) -> str:
        return min(self.topics.of_topic(table), key=lambda each: (each.ends, each.number)).name


class TestTopics(
    SourceContract,
    LiveContract,
    PartitionContract,
    SharedContract,
    TroubleContract,
    RejectContract,
    LayoutContract,
):
    @pytest.fixture
    def subject(self) -> TopicsSubject:
        return TopicsSubject()
