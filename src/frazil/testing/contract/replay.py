"""The smallest pipeline: markers, an acknowledgement, and rows replayed into what they mean.

It checks on the way what every batch and every row must be, whatever the test is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.model.change import Operation
from frazil.model.marker import Marker
from frazil.model.records.rejected_record import RejectedRecord
from frazil.model.source_table import TableBegin
from frazil.sources.change_schema import change_schema
from frazil.sources.protocol import (
    ChangeColumn,
    Limit,
    Progress,
    RecordsCounted,
    TableProgress,
    TableRows,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

    from frazil.errors import FrazilError
    from frazil.model.marker import Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import Batch, Split, TablePart
    from frazil.testing.contract.under_test import SourceUnderTest

ROOMY = Limit(rows=100_000, bytes=1 << 30)
TIGHT = Limit(rows=1, bytes=1)
# A source that never comes to its end is caught, not waited for.
MOST_BATCHES = 5_000
# Together far above what a busy machine needs, each short enough to go on at once.
MOST_WAITS, WAIT_SECONDS = 300, 0.1

Row = dict[str, object]


def row_position(row: Row) -> tuple[int, int]:
    """The position of a row among those of its table."""
    position, ordinal = row[ChangeColumn.POSITION], row[ChangeColumn.ORDINAL]
    assert isinstance(position, int)
    assert isinstance(ordinal, int)
    return position, ordinal


@dataclass(slots=True)
class Readings:
    """What splits gave: rows and rejected records in the order of their positions, and problems."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    failures: dict[str, FrazilError] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)


def read(batch: Batch, splits: Iterable[Split] | None = None) -> Readings:
    """Read a batch as tasks do, and check that its rows have the protocol's form."""
    tables = {part.table.name: part.table for part in batch.parts}
    readings = Readings()
    for split in batch.splits if splits is None else splits:
        assert split.weight > 0
        for reading in batch.reader.read(split):
            if isinstance(reading, RejectedRecord):
                assert reading.table in tables
                readings.rejected.append(reading)
                continue
            if isinstance(reading, RecordsCounted):
                continue
            if not isinstance(reading, TableRows):
                readings.failures[reading.table] = reading.error
                continue
            table = tables[reading.table]
            expected = change_schema(table.columns, table.key)
            assert _types(reading.rows.schema) == _types(expected)
            readings.rows.setdefault(reading.table, []).extend(reading.rows.to_pylist())
    for rows in readings.rows.values():
        # Copied rows have one position; this sort leaves them as they came.
        rows.sort(key=row_position)
    readings.rejected.sort(key=lambda each: (each.where, each.offset))
    return readings


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in schema}


class Replay:
    """What the rows of one table come to; what cannot be is not let pass.

    By partition there is an order only in each of them; the ordinal says which one it is.
    """

    def __init__(self, *, by_partition: bool = False) -> None:
        self.rows: dict[tuple[object, ...], dict[int, object]] = {}
        self.received: list[Row] = []
        self._departed: dict[tuple[object, ...], dict[int, object]] = {}
        self._by_partition = by_partition
        self._last_by_partition: dict[int, tuple[int, int]] = {}
        self._last = (-1, 0)

    def restart_at(self, position: int) -> None:
        """A TRUNCATE goes before the rows that come."""
        # Twice at one position, when nothing happened in between: epochs distinguish these.
        assert position >= self._last[0]
        self._last = (position, 0)
        self.rows.clear()

    def apply(self, table: SourceTable, rows: Iterable[Row]) -> None:
        """Replay rows in the order of their positions."""
        for row in rows:
            self.received.append(row)
            if row[ChangeColumn.OPERATION] == Operation.READ:
                # All rows of a copy are at one position, right after its TRUNCATE.
                self._last = max(self._last, row_position(row))
                assert row_position(row) == self._last
            else:
                self._advance(row_position(row))
            self._apply(table, row)

    def shown(self, table: SourceTable) -> list[Row]:
        """The rows that are there, under the names that the columns have now."""
        return [
            {each.name: row.get(each.number, each.default) for each in table.columns}
            for row in self.rows.values()
        ]

    def _advance(self, to: tuple[int, int]) -> None:
        if self._by_partition:
            assert to > self._last_by_partition.get(to[1], (-1, 0)), "a record is out of order"
            self._last_by_partition[to[1]] = to
            return
        assert to > self._last, "a row is not after the one before it"
        self._last = to

    def _apply(self, table: SourceTable, row: Row) -> None:
        values = {each.number: row[str(each.number)] for each in table.columns}
        # Without a key rows are only added, so that their number is the next key.
        key = tuple(values[each] for each in table.key) or (len(self.rows),)
        match Operation(str(row[ChangeColumn.OPERATION])):
            case Operation.TRUNCATE:
                assert all(value is None for value in values.values())
                self.rows.clear()
            case Operation.DELETE:
                self._departed[key] = self.rows.pop(key)
            case Operation.UPDATE:
                assert None not in key
                self.rows[key] = self._completed(table, row, values, self.rows[key])
            case Operation.INSERT | Operation.READ:
                assert key not in self.rows
                assert None not in key
                previous = row.get(ChangeColumn.PREVIOUS_KEY)
                old = self._departed[_members(previous)] if previous is not None else None
                self.rows[key] = self._completed(table, row, values, old)

    def _completed(
        self,
        table: SourceTable,
        row: Row,
        values: dict[int, object],
        old: dict[int, object] | None,
    ) -> dict[int, object]:
        unchanged = row[ChangeColumn.UNCHANGED]
        if unchanged is None:
            return values
        assert isinstance(unchanged, list)
        assert unchanged, "none is null, not a list of none"
        assert old is not None, "what stayed has nothing that it stayed as"
        assert not set(unchanged) & set(table.key)
        assert all(values[number] is None for number in unchanged)
        defaults = {each.number: each.default for each in table.columns}
        return values | {number: old.get(number, defaults[number]) for number in unchanged}


def _members(previous: object) -> tuple[object, ...]:
    assert isinstance(previous, dict)
    return tuple(previous.values())


class CaptureUnderTest:
    """Captures tables as a pipeline does: each moves its own marker, then all is acknowledged.

    Markers, replays and ``acknowledged`` are what is durable; ``restart`` keeps them and nothing
    else. While a table is paused or failed, nothing is acknowledged; by partition, nothing of the
    partitions of a table that was not committed.
    """

    def __init__(self, subject: SourceUnderTest) -> None:
        self.subject = subject
        self.source = subject.open()
        self.acknowledged: Position | None = None
        self.witness: str | None = None
        self.markers: dict[str, TableProgress] = {}
        self.replays: dict[str, Replay] = {}
        self.paused: set[str] = set()
        self.failures: dict[str, FrazilError] = {}

    @property
    def progress(self) -> Progress:
        left_out = self.paused | set(self.failures)
        tables = {name: each for name, each in self.markers.items() if name not in left_out}
        return Progress(acknowledged=self.acknowledged, tables=tables)

    @property
    def ledger(self) -> Marker:
        """What the ledger says of the source."""
        assert self.acknowledged is not None
        return Marker(
            pipeline="tests",
            source=self.source.identity,
            position=self.acknowledged,
            batch="b",
            epoch=self.source.generation,
            witness=self.witness,
        )

    @property
    def reached(self) -> list[Position]:
        """Where the tables' markers are."""
        return [each.position for each in self.markers.values() if each.position is not None]

    def begin(self, *tables: str) -> None:
        """Capture these tables from their first row."""
        since = None if self.acknowledged is None else self.ledger
        self.acknowledged = self.source.prepare([*self.markers, *tables], since, self.reached)
        if self.subject.has_copies:
            self.copy(*tables)
            return
        for each in self.source.discover():
            if each.name in tables:
                assert each.begins is TableBegin.STREAM
                self.replays[each.name] = Replay(by_partition=self._is_by_partition)
                self.markers[each.name] = TableProgress(None, "", "")

    def copy(self, *tables: str) -> None:
        """Copy these tables, in as many batches as the source makes of them."""
        left = set(tables)
        while left:
            batch = self.source.plan_copy(left)
            assert batch is not None
            brought = {part.table.name for part in batch.parts}
            assert brought
            assert brought <= left
            self.commit(batch)
            left -= brought
        assert self.source.plan_copy(()) is None

    def next_batch(self, limit: Limit = ROOMY, *, progress: Progress | None = None) -> Batch | None:
        """The next batch, of which nothing is committed yet; None if nothing is to come."""
        newest, start = self.source.newest(), progress or self.progress
        for _ in range(MOST_WAITS):
            batch = self.source.plan(start, limit)
            if batch is not None:
                moves = merged(start.acknowledged, batch.end) != start.acknowledged
                assert batch.parts or batch.failures or moves
                assert batch.parts or not batch.splits
                return batch
            if self.source.has_reached(newest):
                return None
            self.source.wait(WAIT_SECONDS, TIGHT)
        message = "the source does not come to where it is itself"
        raise AssertionError(message)

    def commit(
        self, batch: Batch, *, only: Collection[str] | None = None, acknowledge: bool = True
    ) -> Readings:
        """Commit a batch, or some tables of it; then all of it is acknowledged, if it may be."""
        readings = read(batch)
        batch.check()
        self.failures |= {each.table: each.error for each in batch.failures} | readings.failures
        names = {part.table.name for part in batch.parts}
        assert set(readings.rows) | set(readings.failures) <= names
        for part in batch.parts:
            if only is None or part.table.name in only:
                self._commit_part(part, readings)
        if only is None:
            self.witness = batch.witness or self.witness
        end = self._acknowledgeable(batch) if only is None else None
        if end is not None:
            self.acknowledged = merged(self.acknowledged, end)
            if acknowledge:
                self.source.acknowledge(end)
        return readings

    @property
    def _is_by_partition(self) -> bool:
        return isinstance(self.acknowledged, Mapping)

    def _acknowledgeable(self, batch: Batch) -> Position | None:
        if not isinstance(batch.end, Mapping):
            return None if self.paused or self.failures else batch.end
        kept = {
            partition
            for part in batch.parts
            if part.table.name in self.failures
            for partition in part.goal
        }
        return {name: at for name, at in batch.end.items() if name not in kept}

    def _commit_part(self, part: TablePart, readings: Readings) -> None:
        name = part.table.name
        rows = readings.rows.get(name, [])
        moves = rows or part.restart or isinstance(part.goal, Mapping)
        if name in readings.failures or not moves:
            # What brings nothing leaves the table where it is.
            return
        replay = self.replays.setdefault(name, Replay())
        if part.restart is not None:
            replay.restart_at(part.restart.position)
            self.failures.pop(name, None)
        else:
            assert part.start == self.markers[name].position
            assert self.markers[name].identity in ("", part.table.identity)
        replay.apply(part.table, rows)
        self.markers[name] = TableProgress(
            part.goal if part.restart else merged(part.start, part.goal),
            part.table.identity,
            part.table.shape,
        )

    def catch_up(self, limit: Limit = ROOMY) -> list[Batch]:
        """Commit batches until there is nothing to do; those that brought something."""
        batches: list[Batch] = []
        for _ in range(MOST_BATCHES):
            batch = self.next_batch(limit)
            if batch is None:
                return batches
            self.commit(batch)
            if batch.parts or batch.failures:
                batches.append(batch)
        message = "the source never comes to its end"
        raise AssertionError(message)

    def preview(self, progress: Progress | None = None) -> dict[str, list[Row]]:
        """What is to come for each table, from here or elsewhere; nothing is committed by it."""
        ahead = progress or self.progress
        to_come: dict[str, list[Row]] = {}
        while (batch := self.next_batch(progress=ahead)) is not None:
            assert batch.end is not None
            tables = dict(ahead.tables)
            for name, rows in read(batch).rows.items():
                to_come.setdefault(name, []).extend(rows)
            for part in batch.parts:
                goal = merged(part.start, part.goal)
                moved = TableProgress(goal, part.table.identity, part.table.shape)
                tables[part.table.name] = moved
            ahead = Progress(acknowledged=merged(ahead.acknowledged, batch.end), tables=tables)
        # What is given up is requested again only after this.
        self.source.close()
        return to_come

    def restart(self) -> None:
        """What a new process knows is what is durable."""
        self.source.close()
        self.source = self.subject.open()
        ledger = self.ledger
        assert self.source.prepare(list(self.markers), ledger, self.reached) == self.acknowledged

    def unknown_tables(self) -> set[str]:
        """Tables that are others by now than those that were captured."""
        return {
            each.name
            for each in self.source.discover()
            if each.name in self.markers
            and self.source.explain_identity_change(self.markers[each.name].identity, each.identity)
        }

    def received(self, table: str) -> list[Row]:
        """Every row of a table so far."""
        return self.replays[table].received

    def expect_the_truth(self) -> None:
        """What was replayed is what the source's tables hold."""
        for table in self.source.discover():
            if table.name in self.replays:
                shown = self.replays[table.name].shown(table)
                assert in_one_order(shown) == in_one_order(self.subject.contents(table.name))

    def progress_at(self, position: Position, *tables: str) -> Progress:
        """The progress with some tables elsewhere."""
        moved = {name: replace(self.markers[name], position=position) for name in tables}
        return replace(self.progress, tables={**self.progress.tables, **moved})


def merged(before: Position | None, end: Position | None) -> Position | None:
    """A position after a move; by partition, those that do not move stay."""
    if isinstance(before, Mapping) and isinstance(end, Mapping):
        return {**before, **end}
    return before if end is None else end


def in_one_order(rows: Iterable[Row]) -> list[list[tuple[str, object]]]:
    """Rows that compare equal whatever the order of them and of their columns."""
    return sorted((sorted(row.items()) for row in rows), key=repr)
