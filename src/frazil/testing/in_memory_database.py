"""A database small enough to read in one sitting: tables, transactions, and a log of them.

It is what ``in_memory.InMemorySource`` reads and what tests write to. Positions are those of
Postgres: a transaction's position is where its commit begins; the log then ends where its commit
ends, and the next one begins there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from frazil.hooks import SystemClock
from frazil.model.change import Operation
from frazil.model.postgres.lsn import format_lsn
from frazil.model.records.rejected_record import RejectReason
from frazil.model.schema.table_layout import CDC_LAYOUT, TableLayout
from frazil.model.source_table import SourceColumn, SourceTable, TableBegin
from frazil.sources.change_schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.schema.types import Default, Type

# Not the first one: the position of a copy of an empty database is right before its log begins.
_FIRST_POSITION = 0x10
# About what Postgres needs for a commit and for a row. A commit is longer than one byte, so that
# nothing is at the position right before the one after it, where copies are.
_COMMIT_BYTES = 32
ROW_BYTES = 64

Key: TypeAlias = "tuple[object, ...]"
Row: TypeAlias = "Mapping[int, object]"


@dataclass(frozen=True, slots=True)
class InsertRow:
    """A new row; columns that are not named are null."""

    table: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """Other values for the row with this key; ``unsent`` columns stay, and are not sent again."""

    table: str
    key: Key
    values: Mapping[str, object]
    unsent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """The row with this key goes."""

    table: str
    key: Key


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """All rows of these tables go."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spoil:
    """A change that cannot be read: a reader gets this error instead of the table's rows."""

    table: str
    error: FrazilError


@dataclass(frozen=True, slots=True)
class RejectRecord:
    """A record that is no row: a reader rejects it with this payload and goes on."""

    table: str
    payload: bytes
    reason: RejectReason = RejectReason.INVALID


Change: TypeAlias = InsertRow | UpdateRow | DeleteRow | TruncateTable | Spoil | RejectRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRow:
    """What one change did to one row, and the table's shape then."""

    table: SourceTable
    ordinal: int
    operation: Operation
    values: Row
    unchanged: tuple[int, ...] = ()
    previous_key: Key | None = None
    error: FrazilError | None = None
    rejected: RejectRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Rows of one commit; its position is where its commit begins."""

    begins: int
    ends: int
    committed_at: datetime
    rows: tuple[LoggedRow, ...]


@dataclass(frozen=True, slots=True)
class InMemoryTable:
    """A table and its rows by key, or by their number where there is no key."""

    table: SourceTable
    rows: Mapping[Key, Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """Everything as of one moment; ``begins`` is where the log begins that is still kept."""

    identity: str
    generation: int
    tables: Mapping[str, InMemoryTable]
    log: tuple[Transaction, ...]
    begins: int
    ends: int


class InMemoryDatabase:
    """Tables that tests write to, and the log of what they wrote.

    The state is one frozen value that is replaced as one unit: a reader never sees half of a
    transaction, and a change that is refused has not happened.
    """

    def __init__(self, clock: Clock | None = None, *, begins: TableBegin = TableBegin.COPY) -> None:
        self._clock = clock or SystemClock()
        self._begins = begins
        self._lock = Lock()
        self._made = 0
        self._state = DatabaseState(
            identity=self._new_identity("database"),
            generation=1,
            tables={},
            log=(),
            begins=_FIRST_POSITION,
            ends=_FIRST_POSITION,
        )

    @property
    def state(self) -> DatabaseState:
        """Everything as it is now."""
        return self._state

    def contents(self, table: str) -> list[dict[str, object]]:
        """The rows that are in this table, by the names of their columns."""
        found = self._state.tables[table]
        names = {each.number: each.name for each in found.table.columns}
        return [{names[number]: row[number] for number in names} for row in found.rows.values()]

    def transact(self, *changes: Change) -> str:
        """Make these changes, or none of them; returns the end of the log."""

        def commit(state: DatabaseState) -> DatabaseState:
            draft = _Draft(state.tables)
            for change in changes:
                draft.apply(change)
            size = _COMMIT_BYTES + ROW_BYTES * len(draft.logged)
            transaction = Transaction(
                begins=state.ends,
                ends=state.ends + size,
                committed_at=self._clock.now(),
                rows=tuple(draft.logged),
            )
            log = (*state.log, transaction)
            return replace(state, tables=draft.tables(), log=log, ends=transaction.ends)

        return format_lsn(self._become(commit).ends)

    def add_table(
        self,
        name: str,
        columns: Mapping[str, Type],
        key: Sequence[str] = (),
        *,
        required: Collection[str] = (),
        layout: TableLayout = CDC_LAYOUT,
    ) -> None:
        """Create a table; its columns are numbered from 1."""
        numbered = tuple(
            SourceColumn(number=number, name=each, type=type_, required=each in required)
            for number, (each, type_) in enumerate(columns.items(), start=1)
        )
        table = SourceTable(
            name=name,
            identity=self._new_identity("table"),
            shape=_shape(numbered),
            columns=numbered,
            key=tuple(list(columns).index(each) + 1 for each in key),
            highest_number=len(numbered),
            layout=layout,
            begins=self._begins,
        )

        def add(state: DatabaseState) -> DatabaseState:
            if name in state.tables:
                message = f"there is a table {name} already"
                raise ValueError(message)
            return _with_table(state, InMemoryTable(table, {}))

        self._become(add)

    def drop_table(self, name: str) -> None:
        """Remove a table; one that is added under its name is another one."""

        def drop(state: DatabaseState) -> DatabaseState:
            left = {each: found for each, found in state.tables.items() if each != name}
            if len(left) == len(state.tables):
                raise KeyError(name)
            return replace(state, tables=left)

        self._become(drop)

    def add_column(
        self,
        table: str,
        name: str,
        type_: Type,
        default: Default | None = None,
        *,
        rewrote: bool = False,
    ) -> None:
        """Add a column; rows that are there show the default, and no change is logged for them."""

        def add(found: InMemoryTable) -> InMemoryTable:
            number = found.table.highest_number + 1
            new = SourceColumn(
                number=number, name=name, type=type_, default=default, rewrote=rewrote
            )
            shown = default_value(new)
            rows = {key: {**row, number: shown} for key, row in found.rows.items()}
            wider = replace(found.table, highest_number=number)
            return InMemoryTable(_with_columns(wider, (*wider.columns, new)), rows)

        self._alter(table, add)

    def drop_column(self, table: str, name: str) -> None:
        """Remove a column that is not in the key; its number is not given again."""

        def drop(found: InMemoryTable) -> InMemoryTable:
            gone = numbered(found.table, name).number
            if gone in found.table.key:
                message = f"{name} is in the key of {table}"
                raise ValueError(message)
            columns = tuple(each for each in found.table.columns if each.number != gone)
            rows = {
                key: {number: value for number, value in row.items() if number != gone}
                for key, row in found.rows.items()
            }
            return InMemoryTable(_with_columns(found.table, columns), rows)

        self._alter(table, drop)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        """Another name for a column; its number stays."""
        self._alter(table, lambda found: _with_column(found, name, new_name=new_name))

    def widen(self, table: str, name: str, type_: Type) -> None:
        """A type for a column that can hold all its values."""
        self._alter(table, lambda found: _with_column(found, name, type_=type_))

    def forget(self, position: int) -> None:
        """Drop from the log what is before this position."""

        def shorten(state: DatabaseState) -> DatabaseState:
            log = tuple(each for each in state.log if each.begins >= position)
            return replace(state, log=log, begins=max(state.begins, position))

        self._become(shorten)

    def lose_log(self) -> None:
        """Forget everything that the log holds, acknowledged or not."""
        self.forget(self._state.ends)

    def fail_over(self) -> None:
        """Go on elsewhere, with nothing lost."""
        self._become(lambda state: replace(state, generation=state.generation + 1))

    def replace(self) -> None:
        """Become another database with the same tables and rows, whose log begins again."""
        identity = self._new_identity("database")

        def restart_at(state: DatabaseState) -> DatabaseState:
            begins = _FIRST_POSITION
            return replace(state, identity=identity, log=(), begins=begins, ends=begins)

        self._become(restart_at)

    def _new_identity(self, what: str) -> str:
        self._made += 1
        return f"{what} {self._made}"

    def _alter(self, table: str, change: Callable[[InMemoryTable], InMemoryTable]) -> None:
        self._become(lambda state: _with_table(state, change(state.tables[table])))

    def _become(self, change: Callable[[DatabaseState], DatabaseState]) -> DatabaseState:
        # Several threads may write, and one of them acknowledges.
        with self._lock:
            self._state = change(self._state)
            return self._state


def numbered(table: SourceTable, name: str) -> SourceColumn:
    """The column with this name; KeyError for any other."""
    found = next((each for each in table.columns if each.name == name), None)
    if found is None:
        raise KeyError(name)
    return found


def default_value(column: SourceColumn) -> object:
    """What rows older than this column show in it; None if it has no default."""
    if column.default is None:
        return None
    return pa.scalar(column.default).cast(arrow_type(column.type)).as_py()


class _Draft:
    """A transaction that is being made: the rows as it leaves them, and what it logs of them."""

    def __init__(self, tables: Mapping[str, InMemoryTable]) -> None:
        self.logged: list[LoggedRow] = []
        self._before = tables
        self._rows: dict[str, dict[Key, Row]] = {}
        self._ordinals: Counter[str] = Counter()

    def tables(self) -> Mapping[str, InMemoryTable]:
        """All tables as the transaction leaves them."""
        changed = {
            name: replace(self._before[name], rows=rows) for name, rows in self._rows.items()
        }
        return {**self._before, **changed}

    def apply(self, change: Change) -> None:
        match change:
            case InsertRow(table, values):
                empty = {each.number: None for each in self._table(table).columns}
                row = {**empty, **self._stored(table, values)}
                self._put(table, row)
                self._log(table, Operation.INSERT, row)
            case UpdateRow():
                self._update(change)
            case DeleteRow(table, key):
                del self._open(table)[key]
                self._log(table, Operation.DELETE, self._key_alone(table, key))
            case TruncateTable(tables):
                for each in tables:
                    self._open(each).clear()
                    self._log(each, Operation.TRUNCATE, {})
            case Spoil(table, error):
                self._log(table, Operation.INSERT, {}, error=error)
            case RejectRecord(table):
                self._log(table, Operation.INSERT, {}, rejected=change)

    def _update(self, change: UpdateRow) -> None:
        name, table = change.table, self._table(change.table)
        unsent = tuple(numbered(table, each).number for each in change.unsent)
        stored = self._stored(name, change.values)
        if {*unsent} & {*stored, *table.key}:
            message = f"an update of {name} does not send what it changes, or its key"
            raise ValueError(message)
        row = {**self._open(name).pop(change.key), **stored}
        self._put(name, row)
        sent = {number: value for number, value in row.items() if number not in unsent}
        if _key_of(table, row) == change.key:
            self._log(name, Operation.UPDATE, sent, unchanged=unsent)
        else:
            old = change.key
            self._log(name, Operation.DELETE, self._key_alone(name, old))
            self._log(name, Operation.INSERT, sent, unchanged=unsent, previous_key=old)

    def _table(self, name: str) -> SourceTable:
        return self._before[name].table

    def _open(self, table: str) -> dict[Key, Row]:
        """The rows of a table, to be changed."""
        return self._rows.setdefault(table, dict(self._before[table].rows))

    def _put(self, name: str, row: Row) -> None:
        table, rows = self._table(name), self._open(name)
        # Rows without a key never go one by one, so that their number is the next key.
        key = _key_of(table, row) if table.key else (len(rows),)
        if key in rows or (table.key and None in key):
            message = f"a row of {name} has no key, or one that is taken"
            raise ValueError(message)
        rows[key] = row

    def _stored(self, name: str, values: Mapping[str, object]) -> dict[int, object]:
        """Values as their columns hold them: what does not fit is refused here, not by readers."""
        columns = {numbered(self._table(name), each): value for each, value in values.items()}
        return {
            column.number: pa.scalar(value, arrow_type(column.type)).as_py()
            for column, value in columns.items()
        }

    def _key_alone(self, name: str, key: Key) -> Row:
        return dict(zip(self._table(name).key, key, strict=True))

    def _log(
        self,
        name: str,
        operation: Operation,
        values: Row,
        *,
        unchanged: tuple[int, ...] = (),
        previous_key: Key | None = None,
        error: FrazilError | None = None,
        rejected: RejectRecord | None = None,
    ) -> None:
        self._ordinals[name] += 1
        logged = LoggedRow(
            table=self._table(name),
            ordinal=self._ordinals[name],
            operation=operation,
            values=values,
            unchanged=unchanged,
            previous_key=previous_key,
            error=error,
            rejected=rejected,
        )
        self.logged.append(logged)


def _key_of(table: SourceTable, row: Row) -> Key:
    return tuple(row[number] for number in table.key)


def _shape(columns: tuple[SourceColumn, ...]) -> str:
    return ", ".join(f"{each.number} {each.name} {each.type}" for each in columns)


def _with_table(state: DatabaseState, table: InMemoryTable) -> DatabaseState:
    tables = {**state.tables, table.table.name: table}
    return replace(state, tables=tables)


def _with_columns(table: SourceTable, columns: tuple[SourceColumn, ...]) -> SourceTable:
    if len({each.name for each in columns}) < len(columns):
        message = f"two columns of {table.name} would have one name"
        raise ValueError(message)
    return replace(table, columns=columns, shape=_shape(columns))


def _with_column(
    found: InMemoryTable, name: str, *, new_name: str | None = None, type_: Type | None = None
) -> InMemoryTable:
    old = numbered(found.table, name)
    new = replace(old, name=new_name or old.name, type=type_ or old.type)
    columns = tuple(new if each is old else each for each in found.table.columns)
    return replace(found, table=_with_columns(found.table, columns))
