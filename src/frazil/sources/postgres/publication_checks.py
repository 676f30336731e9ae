"""What may be wrong with the publication: that it is there, complete, and only what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres_facts import Persistence, RelationKind
from frazil.model.postgres_names import quote_identifier
from frazil.sources.postgres.problem import stops, warns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.model.postgres_facts import (
        PostgresFacts,
        PublicationFacts,
        PublishedTable,
        TableFacts,
    )
    from frazil.sources.postgres.problem import PreflightSettings, Problem

# More than these in one sentence are counted, not named.
_MOST_NAMED = 5


def publication_problems(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[Problem]:
    """Everything about the publication, or about making one."""
    publication = facts.publication
    tables = [table for table in facts.tables if can_be_published(table)]
    if publication is None:
        yield from _missing(facts, tables, settings)
        return
    yield from fitness_problems(publication, tables)
    yield from _uncovered(publication, tables, facts, settings)
    yield from _unwanted(publication, facts, settings)
    for table in tables:
        published = publication.table(table.oid)
        if published is not None:
            yield from _what_is_sent(published)


def fitness_problems(
    publication: PublicationFacts, tables: Iterable[TableFacts]
) -> Iterator[Problem]:
    """Whether mirrors of these tables could be right with what the publication sends."""
    yield from _flags(publication)
    yield from _root(publication, tables)


def can_be_published(table: TableFacts) -> bool:
    """Whether the server lets a publication have it at all."""
    is_table = table.kind in {RelationKind.TABLE, RelationKind.PARTITIONED}
    return is_table and table.persistence is Persistence.PERMANENT


def may_create_publication(facts: PostgresFacts, settings: PreflightSettings) -> bool:
    """Whether a first run may make the publication and can."""
    may = facts.server.role.may_create_publication and not facts.server.is_standby
    tables = filter(can_be_published, facts.tables)
    return (
        settings.creates_publication and may and all(_may_publish(each, facts) for each in tables)
    )


def _missing(
    facts: PostgresFacts, tables: Iterable[TableFacts], settings: PreflightSettings
) -> Iterator[Problem]:
    name = quote_identifier(settings.publication)
    names = [table.name.quoted for table in tables]
    listed = f" for table {', '.join(names)}" if names else ""
    create = f"create publication {name}{listed} with (publish_via_partition_root = true);"
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
    foreign = [table for table in tables if not _may_publish(table, facts)]
    if foreign:
        yield stops(
            f"The publication {settings.publication} does not exist, and the role {role.name} does "
            f"not own {_named(foreign)}, so it cannot create it: an owner can.",
            create,
        )
    elif not role.may_create_publication:
        yield stops(
            f"The publication {settings.publication} does not exist, and the role {role.name} may "
            f"not create one in {facts.server.database}. Grant it that, or let an owner run the "
            "second line.",
            f"grant create on database {quote_identifier(facts.server.database)} to "
            f"{quote_identifier(role.name)};",
            create,
        )


def _may_publish(table: TableFacts, facts: PostgresFacts) -> bool:
    return table.privileges.owns or facts.server.role.is_superuser


def _flags(publication: PublicationFacts) -> Iterator[Problem]:
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


def _root(publication: PublicationFacts, tables: Iterable[TableFacts]) -> Iterator[Problem]:
    partitioned = [table for table in tables if table.is_partitioned]
    if partitioned and not publication.via_root:
        yield stops(
            f"The publication {publication.name} sends changes of {_named(partitioned)} under the "
            "names of the partitions.",
            f"alter publication {quote_identifier(publication.name)} set "
            "(publish_via_partition_root = true);",
        )


def _uncovered(
    publication: PublicationFacts,
    tables: Iterable[TableFacts],
    facts: PostgresFacts,
    settings: PreflightSettings,
) -> Iterator[Problem]:
    # Without via_root the view shows leaves, and that problem is reported by itself.
    missing = [
        table
        for table in tables
        if publication.table(table.oid) is None
        and not (table.is_partitioned and not publication.via_root)
    ]
    ours_to_add = settings.creates_publication and publication.is_ours
    foreign = [table for table in missing if not (ours_to_add and _may_publish(table, facts))]
    if foreign:
        added = ", ".join(table.name.quoted for table in foreign)
        yield stops(
            f"The publication {publication.name} does not have {_named(foreign)}, and the role "
            f"{facts.server.role.name} cannot add them: their owner, who must own the publication "
            "as well, can.",
            f"alter publication {quote_identifier(publication.name)} add table {added};",
        )


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
    removable = [each.name.quoted for each in tables if each.membership_oid is not None]
    if not removable:
        return ()
    name = quote_identifier(publication.name)
    return (f"alter publication {name} drop table {', '.join(removable)};",)


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
