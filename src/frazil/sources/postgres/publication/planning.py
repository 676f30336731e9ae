"""What a run changes of the publication; pure. What it may not change is a problem of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ConfigError, PermissionError  # noqa: A004 - the published name
from frazil.sources.postgres.publication.checks import fitness_problems, membership_problem
from frazil.sources.postgres.publication.statements import PublicationPlan
from frazil.sources.postgres.tables.selection import can_be_published

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.model.postgres.facts import PublicationFacts, ServerFacts, TableFacts


def plan_publication(
    publication: PublicationFacts | None,
    tables: Collection[TableFacts],
    server: ServerFacts,
    *,
    name: str,
    creates: bool,
    only_adds: bool = False,
) -> PublicationPlan:
    """What makes the publication send these tables, and no other that was added by name.

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
