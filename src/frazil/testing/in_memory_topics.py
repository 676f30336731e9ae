"""Topics with partitions in memory, and a source over them of which several processes may have one.

What it shows to the author of a source: tables that begin live, positions by partition, leases of
partitions that end whenever they like, and records that expire. Each partition is a log of its own;
which process reads it is decided by its lease, and what was captured of it by the marker of its
table alone: a lease that is lost costs the work of a batch, never a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.errors import LeaseLostError, PositionLostError, SourceReplacedError
from frazil.hooks import SystemClock
from frazil.model.change import Operation
from frazil.model.command import command
from frazil.model.source_table import Begin, SourceColumn, SourceTable
from frazil.sources.change_schema import arrow_type
from frazil.sources.protocol import Batch, Restart, Split, TableFailure, TablePart
from frazil.testing.in_memory_database import ROW_BYTES, LoggedRow
from frazil.testing.in_memory_source import InMemoryReader, SourceRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.schema.types import Type
    from frazil.sources.protocol import Limit, Progress

# Few, so that a batch of a few records already has several splits.
_RECORDS_PER_SPLIT = 4
# A TRUNCATE goes before the records of all partitions: their ordinals begin after its own.
_FIRST_ORDINAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; ``number`` is its place among those of all partitions, for fair batches."""

    offset: int
    number: int
    values: Mapping[int, object]
    produced_at: datetime
    error: FrazilError | None = None


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
        self, name: str, columns: Mapping[str, Type], *, partitions: int, key: Sequence[str] = ()
    ) -> None:
        """Create a topic whose records have these columns."""
        numbered = tuple(
            SourceColumn(number=number, name=each, type=type_)
            for number, (each, type_) in enumerate(columns.items(), start=1)
        )
        self.tables[name] = SourceTable(
            name=name,
            identity=f"topic {name} {next(self._numbers)}",
            shape=",".join(columns),
            columns=numbered,
            key=tuple(list(columns).index(each) + 1 for each in key),
            highest_number=len(numbered),
            begins=Begin.STREAM,
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
        self, partition: str, values: Mapping[str, object], *, error: FrazilError | None = None
    ) -> None:
        """Append a record; one with an error cannot be read."""
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


class InMemoryTopicSource:
    """The source of one process over topics; ``worker`` is the name that its leases have.

    ``wanted`` are the names of topics, where * and ? represent other characters.
    ``most_partitions`` is how many leases it takes.
    """

    def __init__(
        self,
        topics: InMemoryTopics,
        *,
        worker: str = "worker",
        wanted: Collection[str] = ("*",),
        most_partitions: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.most_partitions = most_partitions
        self._topics = topics
        self._worker = worker
        self._wanted = tuple(wanted)
        self._clock = clock or SystemClock()
        # The offset that follows what was planned, of the partitions that are read.
        self._planned: dict[str, int] = {}
        # The leases whose offsets were acknowledged again as the ledger has them.
        self._settled: set[tuple[str, int]] = set()

    @property
    def identity(self) -> str:
        """The cluster's."""
        return self._topics.identity

    @property
    def generation(self) -> int:
        """The cluster's, the same in every process."""
        return self._topics.generation

    def discover(self) -> tuple[SourceTable, ...]:
        """The wanted topics."""
        tables = self._topics.tables
        return tuple(tables[name] for name in sorted(tables) if self.selects(name))

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Nothing but whether it is another one."""
        return () if before == now else ("another topic took its name",)

    def selects(self, table: str) -> bool:
        """Whether a pattern means this topic."""
        return any(fnmatchcase(table, pattern) for pattern in self._wanted)

    def prepare(
        self,
        tables: Collection[str],  # noqa: ARG002
        since: Marker | None,
        reached: Collection[Position] = (),  # noqa: ARG002
    ) -> Position:
        """Nothing is to be created: partitions begin when they are first leased."""
        if since is None:
            return {}
        if since.source != self.identity or since.epoch > self.generation:
            raise SourceReplacedError(
                "offsets were counted in another cluster.", next_step="frazil resync --all"
            )
        return since.position

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next records of the partitions that this process has a lease of."""
        acknowledged = progress.acknowledged
        self._planned = {}
        if acknowledged is None:
            return None
        with self._topics.lock:
            held = self._held(progress.tables)
            recorded = _offsets(acknowledged)
            self._acknowledge_again(held, recorded)
            begun = {each.name: each.begins for each in held if each.name not in recorded}
            if begun:
                # Before the first record is read: one that expires by then was not lost silently.
                return Batch(reader=InMemoryReader({}), splits=(), parts=(), end=begun)
            return self._batch(held, progress, recorded, limit)

    def _batch(
        self,
        held: Sequence[Partition],
        progress: Progress,
        recorded: Mapping[str, int],
        limit: Limit,
    ) -> Batch | None:
        starts = {
            each.name: _offsets(progress.tables[each.topic].position).get(
                each.name, recorded[each.name]
            )
            for each in held
        }
        lost = {
            each.topic: each for each in held if not each.begins <= starts[each.name] <= each.ends
        }
        read = [each for each in held if each.topic not in lost]
        rows = self._gather(read, starts, limit)
        goals: dict[str, dict[str, int]] = {}
        for row in rows:
            goal = goals.setdefault(row.row.table.name, {})
            goal[row.origin.rpartition("@")[0]] = row.position + 1
        moved = {name: at for goal in goals.values() for name, at in goal.items()}
        self._planned = {each.name: moved.get(each.name, starts[each.name]) for each in read}
        # Where a process ended between the table and the ledger, the ledger follows.
        end = {name: at for name, at in self._planned.items() if at != recorded[name]}
        failures = tuple(_gap(each, starts[each.name]) for each in lost.values())
        if not (end or moved or failures):
            return None
        tables = {name: self._topics.tables[name] for name in goals}
        return Batch(
            reader=InMemoryReader(tables),
            splits=_split(rows),
            parts=tuple(
                TablePart(
                    table=tables[name], start=progress.tables[name].position, goal=goals[name]
                )
                for name in goals
            ),
            end=end,
            failures=failures,
            check=self._lease_check([self._topics.partitions[name] for name in moved]),
        )

    def plan_copy(self, tables: Collection[str]) -> Batch | None:
        """Restart topics at their oldest records, if this process has their first partition."""
        topics = self._topics
        with topics.lock:
            mine = [
                name
                for name in sorted(tables)
                if name in topics.tables and topics.lease(f"{name}/0", self._worker)
            ]
            if not mine:
                return None
            restart = Restart(position=0, origin="restart")
            return Batch(
                reader=InMemoryReader({}),
                splits=(),
                parts=tuple(
                    TablePart(
                        table=topics.tables[name],
                        start=None,
                        goal={each.name: each.begins for each in topics.of_topic(name)},
                        restart=restart,
                    )
                    for name in mine
                ),
                end=None,
                check=self._lease_check([topics.partitions[f"{name}/0"] for name in mine]),
            )

    def wait(self, seconds: float, limit: Limit) -> bool:
        """Until the partitions that are read have enough."""
        if not self._is_enough(limit):
            self._clock.sleep(seconds)
        return self._is_enough(limit)

    def newest(self) -> Position:
        """Where the partitions end."""
        with self._topics.lock:
            return {
                each.name: each.ends
                for each in self._topics.partitions.values()
                if self.selects(each.topic)
            }

    def has_reached(self, position: Position) -> bool:
        """Whether the partitions that are read have come there; others are read elsewhere."""
        wanted = _offsets(position)
        return all(at >= wanted.get(name, at) for name, at in self._planned.items())

    def kept_since(self, position: Position) -> int:
        """The records behind these offsets, as bytes."""
        known = _offsets(position)
        with self._topics.lock:
            return ROW_BYTES * sum(
                each.ends - known.get(each.name, 0)
                for each in self._topics.partitions.values()
                if self.selects(each.topic)
            )

    def acknowledge(self, position: Position) -> None:
        """Keep the offsets of the partitions that this process has a lease of."""
        for name, offset in _offsets(position).items():
            self._topics.acknowledge(name, offset, holder=self._worker)

    def close(self) -> None:
        """Forget what was planned; leases stay until they end."""
        self._planned = {}

    def release(self, *partitions: str) -> None:
        """Let others take these partitions, those that are this process's."""
        mine = [each for each in partitions if self._topics.partitions[each].holder == self._worker]
        self._topics.end_lease(*mine)

    def _held(self, tables: Collection[str]) -> list[Partition]:
        """The partitions of these tables with a lease of this process; free ones are taken."""
        wanted = [each for each in self._topics.partitions.values() if each.topic in tables]
        held = [each for each in wanted if each.holder == self._worker]
        most = len(wanted) if self.most_partitions is None else self.most_partitions
        free = [each for each in wanted if each.holder is None][: max(0, most - len(held))]
        taken = [each for each in free if self._topics.lease(each.name, self._worker)]
        return sorted(held + taken, key=lambda each: each.name)

    def _acknowledge_again(self, held: Iterable[Partition], recorded: Mapping[str, int]) -> None:
        """Of new leases: the process before may have ended right before it did."""
        for each in held:
            if (each.name, each.lease) not in self._settled and each.name in recorded:
                self._settled.add((each.name, each.lease))
                self._topics.acknowledge(each.name, recorded[each.name], holder=self._worker)

    def _gather(
        self, partitions: Sequence[Partition], starts: Mapping[str, int], limit: Limit
    ) -> list[SourceRow]:
        """Records in the order in which they were produced, so that no partition waits."""
        found = [
            (record, each)
            for each in partitions
            for record in each.records
            if record.offset >= starts[each.name]
        ]
        found.sort(key=lambda pair: pair[0].number)
        most = max(1, min(limit.rows, limit.bytes // ROW_BYTES))
        return [self._row(record, each) for record, each in found[:most]]

    def _row(self, record: Record, partition: Partition) -> SourceRow:
        row = LoggedRow(
            table=self._topics.tables[partition.topic],
            ordinal=_FIRST_ORDINAL + partition.number,
            operation=Operation.INSERT,
            values=record.values,
            error=record.error,
        )
        return SourceRow(
            position=record.offset,
            origin=f"{partition.name}@{record.offset}",
            committed_at=record.produced_at,
            row=row,
        )

    def _lease_check(self, partitions: Sequence[Partition]) -> Callable[[], None]:
        leases = {each.name: each.lease for each in partitions}

        def check() -> None:
            for name, lease in leases.items():
                found = self._topics.partitions[name]
                if (found.holder, found.lease) != (self._worker, lease):
                    message = f"the lease of partition {name} has ended."
                    raise LeaseLostError(message, table=found.topic)

        return check

    def _is_enough(self, limit: Limit) -> bool:
        partitions = self._topics.partitions
        records = sum(partitions[name].ends - at for name, at in self._planned.items())
        return records >= min(limit.rows, max(1, limit.bytes // ROW_BYTES))


def _offsets(position: Position | None) -> Mapping[str, int]:
    if isinstance(position, str):
        message = "positions of this source are offsets by partition"
        raise TypeError(message)
    return position or {}


def _gap(partition: Partition, offset: int) -> TableFailure:
    message = f"partition {partition.name} has only offsets {partition.begins} to {partition.ends}."
    error = PositionLostError(
        message,
        table=partition.topic,
        position=str(offset),
        next_step=command("resync", partition.topic),
    )
    return TableFailure(partition.topic, error)


def _split(rows: Sequence[SourceRow]) -> tuple[Split, ...]:
    pieces = (
        tuple(rows[at : at + _RECORDS_PER_SPLIT]) for at in range(0, len(rows), _RECORDS_PER_SPLIT)
    )
    return tuple(Split(piece, weight=len(piece) * ROW_BYTES) for piece in pieces)
