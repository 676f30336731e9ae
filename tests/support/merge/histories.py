"""Histories written by chance, the same for the same seed: a source, a changelog, and bad luck."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from tests.support.merge.model import (
    Alter,
    Append,
    Change,
    Column,
    Compact,
    Crash,
    Expire,
    History,
    Lose,
    Merge,
    Overtake,
    Respec,
    Retain,
    Upgrade,
    altered,
    canonical,
)
from tests.support.merge.values import DATA_TYPES, Json, draw, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.merge.model import Key, Step

# Every kind of key; with two format versions, partitioned or not, the first seeds have them all.
KEYS: dict[str, tuple[str, ...]] = {
    "int": ("int",),
    "long": ("long",),
    "text": ("string",),
    "uuid": ("uuid",),
    "decimal": ("decimal(9, 2)",),
    "timestamp": ("timestamp",),
    "timestamptz": ("timestamptz",),
    "date": ("date",),
    "binary": ("binary",),
    "boolean and other": ("boolean", "fixed[3]", "float"),
    "composite": ("string", "long", "date"),
    "double": ("double",),
}
SHAPES = len(KEYS) * 2 * 2

_NAMES = (
    *("amount", "note", "region", "created", "payload", "Total Amount", "ünï", "select", "a.b"),
    *("qty", "Code", "x", "value", "it's", "_sequence", "_task", "pos"),
)
_KEY_NAMES = ("id", "tenant", "Key Part")
_WIDER = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(12, 2)"}
_UPSERTS = ("INSERT", "insert", "I", "c", "READ", "r", "UPDATE", "u")
_DELETES = ("DELETE", "d", "Delete")
_TRUNCATES = ("TRUNCATE", "t")
# Iceberg's JSON cannot represent some of their values.
_FLOATING = frozenset({"float", "double"})
_DEFAULTABLE = frozenset(
    {"int", "long", "string", "boolean", "date", "double", "timestamp", "timestamptz", "uuid"}
    | {"decimal(9, 2)", "binary", "float", "fixed[3]"}
)
_BUCKETED = frozenset(
    {"int", "long", "string", "uuid", "decimal(9, 2)", "timestamp", "timestamptz", "date", "binary"}
)
_FAILPOINTS = ("merge.written", "index.written", "commit.planned", "commit.staged", "commit.landed")
_COMPACTIONS = ("all", "all", "deletes", "dangling", "positions", "manifests")
_LOSSES = ("head", "runs", "head-bit", "run-bit", "cache")
_LATEST = 1 << 40


def make_history(seed: int, *, length: int = 3) -> History:
    """A history of about so many merges."""
    return _Author(Random(seed), seed, length).write()  # noqa: S311 - repeatable on purpose


@dataclass(slots=True)
class _Source:
    """A table at the source, and the changes that it sends; live rows by key."""

    chance: Random
    key: tuple[int, ...]
    columns: tuple[Column, ...]
    keys: list[Key]
    partial: bool
    live: dict[Key, Key] = field(default_factory=dict)
    transactions: int = 0

    def transaction(self) -> list[Change]:
        """What one transaction did."""
        sent: list[Change] = []
        for _ in range(self.chance.choice((1, 1, 2, 3, 6))):
            sent += self._act()
        self.transactions += 1
        return [
            replace(each, sequence=self.transactions * 1_000 + at) for at, each in enumerate(sent)
        ]

    def copy(self) -> list[Change]:
        """Many rows at once, as an initial copy sends them."""
        self.transactions += 1
        keys = {canonical(each): each for each in self.keys[: self.chance.randint(1, 60)]}
        self.live |= keys
        return [
            replace(
                self._upsert(each, operation="READ"), sequence=self.transactions * 1_000 + number
            )
            for number, each in enumerate(keys.values())
        ]

    def _act(self) -> list[Change]:
        key = self._any_key()
        verb = self.chance.choices(
            ("upsert", "delete", "move", "truncate"), weights=(12, 4, 4, 0.4)
        )[0]
        if verb == "truncate":
            self.live.clear()
            return [Change(operation=self.chance.choice(_TRUNCATES), sequence=0)]
        if verb == "delete":
            self.live.pop(canonical(key), None)
            return [self._delete(key)]
        if verb == "move" and self.live:
            return self._move(self.chance.choice(list(self.live.values())), key)
        left_out = self._left_out() if canonical(key) in self.live else ()
        self.live[canonical(key)] = key
        return [self._upsert(key, unchanged=left_out)]

    def _move(self, old: Key, new: Key) -> list[Change]:
        sent = []
        if canonical(new) in self.live and canonical(new) != canonical(old):
            # The source would refuse two rows with one key.
            sent.append(self._delete(new))
        del self.live[canonical(old)]
        self.live[canonical(new)] = new
        moved = self._upsert(new, unchanged=self._left_out(), operation="INSERT")
        return [*sent, self._delete(old), replace(moved, previous=old)]

    def _any_key(self) -> Key:
        """The first ones more often, so that changes meet."""
        number = int(self.chance.expovariate(4 / len(self.keys)))
        return self.keys[min(number, len(self.keys) - 1)]

    def _others(self) -> list[Column]:
        return [each for each in self.columns if each.id not in self.key]

    def _left_out(self) -> tuple[int, ...]:
        if not self.partial or self.chance.random() < 0.5:
            return ()
        return tuple(each.id for each in self._others() if self.chance.random() < 0.4)

    def _delete(self, key: Key) -> Change:
        values: list[tuple[int, Json]] = list(zip(self.key, key, strict=True))
        if self.chance.random() < 0.2:
            values += [(each.id, self._value(each)) for each in self._others()]
        return Change(operation=self.chance.choice(_DELETES), sequence=0, values=tuple(values))

    def _upsert(
        self, key: Key, *, unchanged: Sequence[int] = (), operation: str | None = None
    ) -> Change:
        sent = [each for each in self._others() if each.id not in unchanged]
        pairs = (*zip(self.key, key, strict=True), *((each.id, self._value(each)) for each in sent))
        return Change(
            operation=operation or self.chance.choice(_UPSERTS),
            sequence=0,
            values=tuple(pairs),
            unchanged=tuple(unchanged),
        )

    def _value(self, column: Column) -> Json:
        if self.chance.random() < 0.15:
            return None
        return draw(self.chance, type_of(column.type))


@dataclass(slots=True)
class _Author:
    """Writes one history."""

    chance: Random
    seed: int
    length: int
    steps: list[Step] = field(default_factory=list)
    has_mirror: bool = False
    next_id: int = 0

    def write(self) -> History:
        """All of it."""
        shape = self._shape()
        source = self._source(shape)
        if shape.order == "per_key":
            _Late(self, shape, source).write()
        else:
            self._write_in_order(shape, source)
        return replace(shape, steps=tuple(self.steps))

    def _shape(self) -> History:
        chance, number = self.chance, self.seed % SHAPES
        kinds = tuple(KEYS.values())
        key = self._columns(_KEY_NAMES, kinds[number % len(kinds)])
        others = self._columns(
            chance.sample(_NAMES, chance.randint(2, 6)), chance.choices(DATA_TYPES, k=6)
        )
        columns = [*key, *others]
        chance.shuffle(columns)
        is_partitioned = number // (2 * len(kinds)) == 1
        order = chance.choices(("append", "per_key"), weights=(3, 1))[0]
        small = chance.random() < 0.7
        return History(
            seed=self.seed,
            columns=tuple(columns),
            key=tuple(each.id for each in key),
            format_version=2 + number // len(kinds) % 2,
            partition_by=self._partitions(columns) if is_partitioned else (),
            sort_by=self._sorting(others),
            deletes=chance.choices(("apply", "soft", "ignore"), weights=(6, 3, 1))[0],
            order=order,
            on_drop=chance.choice(("keep", "drop")),
            sequence=chance.choice(("string", "string", "long", "decimal(20, 0)", "timestamp")),
            young_entries=chance.choice((0, 3, 8)) if small else 65_536,
            max_runs=chance.choice((1, 2)) if small else 8,
            bucket_entries=chance.choice((4, 1 << 20)),
            row_group_rows=chance.choice((3, 131_072)),
        )

    def _columns(self, names: Sequence[str], types: Sequence[str]) -> list[Column]:
        made = [
            Column(self.next_id + at, name, type_)
            for at, (name, type_) in enumerate(zip(names, types, strict=False))
        ]
        self.next_id += len(made)
        return made

    def _partitions(self, columns: list[Column]) -> tuple[tuple[str, int], ...]:
        plain = [each for each in columns if each.name.isascii()]
        possible = [(term, each.id) for each in plain for term in _terms(each.type)]
        chosen = self.chance.sample(possible, min(len(possible), self.chance.choice((1, 1, 2))))
        # One column has one part in it.
        return tuple({column: (term, column) for term, column in chosen}.values())

    def _sorting(self, others: list[Column]) -> tuple[tuple[str, int], ...]:
        possible = [each for each in others if not each.type.startswith(("list", "map", "struct"))]
        if not possible or self.chance.random() < 0.7:
            return ()
        return ((self.chance.choice(("{}", "{} desc")), self.chance.choice(possible).id),)

    def _source(self, shape: History) -> _Source:
        types = {each.id: type_of(each.type) for each in shape.columns}
        number = self.chance.choice((3, 12, 40))
        keys = [tuple(draw(self.chance, types[each]) for each in shape.key) for _ in range(number)]
        partial = shape.order == "append"
        return _Source(self.chance, shape.key, shape.columns, keys, partial)

    def _write_in_order(self, shape: History, source: _Source) -> None:
        for number in range(self.length):
            is_last = number == self.length - 1
            for _ in range(self.chance.choice((1, 1, 2, 3))):
                may_wait = not is_last and self.chance.random() < 0.15
                self._append(shape, source, incomplete=may_wait)
            if is_last:
                # What came before may have had to wait for it.
                self._append(shape, source)
            self.meddle(shape)
            self.merge()

    def _append(self, shape: History, source: _Source, *, incomplete: bool = False) -> None:
        alter = self.alterations(shape, source)
        sent = source.copy() if not self.steps and self.chance.random() < 0.6 else []
        for _ in range(self.chance.choice((0, 1, 2, 4))):
            sent += source.transaction()
        repeated = [each for each in sent if self.chance.random() < 0.1]
        sent += repeated
        self.chance.shuffle(sent)
        self.steps.append(
            Append(
                changes=tuple(sent),
                alter=alter,
                files=self.chance.choice((1, 1, 2)),
                incomplete=incomplete,
            )
        )

    def alterations(self, shape: History, source: _Source) -> tuple[Alter, ...]:
        """What the source does to its schema now, if anything."""
        if not self.steps or self.chance.random() < 0.6:
            return ()
        made = []
        for _ in range(self.chance.choice((1, 1, 2))):
            step = self._alteration(shape, source)
            if step is not None:
                made.append(step)
                source.columns = altered(source.columns, [step])
        return tuple(made)

    def _alteration(self, shape: History, source: _Source) -> Alter | None:
        chance = self.chance
        column = chance.choice(source.columns)
        taken = {each.name.lower() for each in source.columns}
        free = [each for each in _NAMES if each.lower() not in taken]
        pinned = {number for _, number in (*shape.partition_by, *shape.sort_by)}
        match chance.choice(("add", "drop", "rename", "widen", "move")):
            case "add":
                return self._addition(shape, chance.choice(free))
            case "drop" if column.id not in {*shape.key, *pinned}:
                return Alter(how="drop", column=column.id)
            case "rename":
                # DuckDB aborts on partition fields that are named in other letters.
                plain = [each for each in free if each.isascii() or column.id not in pinned]
                return Alter(how="rename", column=column.id, name=chance.choice(plain))
            case "widen" if column.type in _WIDER:
                return Alter(how="widen", column=column.id, type=_WIDER[column.type])
            case "move":
                return Alter(how="move", column=column.id, at=chance.randrange(3))
            case _:
                return None

    def _addition(self, shape: History, name: str) -> Alter:
        type_ = self.chance.choice(DATA_TYPES)
        number = self.next_id
        self.next_id += 1
        default = None
        # Changes that arrive in any order: the older ones do not have it.
        if type_ in _DEFAULTABLE and shape.order == "append" and self.chance.random() < 0.5:
            default = "0.5" if type_ in _FLOATING else draw(self.chance, type_of(type_))
        return Alter(how="add", column=number, name=name, type=type_, default=default)

    def merge(self) -> None:
        """A merge, in one commit or in several, by one task or by several."""
        chance = self.chance
        if chance.random() < 0.2:
            self.steps.append(Crash(failpoint=chance.choice(_FAILPOINTS), bits=self._bits()))
        max_rows = chance.choice((0, 0, 0, 1, 10))
        self.steps.append(Merge(max_rows=max_rows, bits=self._bits()))
        self.has_mirror = True

    def _bits(self) -> int:
        return self.chance.choice((0, 0, 0, 1, 2))

    def meddle(self, shape: History) -> None:
        """What others do to the tables, if anything."""
        if not self.has_mirror or self.chance.random() < 0.35:
            return
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2))):
            others: list[Step] = [
                Compact(table="mirror", how=chance.choice(_COMPACTIONS)),
                Compact(table="changelog", how="all"),
                Overtake(how="all"),
                Lose(what=chance.choice(_LOSSES), at=chance.random()),
                Lose(what=chance.choice(_LOSSES), at=chance.random()),
                Lose(what=chance.choice(_LOSSES), at=chance.random()),
                Expire(table=chance.choice(("mirror", "changelog"))),
                Upgrade(),
                Respec(),
            ]
            if shape.order == "append":
                others.append(Retain())
            self.steps.append(chance.choice(others))


@dataclass(slots=True)
class _Late:
    """The changelog of a source whose changes come late, or twice."""

    author: _Author
    shape: History
    source: _Source
    waiting: list[Change] = field(default_factory=list)
    sent: list[Change] = field(default_factory=list)

    def write(self) -> None:
        """Everything is sent in the end."""
        for number in range(self.author.length):
            is_last = number == self.author.length - 1
            self._hear()
            self._append(all_of_it=is_last)
            self.author.meddle(self.shape)
            self.author.merge()

    def _hear(self) -> None:
        if not self.author.steps:
            self.waiting += self.source.copy()
        for _ in range(self.author.chance.choice((1, 3, 6))):
            self.waiting += self.source.transaction()

    def _append(self, *, all_of_it: bool) -> None:
        chance = self.author.chance
        alter = self.author.alterations(self.shape, self.source)
        now = [each for each in self.waiting if all_of_it or chance.random() < 0.6]
        self.waiting = [each for each in self.waiting if each not in now]
        again = [each for each in self.sent if chance.random() < 0.1]
        self.sent += now
        delivered = [self._as_of_now(each) for each in (*now, *again)]
        chance.shuffle(delivered)
        files = chance.choice((1, 2))
        self.author.steps.append(Append(changes=tuple(delivered), alter=alter, files=files))

    def _as_of_now(self, change: Change) -> Change:
        """A change as it is written today: with the columns that there are."""
        if change.operation[0].upper() == "T":
            return change
        given = dict(change.values)
        is_delete = change.operation[0].upper() == "D"
        columns = [each.id for each in self.source.columns if not is_delete or each.id in given]
        return replace(change, values=tuple((each, given.get(each)) for each in columns))


def _terms(type_: str) -> list[str]:
    """The partition expressions that a column of this type allows."""
    terms = ["bucket(3, {})"] if type_ in _BUCKETED else []
    if type_ in {"timestamp", "timestamptz"}:
        terms += ["day({})", "hour({})", "month({})"]
    if type_ == "date":
        terms += ["day({})", "year({})", "{}"]
    if type_ in {"string", "int", "long", "decimal(9, 2)", "binary"}:
        terms.append("truncate(2, {})")
    if type_ in {"string", "boolean", "int", "uuid", "decimal(9, 2)"}:
        terms += ["{}", "{}"]
    return terms
