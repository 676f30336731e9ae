"""What a run changes of the publication: the plan, and how it is carried out.

One table cannot keep the others from it. What may not be changed is a problem of its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import load_publication, load_server
from frazil.errors import ConfigError, PermissionError, SourceUnavailableError  # noqa: A004
from frazil.sources.postgres.publication.checks import fitness_problems, membership_problem
from frazil.sources.postgres.publication.statements import (
    PublicationPlan,
    add_statement,
    create_statement,
    drop_statement,
)
from frazil.sources.postgres.tables.catalog_views import load_views
from frazil.sources.postgres.tables.selection import can_be_published
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.clients.postgres.session import Session
    from frazil.errors import FrazilError
    from frazil.model.postgres.facts import PublicationFacts, ServerFacts, TableFacts
    from frazil.model.postgres.names import QualifiedName
    from frazil.sources.postgres.settings import PostgresSettings

_log = get_logger(__name__)

_DOING = "changing the publication"
# Another role owns the table by now, dropped it, or holds a lock on it.
_REFUSED = (PermissionError, SourceUnavailableError)


def plan_publication(
    publication: PublicationFacts | None,
    tables: Collection[TableFacts],
    server: ServerFacts,
    *,
    name: str,
    creates: bool,
    only_adds: bool = False,
) -> PublicationPlan:
    """What makes the publication send these tables, and no other that was added by name; pure.

    A table that we may not add is left out. PermissionError if there is no publication and none
    may be created: then no table can be captured.
    """
    may_change = creates and not server.is_standby
    if publication is None and not may_change:
        why = "the server is a standby" if creates else "source.publication.create is false"
        message = f"the publication {name} does not exist, and {why}."
        raise PermissionError(message, next_step="frazil check shows the SQL that creates it")
    sendable = [each for each in tables if can_be_published(each)]
    adds = tuple(
        each.name
        for each in sendable
        if (publication is None or publication.table(each.oid) is None)
        and membership_problem(each, publication, server, name=name, creates=creates) is None
    )
    if publication is None:
        return PublicationPlan(name=name, creates=True, adds=adds)
    wanted = {each.oid for each in sendable}
    drops = tuple(
        each.name for each in publication.tables if each.oid not in wanted and not each.is_implicit
    )
    is_pruned = publication.is_ours and may_change and not only_adds
    return PublicationPlan(name=name, adds=adds, drops=drops if is_pruned else ())


def refuse_unfit(publication: PublicationFacts | None) -> None:
    """Refuse a publication that leaves out kinds of changes."""
    if publication is None:
        return
    for problem in fitness_problems(publication):
        raise ConfigError(problem.sentence, next_step="; ".join(problem.sql))


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
