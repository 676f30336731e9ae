"""The publication made to send what is captured: which statements that takes; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ConfigError, PermissionError  # noqa: A004
from frazil.model.postgres_names import quote_identifier
from frazil.sources.postgres.problem import Severity
from frazil.sources.postgres.publication_checks import can_be_published, fitness_problems

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.model.postgres_facts import PublicationFacts, TableFacts


def plan_publication(
    publication: PublicationFacts | None,
    tables: Collection[TableFacts],
    *,
    name: str,
    only_adds: bool = False,
) -> tuple[str, ...]:
    """What makes the publication send these tables, and no other that was added by name.

    A publication of somebody else is only added to, as is any with ``only_adds``.
    """
    quoted = quote_identifier(name)
    wanted = {each.oid: each.name.quoted for each in tables if can_be_published(each)}
    if publication is None:
        listed = f" for table {', '.join(wanted.values())}" if wanted else ""
        return (f"create publication {quoted}{listed} with (publish_via_partition_root = true)",)
    statements = []
    missing = [text for oid, text in wanted.items() if publication.table(oid) is None]
    if missing and not publication.sends_all_tables:
        statements.append(f"alter publication {quoted} add table {', '.join(missing)}")
    surplus = [
        each.name.quoted
        for each in publication.tables
        if each.oid not in wanted and not each.is_implicit
    ]
    if surplus and publication.is_ours and not only_adds:
        statements.append(f"alter publication {quoted} drop table {', '.join(surplus)}")
    return tuple(statements)


def permitted_statements(
    publication: PublicationFacts | None,
    tables: Collection[TableFacts],
    *,
    name: str,
    may_change: bool,
    only_adds: bool = False,
) -> tuple[str, ...]:
    """The same, if we may change it; PermissionError if something is to be done by others."""
    statements = plan_publication(
        publication, tables, name=name, only_adds=only_adds or not may_change
    )
    if statements and not may_change:
        message = f"the publication {name} does not send all tables."
        raise PermissionError(message, next_step="frazil check shows the SQL for it")
    return statements


def refuse_unfit(publication: PublicationFacts | None, tables: Collection[TableFacts]) -> None:
    """Refuse a publication that leaves out kinds of changes, or sends them under other names."""
    if publication is None:
        return
    for problem in fitness_problems(publication, tables):
        if problem.severity is Severity.STOPS:
            raise ConfigError(problem.sentence, next_step="; ".join(problem.sql) or "frazil check")
