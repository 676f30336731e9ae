"""A source over topics in memory, of which several processes may have one.

What it shows to the author of a source: tables that begin live, positions by partition, and leases
of partitions. Which process reads a partition is decided by its lease, and what was captured of it
by the marker of its table alone: a lease that is lost costs the work of a batch, never a row.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Event
from typing import TYPE_CHECKING

from frazil.errors import (
    LeaseLostError,
    MalformedChangeError,
    PositionLostError,
    SourceReplacedError,
)
from frazil.hooks import SystemClock
from frazil.model.change import Operation
from frazil.model.command import command
from frazil.sources.protocol import Batch, PartitionFailure, Restart, Split, TablePart
from frazil.testing.in_memory_database import ROW_BYTES, LoggedRow
from frazil.testing.in_memory_source import InMemoryReader, SourceRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import Limit, Progress, Reading
    from frazil.testing.in_memory_topics import InMemoryTopics, Partition, Record

# Few, so that a batch of a few records already has several splits.
_RECORDS_PER_SPLIT = 4
# A TRUNCATE goes before the records of all partitions: their ordinals begin after its own.
_FIRST_ORDINAL = 1


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
        self._woken = Event()
        # The offset that follows what was planned, of the partitions that are read; None before.
        self._planned: dict[str, int] | None = None
        # Where gaps were reported.
        self._gaps: dict[str, int] = {}
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
                self._planned = {each.name: recorded.get(each.name, each.begins) for each in held}
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
        stops = {each.name: progress.stopped.get(each.name, sys.maxsize) for each in held}
        resumed = self._resume(held, stops)
        read = [each for each in held if each.begins <= starts[each.name] <= each.ends]
        lost = [each for each in held if each not in read and starts[each.name] < stops[each.name]]
        rows = self._gather(read, starts, stops, limit)
        goals: dict[str, dict[str, int]] = {}
        for row in rows:
            goal = goals.setdefault(row.row.table.name, {})
            goal[row.origin.rpartition("@")[0]] = row.position + 1
        moved = {name: at for goal in goals.values() for name, at in goal.items()}
        planned = {each.name: moved.get(each.name, starts[each.name]) for each in read}
        # One that is stopped goes nowhere.
        self._planned = {name: at for name, at in planned.items() if at < stops[name]}
        # Where a process ended between the table and the ledger, the ledger follows.
        end = {name: at for name, at in planned.items() if at != recorded[name]}
        failures = tuple(_gap(each, starts[each.name]) for each in lost)
        self._gaps |= {each.name: starts[each.name] for each in lost}
        if not (end or moved or failures):
            return None
        tables = {name: self._topics.tables[name] for name in goals}
        return Batch(
            reader=TopicReader(InMemoryReader(tables)),
            splits=_split(rows),
            parts=tuple(
                TablePart(
                    table=tables[name], start=progress.tables[name].position, goal=goals[name]
                )
                for name in goals
            ),
            end=end,
            failures=failures,
            resumed=tuple(name for name in resumed if name in moved),
            check=self._lease_check([self._topics.partitions[name] for name in moved]),
        )

    def _resume(self, held: Sequence[Partition], stops: dict[str, int]) -> list[str]:
        """Those that stopped at a gap that is none any more; they have no stop then."""
        stopped = [each for each in held if self._gaps.get(each.name, -1) == stops[each.name]]
        resumed = [each.name for each in stopped if each.begins <= stops[each.name]]
        stops |= dict.fromkeys(resumed, sys.maxsize)
        return resumed

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
            self._clock.wait(self._woken, seconds)
        self._woken.clear()
        return self._is_enough(limit)

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._woken.set()

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
        if self._planned is None:
            return False
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

    @property
    def reached(self) -> Mapping[str, int]:
        """Where the partitions are that are read."""
        return dict(self._planned or {})

    @property
    def followed(self) -> frozenset[str]:
        """The topics of these partitions."""
        return frozenset(self._topics.partitions[name].topic for name in self._planned or ())

    def received(self) -> None:
        """Nothing is received before it is planned."""

    @property
    def is_paused(self) -> bool:
        """Reading never waits."""
        return False

    def acknowledge(self, position: Position) -> None:
        """Keep the offsets of the partitions that this process has a lease of."""
        for name, offset in _offsets(position).items():
            self._topics.acknowledge(name, offset, holder=self._worker)

    def close(self) -> None:
        """Forget what was planned; leases stay until they end."""
        self._planned = None

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
        self,
        partitions: Sequence[Partition],
        starts: Mapping[str, int],
        stops: Mapping[str, int],
        limit: Limit,
    ) -> list[SourceRow]:
        """Records in the order in which they were produced, so that no partition waits."""
        found = [
            (record, each)
            for each in partitions
            for record in each.records
            if starts[each.name] <= record.offset < stops[each.name]
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
            rejected=record.rejected,
        )
        return SourceRow(
            partition=str(partition.number),
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
        records = sum(partitions[name].ends - at for name, at in (self._planned or {}).items())
        return records >= min(limit.rows, max(1, limit.bytes // ROW_BYTES))


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads splits; a record whose bytes do not decode stops its partition, not its topic."""

    inner: InMemoryReader

    def read(self, split: Split) -> Iterator[Reading]:
        """The partitions that stop, and the records of the others."""
        if not isinstance(split.payload, tuple):
            raise TypeError(split.payload)
        rows = []
        for row in split.payload:
            if isinstance(row.row.error, MalformedChangeError):
                partition = row.origin.rpartition("@")[0]
                yield PartitionFailure(row.row.table.name, partition, row.position, row.row.error)
            else:
                rows.append(row)
        yield from self.inner.read(Split(tuple(rows), split.weight))


def _offsets(position: Position | None) -> Mapping[str, int]:
    if isinstance(position, str):
        message = "positions of this source are offsets by partition"
        raise TypeError(message)
    return position or {}


def _gap(partition: Partition, offset: int) -> PartitionFailure:
    message = f"partition {partition.name} has only offsets {partition.begins} to {partition.ends}."
    error = PositionLostError(
        message,
        table=partition.topic,
        position=str(offset),
        next_step=command("resync", partition.topic),
    )
    return PartitionFailure(partition.topic, partition.name, offset, error)


def _split(rows: Sequence[SourceRow]) -> tuple[Split, ...]:
    pieces = (
        tuple(rows[at : at + _RECORDS_PER_SPLIT]) for at in range(0, len(rows), _RECORDS_PER_SPLIT)
    )
    return tuple(Split(piece, weight=len(piece) * ROW_BYTES) for piece in pieces)
