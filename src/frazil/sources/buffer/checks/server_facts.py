"""What a check must know of a buffer database, read from its catalog; never a row's values."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.settings import BufferSettings

# Sources and tables are looked for in the newest events only: the table may be large.
_LOOKED_AT: Final = 100_000
_DOING: Final = "checking the buffer database"
_SERVER: Final = """
    select
        current_user::text, current_database()::text, pg_is_in_recovery(),
        host(inet_server_addr()),
        has_database_privilege(current_database(), 'create'),
        to_regnamespace(quote_ident(%(schema)s)) is not null,
        coalesce(has_schema_privilege(to_regnamespace(quote_ident(%(schema)s)), 'usage'), false),
        to_regnamespace(quote_ident(%(own)s)) is not null,
        coalesce(has_schema_privilege(to_regnamespace(quote_ident(%(own)s)), 'create'), false)
"""
_RELATION: Final = """
    select
        relation.relkind::text, relation.relrowsecurity
            and not pg_has_role(relation.relowner, 'usage'),
        array(
            select word from unnest(array['select', 'insert', 'update', 'delete']) as word
            where has_table_privilege(relation.oid, word)
        ),
        coalesce((
            select has_sequence_privilege(sequence.oid, 'usage')
            from pg_depend as owned
            join pg_class as sequence on sequence.oid = owned.objid and sequence.relkind = 'S'
            join pg_attribute as attribute
                on attribute.attrelid = relation.oid and attribute.attnum = owned.refobjsubid
            where owned.refobjid = relation.oid and owned.classid = 'pg_class'::regclass
                and attribute.attname = 'id'
            limit 1
        ), true)
    from pg_class as relation join pg_namespace as namespace
        on namespace.oid = relation.relnamespace
    where namespace.nspname = %(schema)s and relation.relname = %(table)s
"""
_COLUMNS: Final = """
    select attribute.attname::text, format_type(attribute.atttypid, null)
    from pg_attribute as attribute
    join pg_class as relation on relation.oid = attribute.attrelid
    join pg_namespace as namespace on namespace.oid = relation.relnamespace
    where namespace.nspname = %(schema)s and relation.relname = %(table)s
        and attribute.attnum > 0 and not attribute.attisdropped
"""
_INDEXES: Final = """
    select
        attribute.attname::text, coalesce(pg_get_expr(entry.indpred, entry.indrelid), ''),
        entry.indisunique
    from pg_index as entry
    join pg_class as relation on relation.oid = entry.indrelid
    join pg_namespace as namespace on namespace.oid = relation.relnamespace
    join pg_attribute as attribute
        on attribute.attrelid = entry.indrelid and attribute.attnum = entry.indkey[0]
    where namespace.nspname = %(schema)s and relation.relname = %(table)s
        and entry.indisvalid
"""
_TABLES: Final = """
    select
        source_id, schema_name || '.' || table_name,
        coalesce((
            array_agg(key_columns order by id desc)
            filter (where jsonb_typeof(key_columns) in ('array', 'object'))
        )[1]::text, '')
    from (
        select id, source_id, schema_name, table_name, key_columns
        from {events} order by id desc limit %(most)s
    ) as newest
    group by 1, 2 order by 1, 2
"""


class BufferServer(NamedTuple):
    """The server, our role, and the two schemas."""

    role: str
    database: str
    is_standby: bool
    address: str | None
    may_create_schema: bool
    has_schema: bool
    may_use_schema: bool
    has_own_schema: bool
    may_create_in_own: bool

    @property
    def is_local(self) -> bool:
        """Whether the connection does not leave the machine."""
        return self.address is None or ipaddress.ip_address(self.address).is_loopback


class _Relation(NamedTuple):
    kind: str
    has_policies: bool
    privileges: list[str]
    may_number: bool


class _Column(NamedTuple):
    name: str
    type: str


class BufferIndex(NamedTuple):
    """An index by its first column."""

    first_column: str
    predicate: str
    is_unique: bool


class SeenEvents(NamedTuple):
    """A table of one source, and the key that its newest event with a key has, as JSON."""

    source_id: str
    table: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationFacts:
    """A table of the buffer; ``kind`` is the catalog's letter, None where there is none."""

    kind: str | None = None
    has_policies: bool = False
    privileges: frozenset[str] = frozenset()
    may_number: bool = True
    columns: tuple[tuple[str, str], ...] = ()
    indexes: tuple[BufferIndex, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferFacts:
    """All of it; ``seen`` is None where events cannot be read."""

    server: BufferServer
    version: int
    uses_tls: bool
    events: RelationFacts
    letters: RelationFacts
    seen: tuple[SeenEvents, ...] | None = None


def load_buffer_facts(session: Session, settings: BufferSettings) -> BufferFacts:
    """The catalog, and which tables the newest events are of."""
    relations = settings.relations
    with session.one_view():
        names = {"schema": relations.schema, "own": relations.own_schema}
        (server,) = session.load(BufferServer, _SERVER, names, doing=_DOING)
        events = _load_relation(session, relations.schema, relations.events_table)
        letters = _load_relation(session, relations.schema, relations.letters_table)
        seen = None
        wanted = {"id", "source_id", "schema_name", "table_name", "key_columns"}
        is_readable = server.may_use_schema and "select" in events.privileges
        if is_readable and wanted <= {name for name, _ in events.columns}:
            query = _TABLES.format(events=relations.events)
            seen = tuple(session.load(SeenEvents, query, {"most": _LOOKED_AT}, doing=_DOING))
    return BufferFacts(
        server=server,
        version=session.server_version,
        uses_tls=session.uses_tls,
        events=events,
        letters=letters,
        seen=seen,
    )


def _load_relation(session: Session, schema: str, table: str) -> RelationFacts:
    names = {"schema": schema, "table": table}
    found = session.load(_Relation, _RELATION, names, doing=_DOING)
    if not found:
        return RelationFacts()
    columns = session.load(_Column, _COLUMNS, names, doing=_DOING)
    return RelationFacts(
        kind=found[0].kind,
        has_policies=found[0].has_policies,
        privileges=frozenset(found[0].privileges),
        may_number=found[0].may_number,
        columns=tuple((each.name, each.type) for each in columns),
        indexes=tuple(session.load(BufferIndex, _INDEXES, names, doing=_DOING)),
    )
