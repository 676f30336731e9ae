"""What may be wrong with a table: that it can be read, sent, and mirrored by its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres.facts import GeneratedKind, Persistence, RelationKind
from frazil.model.postgres.names import quote_identifier
from frazil.sources.findings import stops, warns
from frazil.sources.postgres.tables.mirror_key import NoKey, NoKeyReason, mirror_key
from frazil.sources.postgres.tables.selection import is_literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.postgres.facts import PostgresFacts, RoleFacts, TableFacts
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.preflight_settings import PreflightSettings

_KINDS = {
    RelationKind.VIEW: "a view",
    RelationKind.MATERIALIZED_VIEW: "a materialized view",
    RelationKind.FOREIGN: "a foreign table",
}


def table_problems(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[Problem]:
    """Everything about the tables that were chosen, or that none was."""
    for pattern in facts.unmatched:
        yield unmatched_problem(pattern, facts.nearest.get(pattern))
    if not facts.tables:
        yield stops("No table of this database is chosen by source.tables.")
    yield from _schemas(facts)
    for table in facts.tables:
        yield from sending_problems(table)
        if table.kind in _KINDS:
            continue
        yield from reading_problems(table, facts.server.role)
        yield from _generated(table, facts)
        yield from _mirror(table, facts, settings)


def unmatched_problem(pattern: str, nearest: str | None) -> Problem:
    """That a pattern means no table; one that names a table is misspelt."""
    if not is_literal(pattern):
        return warns(f"source.tables has {pattern}, and no table of this database matches it.")
    hint = "." if nearest is None else f"; did you mean {nearest}?"
    return stops(
        f"source.tables has {pattern}, and this database has no such table{hint}", table=pattern
    )


def _schemas(facts: PostgresFacts) -> Iterator[Problem]:
    closed = {each.name.schema for each in facts.tables if not each.privileges.uses_schema}
    for schema in sorted(closed):
        yield schema_problem(schema, facts.server.role)


def schema_problem(schema: str, role: RoleFacts) -> Problem:
    """That no table in it can be read."""
    return stops(
        f"The role {role.name} may not use the schema {schema}.",
        f"grant usage on schema {quote_identifier(schema)} to {quote_identifier(role.name)};",
    )


def sending_problems(table: TableFacts) -> Iterator[Problem]:
    """Why the server sends no changes of a relation to any reader."""
    name = str(table.name)
    if table.kind in _KINDS:
        yield stops(f"{name} is {_KINDS[table.kind]}, which sends no changes.", table=name)
    elif table.persistence is Persistence.UNLOGGED and table.is_partitioned:
        yield stops(
            f"A partition of {name} is unlogged, so its changes are in no log.",
            "alter table … set logged;",
            table=name,
        )
    elif table.persistence is Persistence.UNLOGGED:
        yield stops(
            f"{name} is unlogged, so its changes are in no log.",
            f"alter table {table.name.quoted} set logged;",
            table=name,
        )


def reading_problems(table: TableFacts, role: RoleFacts) -> Iterator[Problem]:
    """Why our role cannot copy a table."""
    name, grantee = str(table.name), quote_identifier(role.name)
    if not table.privileges.selects:
        yield stops(
            f"The role {role.name} may not read {name}.",
            f"grant select on {table.name.quoted} to {grantee};",
            table=name,
        )
    if table.has_row_security and not role.bypasses_row_security:
        yield stops(
            f"{name} has row-level security, so a copy of it would be refused or lack rows.",
            f"alter role {grantee} bypassrls;",
            table=name,
        )


def _generated(table: TableFacts, facts: PostgresFacts) -> Iterator[Problem]:
    columns = [each for each in table.attributes if each.generated is not GeneratedKind.NO]
    published = facts.publication and facts.publication.table(table.oid)
    sent = set(published.columns) if published else set()
    left_out = [each.name for each in columns if each.name not in sent]
    if left_out:
        yield warns(
            f"Generated columns of {table.name} are not sent and will be missing: "
            f"{', '.join(left_out)}.",
            table=str(table.name),
        )


def _mirror(
    table: TableFacts, facts: PostgresFacts, settings: PreflightSettings
) -> Iterator[Problem]:
    """At most one reason why there is a changelog only, or why changes are refused."""
    name = str(table.name)
    configured = settings.keys.get(name, ())
    published = facts.publication.table(table.oid) if facts.publication else None
    found = mirror_key(table, published, configured)
    if not isinstance(found, NoKey):
        return
    columns = ", ".join(found.columns)
    match found.reason:
        case NoKeyReason.UNKNOWN_COLUMNS:
            sentence = f"The key configured for {name} has columns the table lacks: {columns}."
            yield stops(sentence, table=name)
        case NoKeyReason.NOT_PUBLISHED:
            yield stops(f"The column list of {name} lacks key columns: {columns}.", table=name)
        case NoKeyReason.NONE:
            yield warns(
                f"{name} has no primary key: it gets a changelog and no mirror. A key, or one "
                "named in tables[].key, would give it one.",
                f"alter table {table.name.quoted} add primary key (…);",
                table=name,
            )
        case NoKeyReason.DEFERRABLE:
            yield _deferrable(table)
        case NoKeyReason.NOT_UNIQUE:
            yield _not_unique(table, found.columns)
        case _:
            yield _identity(table, found, configured or (table.key.columns if table.key else ()))


def _not_unique(table: TableFacts, key: tuple[str, ...]) -> Problem:
    quoted = [quote_identifier(column) for column in key]
    not_null = ", ".join(f"alter column {column} set not null" for column in quoted)
    return stops(
        f"Nothing keeps the key configured for {table.name} unique at the source "
        f"({', '.join(key)}): that takes a unique index over all rows, of columns that are not "
        "null and not deferrable. Without it the table gets a changelog and no mirror.",
        f"alter table {table.name.quoted} {not_null};",
        f"create unique index concurrently on {table.name.quoted} ({', '.join(quoted)});",
        table=str(table.name),
    )


def _deferrable(table: TableFacts) -> Problem:
    return warns(
        f"The primary key of {table.name} is deferrable, so two keys exchanged in one statement "
        "have no order: it gets a changelog and no mirror, and the server refuses its UPDATE and "
        "DELETE once it is published, unless it has a replica identity.",
        f"alter table {table.name.quoted} replica identity full;",
        table=str(table.name),
    )


def _identity(table: TableFacts, lacking: NoKey, key: tuple[str, ...]) -> Problem:
    name = str(table.name)
    if lacking.reason is NoKeyReason.NO_IDENTITY:
        sentence = (
            f"{name} has no replica identity, so the server refuses its UPDATE and DELETE once it "
            "is published: it gets a changelog and no mirror."
        )
    else:
        sentence = (
            f"The replica identity of {name} does not have the key columns "
            f"{', '.join(lacking.columns)}, so a row that goes cannot be found: it gets a "
            "changelog and no mirror."
        )
    sql = f"alter table {table.name.quoted} replica identity {_best_identity(table, key)};"
    return warns(sentence, sql, table=name)


def _best_identity(table: TableFacts, key: tuple[str, ...]) -> str:
    has_key = table.key is not None and not table.key.is_deferrable
    covers = table.key is not None and set(key) <= set(table.key.columns)
    return "default" if has_key and covers else "full"
