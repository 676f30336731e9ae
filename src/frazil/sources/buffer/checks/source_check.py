"""A buffer source, checked before anything is started; nothing is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil import errors
from frazil.clients.postgres.connecting import connect
from frazil.config.models.values import suggestion
from frazil.model.humanize import counted
from frazil.model.postgres.names import quote_identifier
from frazil.sources.buffer.checks.server_facts import load_buffer_facts
from frazil.sources.findings import CheckedItem, Findings, FoundTable, problem_of, stops, warns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.sources.buffer.checks.server_facts import BufferFacts, BufferServer, RelationFacts
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.findings import Problem

# Sets of ranges of ids, with which claims are looked up, are younger than 13.
OLDEST_MAJOR: Final = 14
NEWEST_MAJOR: Final = 18
_MAJOR: Final = 10_000
_TEXT: Final = ("text", "character varying")
_LONG: Final = ("bigint",)
_JSON: Final = ("jsonb",)
_TIME: Final = ("timestamp with time zone",)
# Each with the types that do; the first of them is what the buffer's writer makes.
EVENT_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": _LONG,
    **dict.fromkeys(("source_id", "schema_name", "table_name", "operation", "lsn"), _TEXT),
    "transaction_id": _LONG,
    **dict.fromkeys(("key_columns", "before_data", "after_data", "metadata"), _JSON),
    **dict.fromkeys(("event_time", "created_at", "processed_at"), _TIME),
}
LETTER_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": _LONG,
    "original_event_id": _LONG,
    **dict.fromkeys(("source_id", "schema_name", "table_name", "operation"), _TEXT),
    "event_data": _JSON,
    **dict.fromkeys(("error_message", "error_type"), _TEXT),
    "retry_count": ("integer", "bigint"),
    **dict.fromkeys(("created_at", "last_retry_at", "expires_at"), _TIME),
}
_DEFAULTS: Final = {
    "id": "bigserial primary key",
    "created_at": "timestamp with time zone default now()",
    "retry_count": "integer default 0",
}
_TABLE_KINDS: Final = ("r", "p")
_REFUSED: Final = (
    "The user or the password in source.dsn is wrong, or the server's pg_hba.conf does not let "
    "them in from here."
)


def check_readiness(settings: BufferSettings) -> Findings:
    """What keeps a run from draining anything; raises what prevents the check."""
    return Findings(problems=tuple(_blocking(_load(settings), settings)))


def check_source(settings: BufferSettings) -> Findings:
    """Everything about the source; what prevents the check is a problem too."""
    try:
        facts = _load(settings)
    except errors.FrazilError as error:
        advice = _REFUSED if isinstance(error, errors.PermissionError) else None
        return Findings(problems=(problem_of(error, advice=advice),), error=error)
    return judge_buffer(facts, settings)


def _load(settings: BufferSettings) -> BufferFacts:
    with connect(settings.dsn, purpose="check") as session:
        return load_buffer_facts(session, settings)


def judge_buffer(facts: BufferFacts, settings: BufferSettings) -> Findings:
    """What is in order and what is not; pure."""
    tables = _tables(facts, settings)
    problems = [
        *_blocking(facts, settings),
        *_surroundings(facts),
        *_indexes(facts, settings),
        *_sources(facts, settings),
    ]
    tls = " over TLS" if facts.uses_tls else ""
    found = f"PostgreSQL {facts.version // _MAJOR}, database {facts.server.database}{tls}"
    checked = [CheckedItem("server", found)]
    if facts.seen is not None:
        sources = {each.source_id for each in facts.seen}
        seen = f"{counted(len(sources), 'source')} and {counted(len(tables), 'table')}"
        checked.append(CheckedItem("events", f"{seen} among the newest"))
    return Findings(checked=tuple(checked), problems=tuple(problems), tables=tables)


def _tables(facts: BufferFacts, settings: BufferSettings) -> tuple[FoundTable, ...]:
    """The tables that the newest events are of, as far as they are drained."""
    keys: dict[str, tuple[str, ...]] = {}
    for each in facts.seen or ():
        is_drained = not settings.source_ids or each.source_id in settings.source_ids
        if is_drained and settings.choice.selects(each.table):
            keys[each.table] = _configured_key(settings, each.table) or _key_of(each.key)
    return tuple(FoundTable(name, key) for name, key in sorted(keys.items()))


def _configured_key(settings: BufferSettings, table: str) -> tuple[str, ...]:
    try:
        return settings.tables(table).key
    except errors.FrazilError:
        # The reason is reported with the names of its tables.
        return ()


def _key_of(text: str) -> tuple[str, ...]:
    """Names of columns, which events have as a list, or as an object of values."""
    return tuple(map(str, json.loads(text))) if text else ()


# --- what stops ---


def _blocking(facts: BufferFacts, settings: BufferSettings) -> Iterator[Problem]:
    server, relations = facts.server, settings.relations
    if facts.version < OLDEST_MAJOR * _MAJOR:
        major = facts.version // _MAJOR
        yield stops(f"The server is PostgreSQL {major}; the oldest that works is {OLDEST_MAJOR}.")
    if server.is_standby:
        yield stops("The server is a standby: events are marked as processed on the primary only.")
    if not server.has_schema:
        schema = quote_identifier(relations.schema)
        yield stops(
            f"The schema {relations.schema} does not exist: correct source.schema and the database "
            "in source.dsn, or make the buffer's tables.",
            f"create schema {schema};",
        )
    elif not server.may_use_schema:
        yield stops(
            f"The role {server.role} may not use the schema {relations.schema}.",
            f"grant usage on schema {quote_identifier(relations.schema)} to {_role(server)};",
        )
    yield from _own_schema(server, settings)
    events = _Wanted(
        relations.events_table, relations.events, EVENT_COLUMNS, ("select", "update", "delete")
    )
    yield from _relation(server, facts.events, events)
    if settings.letters.enabled:
        needed = ("select", "insert", "update", "delete")
        letters = _Wanted(relations.letters_table, relations.letters, LETTER_COLUMNS, needed)
        yield from _relation(server, facts.letters, letters)


def _own_schema(server: BufferServer, settings: BufferSettings) -> Iterator[Problem]:
    own = settings.relations.own_schema
    if server.has_own_schema and not server.may_create_in_own:
        yield stops(
            f"The role {server.role} may not make tables in the schema {own}, where frazil notes "
            "what it has claimed.",
            f"grant usage, create on schema {quote_identifier(own)} to {_role(server)};",
        )
    elif not server.has_own_schema and not server.may_create_schema:
        yield stops(
            f"The role {server.role} may not make the schema {own}, where frazil notes what it has "
            "claimed.",
            f"create schema {quote_identifier(own)} authorization {_role(server)};",
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a table must be; ``quoted`` is its name in statements."""

    name: str
    quoted: str
    columns: Mapping[str, tuple[str, ...]]
    privileges: tuple[str, ...]


def _relation(server: BufferServer, facts: RelationFacts, wanted: _Wanted) -> Iterator[Problem]:
    name, quoted = wanted.name, wanted.quoted
    if facts.kind is None:
        columns = ", ".join(
            f"{quote_identifier(column)} {_DEFAULTS.get(column, types[0])}"
            for column, types in wanted.columns.items()
        )
        yield stops(f"The table {name} does not exist.", f"create table {quoted} ({columns});")
        return
    if facts.kind not in _TABLE_KINDS:
        yield stops(f"{name} is no table: rows in it cannot be marked and deleted.")
        return
    yield from _columns(dict(facts.columns), wanted)
    missing = [word for word in wanted.privileges if word not in facts.privileges]
    if missing:
        yield stops(
            f"The role {server.role} lacks the right to {', '.join(missing)} on {name}.",
            f"grant {', '.join(missing)} on {quoted} to {_role(server)};",
        )
    if "insert" in wanted.privileges and not facts.may_number:
        sequence = f"grant usage on all sequences in schema {quoted.rpartition('.')[0]}"
        yield stops(
            f"The role {server.role} may not use the sequence of {name}.id.",
            f"{sequence} to {_role(server)};",
        )
    if facts.has_policies:
        yield stops(
            f"{name} has row security, so the role {server.role} would miss rows.",
            f"alter role {_role(server)} bypassrls;",
        )


def _columns(found: Mapping[str, str], wanted: _Wanted) -> Iterator[Problem]:
    name, quoted = wanted.name, wanted.quoted
    for column, types in wanted.columns.items():
        known = quote_identifier(column)
        if column not in found:
            yield stops(
                f"{name} has no column {column}{suggestion(column, found)}.",
                f"alter table {quoted} add column {known} {_DEFAULTS.get(column, types[0])};",
            )
        elif found[column] not in types:
            yield stops(
                f"{name}.{column} is {found[column]}, and must be {' or '.join(types)}.",
                f"alter table {quoted} alter column {known} type {types[0]} "
                f"using {known}::{types[0]};",
            )


# --- what an operator should know ---


def _surroundings(facts: BufferFacts) -> Iterator[Problem]:
    if facts.version >= (NEWEST_MAJOR + 1) * _MAJOR:
        major = facts.version // _MAJOR
        yield warns(f"The server is PostgreSQL {major}; frazil is tested up to {NEWEST_MAJOR}.")
    if not facts.uses_tls and not facts.server.is_local:
        yield warns(
            "The connection is not encrypted, and the server is another machine: remove "
            "sslmode=disable from source.dsn."
        )


def _indexes(facts: BufferFacts, settings: BufferSettings) -> Iterator[Problem]:
    relations = settings.relations
    if facts.events.kind is not None:
        events = facts.events.indexes
        if not any(each.first_column == "id" and each.is_unique for each in events):
            yield warns(
                "The ids of events are not unique, and have no index: every batch reads all of "
                f"{relations.events_table}.",
                f"alter table {relations.events} add primary key (id);",
            )
        if not any(
            each.first_column == "source_id" and _is_about(each.predicate, "IS NULL")
            for each in events
        ):
            yield warns(
                "Pending events have no index: every look for new ones reads all of "
                f"{relations.events_table}.",
                f"create index concurrently on {relations.events} (source_id, created_at) "
                "where processed_at is null;",
            )
        if not any(each.first_column == "processed_at" for each in events):
            yield warns(
                "Processed events have no index: every cleanup reads all of "
                f"{relations.events_table}.",
                f"create index concurrently on {relations.events} (processed_at) "
                "where processed_at is not null;",
            )
    if facts.letters.kind is not None and settings.letters.enabled:
        if not any(each.first_column == "original_event_id" for each in facts.letters.indexes):
            yield warns(
                "Dead letters have no index by event: every batch reads all of "
                f"{relations.letters_table}.",
                f"create index concurrently on {relations.letters} (original_event_id);",
            )
        if "insert" not in facts.events.privileges and facts.events.kind is not None:
            yield warns(
                f"The role {facts.server.role} may not insert into {relations.events_table}: dead "
                "letters whose event was deleted since cannot be replayed.",
                f"grant insert on {relations.events} to {_role(facts.server)};",
            )


def _is_about(predicate: str, words: str) -> bool:
    return "processed_at" in predicate and predicate.rstrip(")").endswith(words)


def _sources(facts: BufferFacts, settings: BufferSettings) -> Iterator[Problem]:
    if facts.seen is None:
        return
    known = sorted({each.source_id for each in facts.seen})
    for wanted in settings.source_ids:
        if wanted not in known:
            yield warns(
                f"No recent event has the source_id {wanted}{suggestion(wanted, known)}: check "
                "source.source_ids; it is drained as soon as it has one."
            )
    if facts.seen and not any(settings.choice.selects(each.table) for each in facts.seen):
        yield warns(
            "No recent event is of a table that source.tables names: events of others stay pending."
        )


def _role(server: BufferServer) -> str:
    return quote_identifier(server.role)
