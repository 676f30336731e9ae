"""Histories of a source and of the pipeline that captures it, written by chance.

A step says what to do in general terms, so that every list of steps is a history; the player makes
sense of each from what is there, and knows itself what the tables must hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import strategies as st

from frazil.model.schema.types import Primitive
from frazil.sources.protocol import Limit
from frazil.testing.contract.replay import CaptureUnderTest, in_one_order
from frazil.testing.in_memory_database import DeleteRow, InsertRow, TruncateTable, UpdateRow

if TYPE_CHECKING:
    from frazil.sources.protocol import Batch
    from frazil.testing.contract.under_test import AlterableSource
    from frazil.testing.in_memory_database import Change

# Two that are written together, and one without a key.
TABLES = ("shop.orders", "shop.items", "shop.visits")
_KEYLESS = TABLES[2]
_COLUMNS = {"id": Primitive.LONG, "amount": Primitive.INT, "note": Primitive.STRING}
_LARGEST_INT = (1 << 31) - 1


class Verb(Enum):
    INSERT = auto()
    UPDATE = auto()
    DELETE = auto()
    MOVE = auto()
    TRUNCATE = auto()


@dataclass(frozen=True)
class Action:
    """Something with a row of a table; ``partial`` leaves out what it does not change."""

    table: str
    verb: Verb
    number: int
    other: int
    amount: int
    partial: bool


@dataclass(frozen=True)
class WriteRows:
    actions: list[Action]


class Fate(Enum):
    """What becomes of a batch."""

    COMMITTED = auto()
    DIED_BEFORE_ANY_COMMIT = auto()
    DIED_BETWEEN_COMMITS = auto()
    DIED_BEFORE_THE_LEDGER = auto()
    DIED_BEFORE_THE_ACKNOWLEDGEMENT = auto()


@dataclass(frozen=True)
class Pull:
    rows: int
    fate: Fate


@dataclass(frozen=True)
class HoldOrRelease:
    table: str


@dataclass(frozen=True)
class CopyTables:
    """Copy tables; ``meanwhile`` is written between the plan and the commit."""

    tables: frozenset[str]
    meanwhile: list[Action]


class Alteration(Enum):
    ADD = auto()
    ADD_WITH_DEFAULT = auto()
    DROP = auto()
    RENAME = auto()
    WIDEN = auto()


@dataclass(frozen=True)
class Alter:
    table: str
    alteration: Alteration


@dataclass(frozen=True)
class Recreate:
    table: str


Step: TypeAlias = WriteRows | Pull | HoldOrRelease | CopyTables | Alter | Recreate

_tables = st.sampled_from(TABLES)
_numbers = st.integers(0, 4)
_actions = st.builds(
    Action,
    table=_tables,
    # More than one of a kind weighs more.
    verb=st.sampled_from([Verb.INSERT, *Verb, Verb.UPDATE, Verb.MOVE]),
    number=_numbers,
    other=_numbers,
    amount=st.integers(0, 99),
    partial=st.booleans(),
)
_writes = st.builds(WriteRows, st.lists(_actions, min_size=1, max_size=6))
_pulls = st.builds(Pull, rows=st.integers(1, 12), fate=st.sampled_from(Fate))
_rest = st.one_of(
    st.builds(HoldOrRelease, _tables),
    st.builds(
        CopyTables, st.frozensets(_tables, min_size=1), meanwhile=st.lists(_actions, max_size=3)
    ),
    st.builds(Alter, _tables, st.sampled_from(Alteration)),
    st.builds(Recreate, _tables),
)
histories = st.lists(st.one_of(_writes, _writes, _pulls, _rest), max_size=30)


def play(subject: AlterableSource, history: list[Step]) -> None:
    """Live through a history; in the end everything that was written has been captured."""
    player = _Player(subject)
    for step in history:
        player.do(step)
    player.finish()


@dataclass
class _Table:
    """What a table must hold, by the names of its columns."""

    columns: dict[str, Primitive]
    key: tuple[str, ...]
    rows: dict[object, dict[str, object]] = field(default_factory=dict)
    added: int = 0

    @property
    def amount(self) -> str:
        """The name that the column of amounts has now."""
        return next(name for name in self.columns if name.startswith("amount"))


class _Player:
    def __init__(self, subject: AlterableSource) -> None:
        self.subject = subject
        self.tables: dict[str, _Table] = {}
        for name in TABLES:
            self._create(name)
        self.capture = CaptureUnderTest(subject)
        self.capture.begin(*TABLES)

    def do(self, step: Step) -> None:
        match step:
            case WriteRows(actions):
                self._write(actions)
            case Pull():
                self._pull(step)
            case HoldOrRelease(table):
                self.capture.paused ^= {table}
            case CopyTables():
                self._copy(step)
            case Alter():
                self._alter(step)
            case Recreate(table):
                self.subject.drop_table(table)
                self._create(table)

    def finish(self) -> None:
        self.capture.paused.clear()
        self.capture.catch_up()
        self.capture.copy(*self.capture.failures, *self.capture.unknown_tables())
        self.capture.catch_up()
        self.capture.expect_the_truth()
        for name, table in self.tables.items():
            found = in_one_order(self.subject.contents(name))
            assert found == in_one_order(table.rows.values())

    def _create(self, name: str) -> None:
        key = () if name == _KEYLESS else ("id",)
        self.subject.add_table(name, _COLUMNS, key)
        self.tables[name] = _Table(dict(_COLUMNS), key)

    def _write(self, actions: list[Action]) -> None:
        changes: list[Change] = [self._change(each) for each in actions]
        if changes:
            self.subject.transact(*changes)

    def _change(self, action: Action) -> Change:
        """What an action means for the rows that are there."""
        table, rows = self.tables[action.table], self.tables[action.table].rows
        if action.verb is Verb.TRUNCATE:
            rows.clear()
            return TruncateTable((action.table,))
        if action.number not in rows or not table.key:
            return self._insert(action)
        if action.verb is Verb.DELETE:
            del rows[action.number]
            return DeleteRow(action.table, (action.number,))
        row = rows.pop(action.number)
        values: dict[str, object] = {table.amount: self._amount(table, action)}
        if action.verb is Verb.MOVE and action.other not in rows:
            values["id"] = action.other
        if not action.partial:
            values["note"] = None if action.amount % 2 else f"note {action.amount}"
        row = {**row, **values}
        rows[row["id"]] = row
        unsent = ("note",) if action.partial else ()
        return UpdateRow(action.table, (action.number,), values, unsent=unsent)

    def _insert(self, action: Action) -> InsertRow:
        table = self.tables[action.table]
        values: dict[str, object] = {
            "id": action.number,
            table.amount: self._amount(table, action),
            "note": "n" * action.amount,
        }
        row = {**dict.fromkeys(table.columns), **values}
        table.rows[action.number if table.key else len(table.rows)] = row
        return InsertRow(action.table, values)

    @staticmethod
    def _amount(table: _Table, action: Action) -> int:
        # Once the wider type is there, it is used.
        is_wide = table.columns[table.amount] is Primitive.LONG
        return action.amount + (_LARGEST_INT if is_wide else 0)

    def _pull(self, pull: Pull) -> None:
        batch = self.capture.next_batch(Limit(rows=pull.rows, bytes=1 << 20))
        if batch is not None:
            self._meet(batch, pull.fate)

    def _meet(self, batch: Batch, fate: Fate) -> None:
        names = [part.table.name for part in batch.parts]
        match fate:
            case Fate.COMMITTED:
                self.capture.commit(batch)
                return
            case Fate.DIED_BEFORE_ANY_COMMIT:
                self.capture.commit(batch, only=())
            case Fate.DIED_BETWEEN_COMMITS:
                self.capture.commit(batch, only=names[:1])
            case Fate.DIED_BEFORE_THE_LEDGER:
                self.capture.commit(batch, only=names)
            case Fate.DIED_BEFORE_THE_ACKNOWLEDGEMENT:
                self.capture.commit(batch, acknowledge=False)
        self.capture.restart()

    def _copy(self, copy: CopyTables) -> None:
        batch = self.capture.source.plan_copy(copy.tables)
        assert batch is not None
        self._write(copy.meanwhile)
        self.capture.commit(batch)
        self.capture.source.plan_copy(())

    def _alter(self, alter: Alter) -> None:
        name, table = alter.table, self.tables[alter.table]
        match alter.alteration:
            case Alteration.ADD | Alteration.ADD_WITH_DEFAULT as which:
                table.added += 1
                default = 7 if which is Alteration.ADD_WITH_DEFAULT else None
                column = f"extra {table.added}"
                self.subject.add_column(name, column, Primitive.LONG, default)
                table.columns[column] = Primitive.LONG
                for row in table.rows.values():
                    row[column] = default
            case Alteration.DROP:
                extra = [each for each in table.columns if each.startswith("extra")]
                for column in extra[:1]:
                    self.subject.drop_column(name, column)
                    del table.columns[column]
                    for row in table.rows.values():
                        del row[column]
            case Alteration.RENAME:
                self._rename_amount(name, table)
            case Alteration.WIDEN:
                self.subject.widen(name, table.amount, Primitive.LONG)
                table.columns[table.amount] = Primitive.LONG

    def _rename_amount(self, name: str, table: _Table) -> None:
        old = table.amount
        new = "amount" if old != "amount" else "amount of it"
        self.subject.rename_column(name, old, new)
        table.columns[new] = table.columns.pop(old)
        for row in table.rows.values():
            row[new] = row.pop(old)
