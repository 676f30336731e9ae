"""Tables as the catalog shows them, with all that surrounds them, from one view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import (
    load_publication,
    load_relations,
    load_server,
    load_tables,
    load_types,
)
from frazil.model.postgres.facts import PublicationFacts, PublishedTable
from frazil.sources.postgres.tables.catalog_view import CatalogView
from frazil.sources.postgres.tables.selection import can_be_published, select_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from frazil.clients.postgres.session import Session
    from frazil.model.postgres.facts import TableFacts

# A publication that is not there sends nothing; a comparison finds that it is another one.
_NO_PUBLICATION = 0


def load_views(
    session: Session,
    *,
    publication: str,
    include: Iterable[str],
    exclude: Iterable[str],
) -> Mapping[str, CatalogView]:
    """The tables that the patterns choose, by name; loaded inside a view of the caller's.

    One that the publication lacks is shown as if it sent all columns: that is what it will do.
    """
    views = load_all_views(session, publication=publication, include=include, exclude=exclude)
    return {name: view for name, view in views.items() if can_be_published(view.table)}


def load_all_views(
    session: Session,
    *,
    publication: str,
    include: Iterable[str],
    exclude: Iterable[str],
) -> Mapping[str, CatalogView]:
    """The same with the relations that no publication can have."""
    selection = select_tables(load_relations(session), include=include, exclude=exclude)
    return _load(session, selection.oids, publication=publication, types=())


def load_views_of(
    session: Session, oids: Collection[int], *, publication: str, types: Collection[int] = ()
) -> Mapping[str, CatalogView]:
    """The tables of these numbers; those that are gone are left out.

    ``types`` are requested as well: columns may have had others than they have now.
    """
    views = _load(session, oids, publication=publication, types=types)
    return {name: view for name, view in views.items() if can_be_published(view.table)}


def _load(
    session: Session, oids: Collection[int], *, publication: str, types: Collection[int]
) -> Mapping[str, CatalogView]:
    server = load_server(session)
    sends = load_publication(session, publication) or _absent(publication)
    tables = load_tables(session, oids)
    named = {attribute.type_oid for table in tables for attribute in table.attributes}
    known = load_types(session, named.union(types))
    return {
        str(table.name): CatalogView(
            server=server,
            publication=sends,
            published=sends.table(table.oid) or _unpublished(table),
            table=table,
            types=known,
        )
        for table in tables
    }


def load_names(session: Session) -> tuple[str, ...]:
    """What all relations of the database are called."""
    return tuple(str(each.name) for each in load_relations(session))


def is_published(view: CatalogView) -> bool:
    """Whether the publication has the table."""
    return view.publication.table(view.table.oid) is not None


def _absent(name: str) -> PublicationFacts:
    return PublicationFacts(
        oid=_NO_PUBLICATION,
        name=name,
        is_ours=False,
        sends_all_tables=False,
        sends_inserts=False,
        sends_updates=False,
        sends_deletes=False,
        sends_truncates=False,
        via_root=False,
        sends_generated=False,
    )


def _unpublished(table: TableFacts) -> PublishedTable:
    return PublishedTable(
        oid=table.oid,
        name=table.name,
        membership_oid=None,
        columns=tuple(each.name for each in table.attributes),
        has_column_list=False,
        row_filter=None,
    )
