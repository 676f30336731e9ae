"""What a claimed batch needs of its tables: columns that are new, found before a row is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from frazil.sources.buffer.event_queries import has_others_query, keys_query, others_query
from frazil.sources.buffer.shape import SeenColumn, grow_shape

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.config import TableSettings
    from frazil.sources.buffer.event_queries import ClaimedEvents
    from frazil.sources.buffer.shape import GrownShape, HistoryColumns, TableShape

_DOING = "looking for columns"


class _Answer(NamedTuple):
    value: bool


class _KeyNames(NamedTuple):
    names: list[str] | None


def learn_shape(
    session: Session,
    events: ClaimedEvents,
    known: TableShape,
    history: HistoryColumns,
    settings: TableSettings,
) -> GrownShape:
    """The shape that holds these events.

    Of a table whose columns are known, all documents are searched for other names, which is much
    quicker than to list what they have; only if there are some are those listed.
    """
    grown = grow_shape(known, history, (), settings)
    names = grown.shape.names
    query = has_others_query(events, names)
    (has_others,) = session.load(_Answer, query, doing=_DOING)
    seen: list[SeenColumn] = []
    if has_others.value:
        seen = session.load(SeenColumn, others_query(events, names), doing=_DOING)
    is_new = not known.columns
    key = _learn_key(session, events) if is_new and not (settings.key or history.key) else ()
    return grow_shape(known, history, seen, settings, key)


def _learn_key(session: Session, events: ClaimedEvents) -> tuple[str, ...]:
    """The key that all events name; none if they differ, or say nothing."""
    found = session.load(_KeyNames, keys_query(events), doing=_DOING)
    keys = [tuple(each.names) for each in found if each.names]
    if len({frozenset(each) for each in keys}) != 1 or None in keys[0]:
        return ()
    return keys[0] if len(set(keys[0])) == len(keys[0]) else ()
