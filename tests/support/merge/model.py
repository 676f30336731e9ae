"""The reference model of a mirror, in dictionaries, and the histories that lead there, as JSON.

Nothing here knows how merges are made: a history is a list of steps, and replaying it needs no more
than the order of its changes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.support.merge.values import Json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Key = tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source; its number stays when its name changes."""

    id: int
    name: str
    type: str
    default: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row of a changelog; ``unchanged`` are columns that the source did not send."""

    operation: str
    sequence: int
    values: tuple[tuple[int, Json], ...] = ()
    unchanged: tuple[int, ...] = ()
    previous: Key | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """One change of the source's schema; ``at`` is the index that a moved column gets."""

    how: str
    column: int
    name: str = ""
    type: str = ""
    default: Json = None
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A snapshot of the changelog, in so many files; its schema changes with it."""

    changes: tuple[Change, ...]
    alter: tuple[Alter, ...] = ()
    files: int = 1
    incomplete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Everything that is pending, in commits of about so many rows, each by 2**bits tasks."""

    max_rows: int = 0
    bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A merge that dies at a failpoint."""

    failpoint: str
    bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Another engine rewrites files of a table."""

    table: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtake:
    """Another engine rewrites the mirror after a merge of it was planned."""

    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose:
    """Files of the key index vanish or are damaged, ``at`` a relative offset between 0 and 1."""

    what: str
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """An operator expires all snapshots of a table but those that are needed."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retain:
    """The changelog's owner removes everything that was merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The mirror becomes a table of format version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Respec:
    """An operator adds or removes partition fields of the mirror."""


Step = Append | Merge | Crash | Compact | Overtake | Lose | Expire | Retain | Upgrade | Respec

_STEPS: dict[str, type[Any]] = {
    each.__name__.lower(): each
    for each in (Append, Merge, Crash, Compact, Overtake, Lose, Expire, Retain, Upgrade, Respec)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One table from its beginning; ``partition_by`` has terms such as ``day({})`` and columns."""

    seed: int
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    format_version: int = 3
    partition_by: tuple[tuple[str, int], ...] = ()
    sort_by: tuple[tuple[str, int], ...] = ()
    deletes: str = "apply"
    order: str = "append"
    on_drop: str = "keep"
    sequence: str = "string"
    young_entries: int = 65_536
    max_runs: int = 8
    bucket_entries: int = 1 << 20
    row_group_rows: int = 131_072
    note: str = ""
    steps: tuple[Step, ...] = ()


def dump(history: History) -> str:
    """The history as a replay file, a line for each step and each change."""
    header = asdict(replace(history, steps=()))
    header.pop("steps")
    lines = ",\n".join(f"  {json.dumps(_document(step))}" for step in history.steps)
    body = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in header.items())
    return f'{{\n{body},\n "steps": [\n{lines}\n ]\n}}\n'


def load(text: str) -> History:
    """The history of a replay file."""
    document = _frozen(json.loads(text))
    columns = tuple(Column(**each) for each in document.pop("columns"))
    steps = tuple(_step(each) for each in document.pop("steps"))
    return History(**document, columns=columns, steps=steps)


def _document(step: Step) -> dict[str, Any]:
    named = {"do": type(step).__name__.lower(), **asdict(step)}
    if isinstance(step, Append):
        named["changes"] = [
            {name: each for name, each in asdict(change).items() if each not in ((), None)}
            for change in step.changes
        ]
    return named


def _step(document: dict[str, Any]) -> Step:
    kind = _STEPS[document.pop("do")]
    if kind is Append:
        document["changes"] = tuple(Change(**each) for each in document["changes"])
        document["alter"] = tuple(Alter(**each) for each in document["alter"])
    made: Step = kind(**document)
    return made


def _frozen(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _frozen(each) for name, each in document.items()}
    return tuple(map(_frozen, document)) if isinstance(document, list) else document


def altered(columns: tuple[Column, ...], steps: Iterable[Alter]) -> tuple[Column, ...]:
    """The columns after these changes of the schema."""
    for step in steps:
        rest = tuple(each for each in columns if each.id != step.column)
        if step.how == "add":
            columns = (*columns, Column(step.column, step.name, step.type, step.default))
        elif step.how == "drop":
            columns = rest
        elif step.how == "move":
            (moved,) = (each for each in columns if each.id == step.column)
            columns = (*rest[: step.at], moved, *rest[step.at :])
        else:
            columns = tuple(
                _changed(each, step) if each.id == step.column else each for each in columns
            )
    return columns


def _changed(column: Column, step: Alter) -> Column:
    return replace(column, name=step.name or column.name, type=step.type or column.type)


def canonical(key: Iterable[Json]) -> Key:
    """One form for each key: the two zeros of floating point are one number."""
    return tuple("0.0" if each == "-0.0" else each for each in key)


@dataclass(slots=True)
class Row:
    """A row of the mirror by the numbers of its columns."""

    values: dict[int, Json]
    sequence: int
    deleted: bool = False


@dataclass(slots=True)
class Replay:
    """The mirror as it must be after the commits replayed so far.

    ``columns`` are all that it has, ``live`` those that the source still has. ``gone`` are deleted
    keys, which a table with order per_key remembers.
    """

    history: History
    format_version: int
    columns: dict[int, Column] = field(default_factory=dict)
    live: tuple[Column, ...] = ()
    rows: dict[Key, Row] = field(default_factory=dict)
    gone: dict[Key, int] = field(default_factory=dict)
    truncated: int = -1
    # Rows that a DELETE of this commit took away: a row that moves finds its columns there.
    left: dict[Key, Row] = field(default_factory=dict)

    def commit(self, changes: Iterable[Change], columns: tuple[Column, ...]) -> None:
        """One commit of a merge: these changes, read with these columns."""
        self._follow(columns)
        self.left = {}
        for change in sorted(set(changes), key=lambda each: each.sequence):
            self._apply(change)

    @property
    def is_per_key(self) -> bool:
        """Whether rows keep their sequence, because changes may come late."""
        return self.history.order == "per_key"

    def key_of(self, values: Mapping[int, Json]) -> Key:
        """The key of a row."""
        return canonical(values[each] for each in self.history.key)

    def _follow(self, columns: tuple[Column, ...]) -> None:
        for each in columns:
            if each.id not in self.columns:
                # Tables of older versions keep no defaults.
                filled = each.default if self.format_version >= 3 else None
                for row in self.rows.values():
                    row.values[each.id] = filled
            self.columns[each.id] = each
        self.live = columns
        if self.history.on_drop == "drop":
            for lost in self.columns.keys() - {each.id for each in columns}:
                del self.columns[lost]
                for row in self.rows.values():
                    row.values.pop(lost)

    def _apply(self, change: Change) -> None:
        kind = change.operation[0].upper()
        if kind in "DT" and self.history.deletes == "ignore":
            return
        if kind == "T":
            self._truncate(change.sequence)
            return
        key = self.key_of(dict(change.values))
        if self.is_per_key and self._is_late(key, change.sequence):
            return
        if kind == "D":
            self._delete(key, change)
        else:
            self.rows[key] = Row(self._image(key, change), change.sequence)
            self.gone.pop(key, None)

    def _is_late(self, key: Key, sequence: int) -> bool:
        row = self.rows.get(key)
        known = max(-1 if row is None else row.sequence, self.gone.get(key, -1))
        return sequence <= known or sequence < self.truncated

    def _truncate(self, sequence: int) -> None:
        self.truncated = max(self.truncated, sequence)
        met = [key for key, row in self.rows.items() if row.sequence < sequence]
        self.left = {}
        for key in met:
            if self.history.deletes == "soft":
                self.rows[key].deleted = True
                self.rows[key].sequence = sequence
            else:
                del self.rows[key]

    def _delete(self, key: Key, change: Change) -> None:
        row = self.rows.get(key)
        if row is None or self.history.deletes == "apply":
            self.gone[key] = change.sequence
        if row is None:
            return
        if self.history.deletes == "apply":
            self.left[key] = self.rows.pop(key)
            return
        given = dict(change.values)
        row.values.update({each: given[each] for each in self.history.key})
        row.sequence, row.deleted = change.sequence, True

    def _image(self, key: Key, change: Change) -> dict[int, Json]:
        given = dict(change.values)
        values: dict[int, Json] = dict.fromkeys(self.columns)
        # A file that was written before the column came shows its default.
        values.update({each.id: given.get(each.id, each.default) for each in self.live})
        if change.unchanged:
            before = key if change.previous is None else canonical(change.previous)
            found = self.rows.get(before) or self.left[before]
            ids = values.keys() & set(change.unchanged) & {each.id for each in self.live}
            values.update({each: found.values[each] for each in ids})
        return values
