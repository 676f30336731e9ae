"""A plan for the publication, carried out so that one table cannot keep the others from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import load_publication, load_server
from frazil.errors import PermissionError, SourceUnavailableError  # noqa: A004
from frazil.sources.postgres.publication.planning import plan_publication, refuse_unfit
from frazil.sources.postgres.publication.statements import (
    add_statement,
    create_statement,
    drop_statement,
)
from frazil.sources.postgres.tables.catalog_views import load_views
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.clients.postgres.session import Session
    from frazil.errors import FrazilError
    from frazil.model.postgres.names import QualifiedName
    from frazil.sources.postgres.publication.statements import PublicationPlan
    from frazil.sources.postgres.settings import PostgresSettings

_log = get_logger(__name__)

_DOING = "changing the publication"
# Another role owns the table by now, dropped it, or holds a lock on it.
_REFUSED = (PermissionError, SourceUnavailableError)


def publish_tables(
    session: Session, settings: PostgresSettings, tables: Collection[str], *, only_adds: bool
) -> dict[str, FrazilError]:
    """Have the publication send these tables; before any snapshot that they are read in.

    Tables that the server refused to add are given back; those that we may not add are not tried.
    """
    with session.one_view():
        publication = load_publication(session, settings.publication)
        server = load_server(session)
        views = load_views(
            session,
            publication=settings.publication,
            include=settings.include,
            exclude=settings.exclude,
        )
    refuse_unfit(publication)
    plan = plan_publication(
        publication,
        [view.table for name, view in views.items() if name in tables],
        server,
        name=settings.publication,
        creates=settings.creates_publication,
        only_adds=only_adds,
    )
    return change_publication(session, plan)


def change_publication(session: Session, plan: PublicationPlan) -> dict[str, FrazilError]:
    """Carry the plan out; the tables that could not be added, and why.

    All tables in one statement; where that is refused, one by one, because a single table is
    enough to have it refused. A table that cannot be taken out is still sent, and ignored.
    """
    refused: dict[str, FrazilError] = {}
    if plan.creates or plan.adds:
        together = create_statement if plan.creates else add_statement
        try:
            _change(session, together(plan.name, plan.adds))
        except _REFUSED:
            if not plan.adds:
                raise
            if plan.creates:
                _change(session, create_statement(plan.name, ()))
            refused = _add_one_by_one(session, plan)
    for table in plan.drops:
        try:
            _change(session, drop_statement(plan.name, [table]))
        except _REFUSED as error:
            _log.warning("table stays in the publication", table=str(table), reason=error.reason)
    return refused


def _add_one_by_one(session: Session, plan: PublicationPlan) -> dict[str, FrazilError]:
    refused: dict[str, FrazilError] = {}
    for table in plan.adds:
        try:
            _change(session, add_statement(plan.name, [table]))
        except _REFUSED as error:
            refused[str(table)] = _of(table, error)
    return refused


def _of(table: QualifiedName, error: FrazilError) -> FrazilError:
    error.table = str(table)
    return error


def _change(session: Session, statement: str) -> None:
    session.execute(statement, doing=_DOING)
    _log.info("publication changed", statement=statement)
