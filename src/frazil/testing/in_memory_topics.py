"""Topics with partitions in memory: records that expire, and leases that end whenever they like.

It is what ``in_memory_topic_source.InMemoryTopicSource`` reads and what tests produce to. Each
partition is a log of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.hooks import SystemClock
from frazil.model.schema.table_layout import CDC_LAYOUT, TableLayout
from frazil.model.source_table import SourceColumn, SourceTable, TableBegin
from frazil.sources.change_schema import arrow_type
from frazil.testing.in_memory_database import RejectRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.schema.types import Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; ``number`` is its place among those of all partitions, for fair batches."""

    offset: int
    number: int
    values: Mapping[int, object]
    produced_at: datetime
    error: FrazilError | None = None
    rejected: RejectRecord | None = None


@dataclass(slots=True, kw_only=True)
class Partition:
    """A log whose records have expired before ``begins``; ``ends`` is its next offset."""

    name: str
    topic: str
    number: int
    begins: int = 0
    ends: int = 0
    records: list[Record] = field(default_factory=list)
    # What was acknowledged, and who may read it; a lease that is taken again is another one.
    acknowledged: int = 0
    holder: str | None = None
    lease: int = 0

    def expire(self, before: int) -> None:
        """Drop the records before this offset."""
        self.begins = max(self.begins, min(before, self.ends))
        self.records = [each for each in self.records if each.offset >= self.begins]


class InMemoryTopics:
    """Topics that tests produce to; with ``forgets``, acknowledged records are dropped."""

    def __init__(self, *, forgets: bool = True, clock: Clock | None = None) -> None:
        self.identity, self.generation = "topics 1", 1
        self.lock = RLock()
        self.tables: dict[str, SourceTable] = {}
        self.partitions: dict[str, Partition] = {}
        self._forgets = forgets
        self._clock = clock or SystemClock()
        self._numbers = count()

    def add_topic(
        self,
        name: str,
        columns: Mapping[str, Type],
        *,
        partitions: int,
        key: Sequence[str] = (),
        required: Collection[str] = (),
        layout: TableLayout = CDC_LAYOUT,
    ) -> None:
        """Create a topic whose records have these columns."""
        numbered = tuple(
            SourceColumn(number=number, name=each, type=type_, required=each in required)
            for number, (each, type_) in enumerate(columns.items(), start=1)
        )
        self.tables[name] = SourceTable(
            name=name,
            identity=f"topic {name} {next(self._numbers)}",
            shape=",".join(columns),
            columns=numbered,
            key=tuple(list(columns).index(each) + 1 for each in key),
            highest_number=len(numbered),
            begins=TableBegin.STREAM,
            layout=layout,
        )
        self.add_partitions(name, partitions)

    def add_partitions(self, topic: str, more: int) -> None:
        """Give a topic more partitions."""
        first = len(self.of_topic(topic))
        for number in range(first, first + more):
            name = f"{topic}/{number}"
            self.partitions[name] = Partition(name=name, topic=topic, number=number)

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic in their order."""
        return [each for each in self.partitions.values() if each.topic == topic]

    def produce(
        self,
        partition: str,
        values: Mapping[str, object],
        *,
        error: FrazilError | None = None,
        rejected: bytes | None = None,
    ) -> None:
        """Append a record; one with an error cannot be read, and ``rejected`` bytes are no row."""
        with self.lock:
            log = self.partitions[partition]
            columns = {each.name: each for each in self.tables[log.topic].columns}
            stored = {
                columns[name].number: pa.scalar(value, arrow_type(columns[name].type)).as_py()
                for name, value in values.items()
            }
            record = Record(
                offset=log.ends,
                number=next(self._numbers),
                values=dict.fromkeys(each.number for each in columns.values()) | stored,
                produced_at=self._clock.now(),
                error=error,
                rejected=None if rejected is None else RejectRecord(log.topic, rejected),
            )
            log.records.append(record)
            log.ends += 1

    def acknowledge(self, partition: str, offset: int, *, holder: str) -> None:
        """Keep the offset, unless another process has the lease; it never goes back."""
        with self.lock:
            log = self.partitions[partition]
            if log.holder == holder:
                log.acknowledged = max(log.acknowledged, offset)
                if self._forgets:
                    log.expire(log.acknowledged)

    def lease(self, partition: str, holder: str) -> bool:
        """Take the lease of a partition, or keep it; False if another process has it."""
        with self.lock:
            log = self.partitions[partition]
            if log.holder is None:
                log.holder, log.lease = holder, log.lease + 1
            return log.holder == holder

    def end_lease(self, *partitions: str) -> None:
        """Let leases expire; their holders are not asked."""
        with self.lock:
            for each in partitions:
                self.partitions[each].holder = None
