"""The in-memory source: the protocol in the least code.

It reads an ``InMemoryDatabase``. Tests of the layers above sources run on it, and it shows the
author of a source what is expected; both pass the same contract.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.errors import PositionLostError, SourceReplacedError, UnsupportedSchemaChangeError
from frazil.hooks import SystemClock
from frazil.model.change import Operation
from frazil.model.command import command
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.records.rejected_record import RejectedRecord
from frazil.model.source_table import TableBegin
from frazil.sources.change_schema import change_schema
from frazil.sources.protocol import (
    Batch,
    Restart,
    Split,
    TableFailure,
    TablePart,
    TableRows,
)
from frazil.testing.in_memory_database import ROW_BYTES, LoggedRow, default_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceColumn, SourceTable
    from frazil.sources.protocol import Limit, Progress, Reading, TableProgress
    from frazil.testing.in_memory_database import (
        DatabaseState,
        InMemoryDatabase,
        RejectRecord,
        Row,
        Transaction,
    )

# A copied row is before every change of its table that comes later in the stream, and after
# the TRUNCATE that goes before the copy, which is the first of its transaction.
_ORDINAL_OF_READS = 1
# Few, so that a batch of a few rows already has several splits.
_ROWS_PER_SPLIT = 4

_HAS_VALUES = frozenset({Operation.READ, Operation.INSERT, Operation.UPDATE})


@dataclass(slots=True)
class _Stream:
    """What was planned so far since the stream began, and for which tables nothing was left out."""

    planned_to: int
    tables: frozenset[str]


class InMemorySource:
    """Reads a database; another one may go on where this one was, as after a restart.

    ``wanted`` are the names of tables to capture, where * and ? represent other characters.
    ``tables_at_once`` is how many tables one copy takes. With ``keep_rejected`` it has dead letters
    of its own.
    """

    keep_rejected: Callable[[Sequence[RejectedRecord]], None] | None = None

    def __init__(
        self,
        database: InMemoryDatabase,
        *,
        wanted: Collection[str] = ("*",),
        rows_per_split: int = _ROWS_PER_SPLIT,
        tables_at_once: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._wanted = tuple(wanted)
        self._rows_per_split = rows_per_split
        self._tables_at_once = tables_at_once
        self._clock = clock or SystemClock()
        self._woken = threading.Event()
        self._failures: list[FrazilError] = []
        self._stream: _Stream | None = None
        # What the ledger says.
        self._since = 0
        self._moment: DatabaseState | None = None

    def fail_next(self, error: FrazilError) -> None:
        """Let the next call that reads the database raise this, as if the connection was lost."""
        self._failures.append(error)

    @property
    def identity(self) -> str:
        """The database's; it changes when the database is replaced."""
        return self._database.state.identity

    @property
    def generation(self) -> int:
        """How often the database failed over, and one."""
        return self._database.state.generation

    def discover(self) -> tuple[SourceTable, ...]:
        """The wanted tables that are there."""
        tables = self._load().tables
        return tuple(tables[name].table for name in sorted(tables) if self.selects(name))

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Nothing but whether it is another one: an identity here is a mere name."""
        return () if before == now else ("another table took its name",)

    def selects(self, table: str) -> bool:
        """Whether a pattern means this table."""
        return any(fnmatchcase(table, pattern) for pattern in self._wanted)

    def prepare(
        self,
        tables: Collection[str],  # noqa: ARG002
        since: Marker | None,
        reached: Collection[Position] = (),  # noqa: ARG002
    ) -> Position:
        """Where the log begins, or where it was left; the log is of all tables anyway."""
        state = self._load()
        if since is None:
            return format_lsn(state.begins)
        if since.source != state.identity or since.epoch > state.generation:
            raise SourceReplacedError(
                "positions were counted in another database.", next_step="frazil resync --all"
            )
        self._since = _number(since.position)
        _refuse_what_is_not_kept(state, self._since)
        return since.position

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The transactions after those of the batch before, for each table those it has not."""
        state = self._load()
        if not progress.tables or progress.acknowledged is None:
            self._stream = None
            return None
        self._since = _number(progress.acknowledged)
        stream = self._streaming(state, progress, progress.acknowledged)
        since = stream.planned_to
        rows, stream.planned_to = _gather(state, since, progress, limit)
        end = format_lsn(stream.planned_to)
        if stream.planned_to == since:
            return None
        tables = _newest_tables(rows)
        there = {each.table.identity for each in state.tables.values()}
        gone = {name for name, table in tables.items() if table.identity not in there}
        return Batch(
            reader=InMemoryReader(tables),
            splits=self._split([each for each in rows if each.row.table.name not in gone]),
            parts=tuple(
                TablePart(table=table, start=progress.tables[name].position, goal=end)
                for name, table in tables.items()
                if name not in gone
            ),
            end=end,
            failures=tuple(_gone(name) for name in sorted(gone)),
            keep_rejected=self.keep_rejected,
        )

    def plan_copy(self, tables: Collection[str]) -> Batch | None:
        """Some of these tables as they were when the first of them was requested."""
        state = self._load()
        if not tables:
            self._moment = None
            return None
        if self._moment is None or not set(tables) <= set(self._moment.tables):
            self._moment = state
        there = self._moment.tables
        chosen = [there[name] for name in sorted(tables) if name in there][: self._tables_at_once]
        if not chosen:
            return None
        # What begins live restarts without rows, where the stream begins.
        is_live = chosen[0].table.begins is TableBegin.STREAM
        at = max(self._moment.begins, self._since) if is_live else self._moment.ends
        restart = Restart(position=at - 1, origin=format_lsn(at))
        rows = [
            _copied(each.table, values, restart)
            for each in chosen
            for values in (() if is_live else each.rows.values())
        ]
        return Batch(
            reader=InMemoryReader({each.table.name: each.table for each in chosen}),
            splits=self._split(rows),
            parts=tuple(
                TablePart(table=each.table, start=None, goal=restart.origin, restart=restart)
                for each in chosen
            ),
            end=None,
        )

    def wait(self, seconds: float, limit: Limit) -> bool:
        """Until the log holds enough; changes may be those of tables that were not requested."""
        if not self._is_enough(limit):
            self._clock.wait(self._woken, seconds)
        self._woken.clear()
        return self._is_enough(limit)

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._woken.set()

    def newest(self) -> Position:
        """Where the log ends."""
        return format_lsn(self._load().ends)

    def has_reached(self, position: Position) -> bool:
        """Whether the stream has come there; without a table to stream there is nothing to do."""
        return self._stream is None or self._stream.planned_to >= _number(position)

    def kept_since(self, position: Position) -> int:
        """The length of the log behind this position."""
        return self._load().ends - _number(position)

    def acknowledge(self, position: Position) -> None:
        """Let the database forget what is before this position."""
        self._load()
        self._database.forget(_number(position))

    def close(self) -> None:
        """End the stream, and let go of the moment that tables are read in."""
        self._stream = self._moment = None

    def _load(self) -> DatabaseState:
        if self._failures:
            raise self._failures.pop(0)
        return self._database.state

    def _streaming(
        self, state: DatabaseState, progress: Progress, acknowledged: Position
    ) -> _Stream:
        """The stream, restarted when a table has joined that was left out of it so far."""
        names = frozenset(progress.tables)
        if self._stream is None or not names <= self._stream.tables:
            since = _number(acknowledged)
            _refuse_what_is_not_kept(state, since)
            self._stream = _Stream(since, names)
        self._stream.tables = names
        return self._stream

    def _is_enough(self, limit: Limit) -> bool:
        if self._failures:
            return True
        if self._stream is None:
            return False
        since = self._stream.planned_to
        rows = sum(len(each.rows) for each in self._database.state.log if each.begins >= since)
        return rows >= limit.rows or rows * ROW_BYTES >= limit.bytes

    def _split(self, rows: Sequence[SourceRow]) -> tuple[Split, ...]:
        size = self._rows_per_split
        pieces = (tuple(rows[at : at + size]) for at in range(0, len(rows), size))
        return tuple(Split(piece, weight=len(piece) * ROW_BYTES) for piece in pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A row, and the transaction that it is in."""

    position: int
    origin: str
    committed_at: datetime | None
    row: LoggedRow
    partition: str = ""


@dataclass(frozen=True, slots=True)
class InMemoryReader:
    """Reads splits, which are the rows themselves, into tables as the batch needs them."""

    tables: Mapping[str, SourceTable]

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split, or what is wrong with them, table by table."""
        if not isinstance(split.payload, tuple):
            raise TypeError(split.payload)
        by_table: dict[str, list[SourceRow]] = {}
        for each in split.payload:
            by_table.setdefault(each.row.table.name, []).append(each)
        for name, rows in by_table.items():
            errors = [each.row.error for each in rows if each.row.error is not None]
            good = [each for each in rows if each.row.rejected is None]
            if errors:
                yield TableFailure(name, errors[0])
            elif good:
                yield TableRows(name, _record_batch(self.tables[name], good))
            for each in rows:
                if each.row.rejected is not None:
                    yield _rejected(each.row.rejected, each)


def _rejected(record: RejectRecord, read: SourceRow) -> RejectedRecord:
    # Both records of one transaction have its position: a batch has both or none.
    return RejectedRecord(
        table=record.table,
        partition=read.partition,
        offset=read.position,
        reason=record.reason,
        message="the record is none of the table's rows.",
        payload=record.payload,
    )


def _refuse_what_is_not_kept(state: DatabaseState, position: int) -> None:
    if position > state.ends:
        message = f"the log ends at {format_lsn(state.ends)}, before what was captured."
        raise SourceReplacedError(message, position=format_lsn(position))
    if position < state.begins:
        message = f"the log begins at {format_lsn(state.begins)}: what came before is lost."
        raise PositionLostError(
            message, position=format_lsn(position), next_step="frazil resync --all"
        )


def _gone(table: str) -> TableFailure:
    error = UnsupportedSchemaChangeError(
        "the table is not at the source any more.",
        table=table,
        next_step=command("resync", table),
    )
    return TableFailure(table, error)


def _gather(
    state: DatabaseState, since: int, progress: Progress, limit: Limit
) -> tuple[list[SourceRow], int]:
    """The rows of complete transactions up to the limit, and where the last of these ends.

    What no table takes does not count.
    """
    gathered: list[SourceRow] = []
    end = since
    for transaction in state.log:
        if transaction.begins < since:
            continue
        taken = _taken(transaction, progress)
        count = len(gathered) + len(taken)
        if gathered and (count > limit.rows or count * ROW_BYTES > limit.bytes):
            return gathered, end
        gathered += taken
        end = transaction.ends
    return gathered, end


def _taken(transaction: Transaction, progress: Progress) -> list[SourceRow]:
    """What tables take that have not come past this transaction."""
    position = transaction.begins
    return [
        SourceRow(
            position=position,
            origin=format_lsn(position),
            committed_at=transaction.committed_at,
            row=row,
        )
        for row in transaction.rows
        if _takes(progress.tables.get(row.table.name), row, position)
    ]


def _takes(table: TableProgress | None, row: LoggedRow, position: int) -> bool:
    """Whether a table of this name and identity needs the row; one skips what its marker covers."""
    return (
        table is not None
        and table.identity in ("", row.table.identity)
        and (table.position is None or position >= _number(table.position))
    )


def _copied(table: SourceTable, values: Row, restart: Restart) -> SourceRow:
    row = LoggedRow(table=table, ordinal=_ORDINAL_OF_READS, operation=Operation.READ, values=values)
    return SourceRow(position=restart.position, origin=restart.origin, committed_at=None, row=row)


def _newest_tables(rows: Iterable[SourceRow]) -> dict[str, SourceTable]:
    """The tables that have rows, as the last of them needs it."""
    return {each.row.table.name: each.row.table for each in rows}


def _number(position: Position) -> int:
    if not isinstance(position, str):
        message = "positions of this source are texts"
        raise TypeError(message)
    return parse_lsn(position)


def _record_batch(table: SourceTable, rows: Sequence[SourceRow]) -> pa.RecordBatch:
    """Rows in the protocol's form; those of older shapes are read into the newest one."""
    schema = change_schema(table.columns, table.key)
    numbers = {each.number for each in table.columns}
    # In the order of the schema.
    columns = [[_value(each.row, column) for each in rows] for column in table.columns]
    columns += [
        [each.row.operation.value for each in rows],
        [each.position for each in rows],
        [each.row.ordinal for each in rows],
        [each.committed_at for each in rows],
        [each.origin for each in rows],
        [sorted(numbers.intersection(each.row.unchanged)) or None for each in rows],
    ]
    if table.key:
        columns.append([_previous_key(table, each.row) for each in rows])
    arrays = [pa.array(each, type_) for each, type_ in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(row: LoggedRow, column: SourceColumn) -> object:
    """A value; a row that is older than the column shows the column's default."""
    if column.number in row.values:
        return row.values[column.number]
    is_older = all(each.number != column.number for each in row.table.columns)
    return default_value(column) if is_older and row.operation in _HAS_VALUES else None


def _previous_key(table: SourceTable, row: LoggedRow) -> dict[str, object] | None:
    if row.previous_key is None:
        return None
    return dict(zip(map(str, table.key), row.previous_key, strict=True))
