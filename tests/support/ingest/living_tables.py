"""Tables that are written to all the time, by writers who remember what they committed.

Every change has a number of its own in its table, so that a changelog can be compared with the list
of what was done: nothing missing, nothing twice, nothing in another order.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import psycopg

from tests.support.ingest.sequences import parse_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.postgres.access import Database

Key = tuple[Any, ...]
# The operation, the key, and the number of the change; a delete has no number of its own.
Done = tuple[str, Key | None, int | None]
State = dict[Key, int]

# Beyond what a page can hold, and stored outside of it: an update leaves it out.
BIG = 3000
SCHEMA = (
    "create table account (id int primary key, version bigint, big text)",
    "alter table account alter big set storage external",
    "create table item (a int, b text, version bigint, note text, primary key (a, b))",
    "create table event (version bigint, note text)",
    "create table scratch (id int primary key, version bigint)",
    "create table tally (id int primary key, version bigint)",
)
KEYS = {"account": ("id",), "item": ("a", "b"), "event": (), "scratch": ("id",), "tally": ("id",)}


@dataclass
class LivingTable:
    """One table: what was committed to it, in order, and what it holds after that."""

    name: str
    key: tuple[str, ...]
    done: list[Done] = field(default_factory=list)
    state: State = field(default_factory=dict)
    version: int = 0

    def apply(self, changes: Sequence[Done]) -> None:
        """These were committed."""
        self.done.extend(changes)
        for each in changes:
            replay(self.state, each)


def replay(state: State, change: Done) -> None:
    """One change in a dictionary; rows without a key are distinguished by their numbers."""
    operation, key, version = change
    if operation == "TRUNCATE":
        state.clear()
    elif operation == "DELETE":
        assert key is not None
        del state[key]
    else:
        assert version is not None
        state[key or (version,)] = version


class Writer(threading.Thread):
    """Commits, rolls back and begins again until stopped; the only one to use its tables."""

    def __init__(self, dsn: str, tables: Sequence[LivingTable], *, seed: int, pause: float) -> None:
        super().__init__(name=f"writer {seed}", daemon=True)
        self._dsn = dsn
        self._tables = list(tables)
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._pause = pause
        self._end = threading.Event()
        self.error: BaseException | None = None

    def fill(self, rows: int) -> None:
        """Rows that are there before anyone reads."""
        with psycopg.connect(self._dsn) as connection:
            for table in self._tables:
                changes = [self._insert(connection, table, {}) for _ in range(rows)]
                connection.commit()
                table.apply([change for each in changes for change in each])

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn) as connection:
                while not self._end.wait(self._random.uniform(0, 2 * self._pause)):
                    self._transact(connection)
        except BaseException as error:  # noqa: BLE001 - reported to the test
            self.error = error

    def finish(self) -> None:
        """No more changes."""
        self._end.set()
        self.join(120)
        assert not self.is_alive()
        assert self.error is None, self.error

    def _transact(self, connection: psycopg.Connection) -> None:
        """Some changes of several tables; now and then they come to nothing, or part of them."""
        pending: dict[str, list[Done]] = {each.name: [] for each in self._tables}
        states = {each.name: dict(each.state) for each in self._tables}
        for _ in range(self._random.choice((1, 1, 2, 5, 12))):
            table = self._random.choice(self._tables)
            before = dict(states[table.name])
            connection.execute("savepoint here")
            changes = list(self._change(connection, table, states[table.name]))
            if self._random.random() < 0.1:
                connection.execute("rollback to savepoint here")
                states[table.name] = before
            else:
                pending[table.name] += changes
        if self._random.random() < 0.1:
            connection.rollback()
            return
        connection.commit()
        for table in self._tables:
            table.apply(pending[table.name])

    def _change(
        self, connection: psycopg.Connection, table: LivingTable, state: State
    ) -> Iterator[Done]:
        chance = self._random.random()
        if table.name == "event" or not state or chance < 0.4:
            changes = self._insert(connection, table, state)
        elif table.name == "scratch" and chance > 0.97:
            connection.execute("truncate scratch restart identity")
            changes = [("TRUNCATE", None, None)]
        else:
            changes = self._touch(connection, table, self._random.choice(sorted(state)), chance)
        for each in changes:
            replay(state, each)
            yield each

    def _touch(
        self, connection: psycopg.Connection, table: LivingTable, key: Key, chance: float
    ) -> list[Done]:
        """An update, one of the key perhaps, or a delete."""
        where = " and ".join(f"{name} = %s" for name in table.key)
        if chance > 0.85:
            connection.execute(f"delete from {table.name} where {where}".encode(), key)
            return [("DELETE", key, None)]
        table.version += 1
        version = table.version
        if chance > 0.7:
            # A new key; what lies outside of the row goes with it unsent.
            new = self._new_key(table)
            sets = ", ".join(f"{name} = %s" for name in table.key)
            statement = f"update {table.name} set {sets}, version = %s where {where}"
            connection.execute(statement.encode(), (*new, version, *key))
            return [("DELETE", key, None), ("INSERT", new, version)]
        big = ", big = %s" if table.name == "account" and chance < 0.5 else ""
        values = (self._text(BIG),) if big else ()
        statement = f"update {table.name} set version = %s{big} where {where}"
        connection.execute(statement.encode(), (version, *values, *key))
        return [("UPDATE", key, version)]

    def _insert(
        self, connection: psycopg.Connection, table: LivingTable, _state: State
    ) -> list[Done]:
        table.version += 1
        key, version = self._new_key(table), table.version
        match table.name:
            case "account":
                values: tuple[object, ...] = (*key, version, self._text(BIG))
            case "item" | "event":
                values = (*key, version, self._text(20))
            case _:
                values = (*key, version)
        marks = ", ".join(["%s"] * len(values))
        connection.execute(f"insert into {table.name} values ({marks})".encode(), values)
        return [("INSERT", key or None, version)]

    def _new_key(self, table: LivingTable) -> Key:
        # As new as its change; small numbers, so that both halves of a pair repeat.
        match table.name:
            case "event":
                return ()
            case "item":
                return (table.version % 7, f"k{table.version}")
            case _:
                return (table.version,)

    def _text(self, length: int) -> str:
        return f"{self._random.getrandbits(4 * length):x}"


@dataclass
class LivingDatabase:
    """All tables and their writers."""

    tables: dict[str, LivingTable]
    writers: tuple[Writer, ...]

    @classmethod
    def create(cls, database: Database, *, seed: int, rows: int, pause: float) -> Self:
        """The tables with rows in them; no one writes yet."""
        database.run(*SCHEMA)
        tables = {name: LivingTable(name, key) for name, key in KEYS.items()}
        dsn = database.dsn.value
        # Two of them: their transactions overlap, and commit in another order than they began.
        writers = (
            Writer(
                dsn, [tables["account"], tables["item"], tables["event"]], seed=seed, pause=pause
            ),
            Writer(dsn, [tables["scratch"], tables["tally"]], seed=seed + 1, pause=pause),
        )
        for each in writers:
            each.fill(rows)
        return cls(tables, writers)

    def __enter__(self) -> Self:
        for each in self.writers:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.writers:
            each.finish()


def check_changelog(rows: Sequence[dict[str, Any]], table: LivingTable) -> None:
    """A changelog has everything that was committed, from its copy on, once and in order."""
    epochs: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        epochs.setdefault(parse_sequence(row["cdc_sequence_number"]).epoch, []).append(row)
    numbers = [row["cdc_sequence_number"] for row in rows]
    # Rows of a copy share the number of their snapshot; they are distinguished by their keys below.
    streamed = [row["cdc_sequence_number"] for row in rows if row["cdc_operation"] != "READ"]
    assert len(set(streamed)) == len(streamed), f"{table.name}: a change is there twice"
    assert numbers == sorted(numbers)
    newest = max(epochs)
    for epoch, found in epochs.items():
        _check_epoch(found, table, is_newest=epoch == newest)


def _check_epoch(rows: Sequence[dict[str, Any]], table: LivingTable, *, is_newest: bool) -> None:
    copied: State = {}
    changes: list[Done] = []
    opens = parse_sequence(rows[0]["cdc_sequence_number"])
    for row in rows:
        operation, version = row["cdc_operation"], row["version"]
        key = tuple(row[name] for name in table.key)
        is_opening = parse_sequence(row["cdc_sequence_number"]).position == opens.position
        if operation == "READ":
            assert (key or (version,)) not in copied, f"{table.name}: a row was copied twice"
            copied[key or (version,)] = version
        elif operation == "TRUNCATE":
            if not (is_opening and row is rows[0]):
                changes.append(("TRUNCATE", None, None))
        else:
            changes.append((operation, key or None, version))
    begin = len(table.done) - len(changes) if is_newest else _find(table.done, copied, changes)
    assert begin >= 0, f"{table.name}: more changes than were made"
    state: State = {}
    for each in table.done[:begin]:
        replay(state, each)
    expected = table.done[begin : begin + len(changes)]
    assert changes == expected, f"{table.name}: {_first_difference(changes, expected)}"
    assert copied == state, f"{table.name}: the copy is not what was there before the first change"


def _find(done: Sequence[Done], copied: State, changes: Sequence[Done]) -> int:
    """Where in the history an epoch begins that another one followed."""
    state: State = {}
    for index in range(len(done) + 1):
        same = len(state) == len(copied) and list(done[index : index + len(changes)]) == changes
        if same and state == copied:
            return index
        if index < len(done):
            replay(state, done[index])
    return -1


def _first_difference(found: Sequence[Done], expected: Sequence[Done]) -> str:
    pairs = zip(found, expected, strict=False)
    for index, (left, right) in enumerate(pairs):
        if left != right:
            return f"change {index} of {len(expected)} is {left}, and was {right}"
    return f"{len(found)} changes, and there were {len(expected)}"
