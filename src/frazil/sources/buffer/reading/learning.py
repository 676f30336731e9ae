"""What a claimed batch needs of its tables: columns that are new, found before a row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from frazil.errors import ConfigError, SchemaError
from frazil.sources.buffer.reading.event_queries import (
    has_others_query,
    keys_query,
    named_columns,
    others_query,
)
from frazil.sources.buffer.reading.shape import SeenColumn, decode_shape, grow_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.postgres.session import Session
    from frazil.config import TableSettings
    from frazil.errors import FrazilError
    from frazil.sources.buffer.claims import ClaimedTable
    from frazil.sources.buffer.reading.event_queries import EventChoice, NamedColumns
    from frazil.sources.buffer.reading.shape import GrownShape, HistoryColumns

_DOING = "looking for columns"


class _TableNumber(NamedTuple):
    table: int


class _Seen(NamedTuple):
    table: int
    name: str
    values: int
    booleans: int
    numbers: int
    integers: int


class _KeyNames(NamedTuple):
    table: int
    names: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningTable:
    """A table of a batch, and what is known of it before; ``shape`` as its changelog keeps it."""

    claimed: ClaimedTable
    shape: str
    history: HistoryColumns
    settings: TableSettings


def learn_shapes(
    session: Session, events: EventChoice, tables: Sequence[LearningTable]
) -> dict[str, GrownShape | FrazilError]:
    """The shape that holds these events, or why a table has none.

    Of tables whose columns are known, all documents are searched for other names, which is much
    quicker than to list what they have; only where there are some are those listed.
    """
    results: dict[str, GrownShape | FrazilError] = {}
    learners: list[_Learner] = []
    for each in tables:
        try:
            learners.append(_Learner(each))
        except (ConfigError, SchemaError) as error:
            results[each.claimed.table] = error
    if learners:
        _learn(session, events, learners)
    for learner in learners:
        try:
            results[learner.name] = learner.grow()
        except (ConfigError, SchemaError) as error:
            results[learner.name] = error
    return results


def _learn(session: Session, events: EventChoice, learners: Sequence[_Learner]) -> None:
    known = [each for each in learners if each.known.columns]
    searched = [each for each in learners if not each.known.columns]
    if known:
        query = has_others_query(events, [each.named for each in known])
        found = session.load(_TableNumber, query, doing=_DOING)
        searched += [known[each.table] for each in found]
    if searched:
        query = others_query(events, [each.named for each in searched])
        for seen in session.load(_Seen, query, doing=_DOING):
            searched[seen.table].seen.append(SeenColumn(*seen[1:]))
    keyless = [each for each in learners if each.needs_key]
    if keyless:
        query = keys_query(events, [each.named for each in keyless])
        for key in session.load(_KeyNames, query, doing=_DOING):
            keyless[key.table].keys.append(key.names)


class _Learner:
    """What is found out about one table."""

    def __init__(self, table: LearningTable) -> None:
        claimed = table.claimed
        self.name = claimed.table
        self.known = decode_shape(table.shape, table=claimed.table)
        self.named: NamedColumns = named_columns(
            claimed.source_id,
            claimed.schema,
            claimed.name,
            grow_shape(self.known, table.history, (), table.settings),
        )
        self.needs_key = not (self.known.columns or table.settings.key or table.history.key)
        self.seen: list[SeenColumn] = []
        self.keys: list[list[str] | None] = []
        self._table = table

    def grow(self) -> GrownShape:
        """The shape with all that was found."""
        table = self._table
        return grow_shape(self.known, table.history, self.seen, table.settings, self._key())

    def _key(self) -> tuple[str, ...]:
        """The key that all events name; none if they differ, or say nothing."""
        keys = [tuple(each) for each in self.keys if each]
        if len({frozenset(each) for each in keys}) != 1 or None in keys[0]:
            return ()
        return keys[0] if len(set(keys[0])) == len(keys[0]) else ()
