"""What may be wrong with the publication: that it is there, complete, and only what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres.names import quote_identifier
from frazil.sources.findings import stops, warns
from frazil.sources.postgres.publication.statements import (
    add_statement,
    create_statement,
    drop_statement,
)
from frazil.sources.postgres.tables.selection import can_be_published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from frazil.model.postgres.facts import (
        PostgresFacts,
        PublicationFacts,
        PublishedTable,
        ServerFacts,
        TableFacts,
    )
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.preflight_settings import PreflightSettings

# More than these in one sentence are counted, not named.
_MOST_NAMED = 5


def publication_problems(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[Problem]:
    """Everything about the publication, or about making one."""
    publication = facts.publication
    tables = [table for table in facts.tables if can_be_published(table)]
    if publication is None:
        yield from _missing(facts, tables, settings)
        return
    yield from fitness_problems(publication)
    for table in tables:
        lacking = membership_problem(
            table,
            publication,
            facts.server,
            name=settings.publication,
            creates=settings.creates_publication,
        )
        if lacking is not None:
            yield lacking
    yield from _unwanted(publication, facts, settings)
    for table in tables:
        published = publication.table(table.oid)
        if published is not None:
            yield from _what_is_sent(published)


def fitness_problems(publication: PublicationFacts) -> Iterator[Problem]:
    """Whether mirrors of any table could be right with what the publication sends."""
    sent = {
        "insert": publication.sends_inserts,
        "update": publication.sends_updates,
        "delete": publication.sends_deletes,
        "truncate": publication.sends_truncates,
    }
    missing = [operation for operation, is_sent in sent.items() if not is_sent]
    if missing:
        yield stops(
            f"The publication {publication.name} does not send {', '.join(missing)}, so mirrors "
            "would be wrong.",
            f"alter publication {quote_identifier(publication.name)} set (publish = "
            "'insert, update, delete, truncate');",
        )


def membership_problem(
    table: TableFacts,
    publication: PublicationFacts | None,
    server: ServerFacts,
    *,
    name: str,
    creates: bool,
) -> Problem | None:
    """Why the publication does not send this table and a run cannot make it; with the SQL.

    Without a publication this is what there would be once a run has created it.
    """
    if publication is not None and table.is_partitioned and not publication.via_root:
        return stops(
            f"The publication {name} sends changes of {table.name} under the names of the "
            "partitions.",
            f"alter publication {quote_identifier(name)} set (publish_via_partition_root = true);",
            table=str(table.name),
        )
    if publication is not None and publication.table(table.oid) is not None:
        return None
    why = _why_not_added(table, publication, server, creates=creates)
    if why is None:
        return None
    return stops(
        f"The publication {name} does not have {table.name}, and {why}.",
        f"{add_statement(name, [table.name])};",
        table=str(table.name),
    )


def _why_not_added(
    table: TableFacts, publication: PublicationFacts | None, server: ServerFacts, *, creates: bool
) -> str | None:
    role = server.role.name
    if server.is_standby:
        return "the server is a standby: add it on the primary"
    if not creates:
        return "source.publication.create is false: its owner can add the table"
    if publication is not None and not publication.is_ours:
        return (
            f"the role {role} does not own the publication: its owner, who must own the table as "
            "well, can add it"
        )
    if not may_publish(table, server):
        return (
            f"the role {role} does not own the table, so it cannot add it: a superuser can, or "
            f"make {role} a member of the role that owns it"
        )
    return None


def may_create_publication(facts: PostgresFacts, settings: PreflightSettings) -> bool:
    """Whether a first run may make the publication and can."""
    may = facts.server.role.may_create_publication and not facts.server.is_standby
    return settings.creates_publication and may


def _missing(
    facts: PostgresFacts, tables: Sequence[TableFacts], settings: PreflightSettings
) -> Iterator[Problem]:
    create = f"{create_statement(settings.publication, [each.name for each in tables])};"
    role = facts.server.role
    if not settings.creates_publication:
        yield stops(
            f"The publication {settings.publication} does not exist, and source.publication.create "
            "is false.",
            create,
        )
        return
    if facts.server.is_standby:
        yield stops(
            f"The publication {settings.publication} does not exist, and the server is a standby: "
            "create it on the primary.",
            create,
        )
        return
    if not role.may_create_publication:
        yield stops(
            f"The publication {settings.publication} does not exist, and the role {role.name} may "
            f"not create one in {facts.server.database}. Grant it that, or let an owner run the "
            "second line.",
            f"grant create on database {quote_identifier(facts.server.database)} to "
            f"{quote_identifier(role.name)};",
            create,
        )
        return
    for table in tables:
        if not may_publish(table, facts.server):
            # Nothing can be added before there is a publication, which an owner of all can create.
            yield stops(
                f"The role {role.name} does not own {table.name}, so the publication "
                f"{settings.publication} that it creates will not have it: a superuser can create "
                f"it with all tables, or make {role.name} a member of the role that owns it.",
                create,
                table=str(table.name),
            )


def may_publish(table: TableFacts, server: ServerFacts) -> bool:
    """Whether our role may add the table to a publication of its own."""
    return table.privileges.owns or server.role.is_superuser


def _unwanted(
    publication: PublicationFacts, facts: PostgresFacts, settings: PreflightSettings
) -> Iterator[Problem]:
    ours = [each for each in publication.tables if each.name.schema in settings.own_schemas]
    if ours:
        yield stops(
            f"The publication {publication.name} sends frazil's own {_named(ours)}, so that every "
            "change would make another.",
            *_removal(publication, ours),
        )
    chosen = set(facts.by_oid)
    chosen_roots = {table.oid for table in facts.tables if table.is_partitioned}
    others = [
        each
        for each in publication.tables
        if each.oid not in chosen
        and each not in ours
        and not (chosen_roots and not publication.via_root)
    ]
    if others:
        yield warns(
            f"The publication {publication.name} also sends {_named(others)}, which the "
            "configuration does not name: they cost work and are dropped.",
            *_removal(publication, others),
        )


def _removal(publication: PublicationFacts, tables: Iterable[PublishedTable]) -> tuple[str, ...]:
    """Only a table that was added by name can be taken out by name."""
    removable = [each.name for each in tables if not each.is_implicit]
    return (f"{drop_statement(publication.name, removable)};",) if removable else ()


def _what_is_sent(published: PublishedTable) -> Iterator[Problem]:
    table = str(published.name)
    if published.has_column_list:
        listed = ", ".join(published.columns)
        yield warns(f"Only some columns of {table} are published: {listed}.", table=table)
    if published.row_filter is not None:
        yield warns(
            f"Only some rows of {table} are published: where {published.row_filter}.", table=table
        )


def _named(tables: Iterable[TableFacts | PublishedTable]) -> str:
    names = [str(table.name) for table in tables]
    rest = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown
