"""Everything a preflight checks, loaded in one view of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import (
    load_open_transactions,
    load_publication,
    load_relations,
    load_server,
    load_slot,
    load_tables,
)
from frazil.hooks import SystemClock
from frazil.model.postgres.facts import PostgresFacts
from frazil.sources.postgres.tables.selection import nearest_names, select_tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.postgres.session import Session
    from frazil.hooks import Clock

_CLOCK = SystemClock()


def load_facts(
    session: Session,
    *,
    slot: str,
    publication: str,
    include: Iterable[str],
    exclude: Iterable[str] = (),
    clock: Clock = _CLOCK,
) -> PostgresFacts:
    """The server, the slot, the publication, and the tables that the patterns choose."""
    with session.one_view():
        server = load_server(session, clock=clock)
        relations = load_relations(session)
        selection = select_tables(relations, include=include, exclude=exclude)
        names = [str(each.name) for each in relations]
        return PostgresFacts(
            server=server,
            slot=load_slot(session, slot),
            publication=load_publication(session, publication),
            tables=load_tables(session, selection.oids),
            unmatched=selection.unmatched,
            nearest=nearest_names(selection.unmatched, names),
            transactions=load_open_transactions(session),
        )
