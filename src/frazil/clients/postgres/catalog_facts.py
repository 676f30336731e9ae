"""Facts about a server, a slot, a publication and many tables, in a few questions.

Nothing here waits for a lock that a change of a table holds, except the questions for publications
and page counts, which wait as long as the session's patience.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from frazil import errors
from frazil.clients.postgres import catalog_queries as queries
from frazil.hooks import SystemClock
from frazil.model.postgres.facts import (
    VERSION_STEP,
    Attribute,
    CatalogRelation,
    GeneratedKind,
    IdentityKind,
    Leaf,
    Persistence,
    PrimaryKey,
    PublicationFacts,
    PublishedTable,
    RelationKind,
    RoleFacts,
    RunningTransaction,
    ServerFacts,
    SlotFacts,
    SlotReader,
    TableFacts,
    TablePrivileges,
    UniqueKey,
    WalStatus,
)
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.postgres.names import QualifiedName
from frazil.model.postgres.types import TypeKind, TypeRow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from frazil.clients.postgres.session import Session
    from frazil.hooks import Clock

_CLOCK = SystemClock()
_COLUMN_LISTS = 15 * VERSION_STEP
_SETTINGS = (
    "wal_level",
    "max_replication_slots",
    "max_wal_senders",
    "max_slot_wal_keep_size",
    "idle_replication_slot_timeout",
    "wal_sender_timeout",
    "block_size",
    "hot_standby_feedback",
)
_BYTES = {"B": 1, "kB": 2**10, "8kB": 2**13, "MB": 2**20, "GB": 2**30}
_SECONDS = {"ms": 0.001, "s": 1, "min": 60}
_UNLIMITED = -1
_SWITCHED_OFF = 0


class _ServerRow(NamedTuple):
    version: int
    system_identifier: str
    timeline: int
    database: str
    encoding: str
    is_standby: bool
    slots_used: int
    senders_used: int
    is_local: bool
    clock: float


class _Setting(NamedTuple):
    name: str
    value: str
    unit: str | None


class _RoleRow(NamedTuple):
    name: str
    is_superuser: bool
    may_replicate: bool
    bypasses_row_security: bool
    may_create_publication: bool


class _SlotRow(NamedTuple):
    name: str
    plugin: str | None
    database: str | None
    is_temporary: bool
    is_active: bool
    confirmed_flush: str | None
    restart: str | None
    wal_status: str | None
    safe_wal_bytes: int | None
    invalidation_reason: str | None
    is_two_phase: bool
    is_failover: bool


class _ReaderRow(NamedTuple):
    slot: str
    is_temporary: bool
    process: int | None
    application: str | None
    role: str | None


class _PublicationRow(NamedTuple):
    oid: int
    name: str
    is_ours: bool
    sends_all_tables: bool
    sends_inserts: bool
    sends_updates: bool
    sends_deletes: bool
    sends_truncates: bool
    via_root: bool
    sends_generated: bool
    options_changed_by: int


class _PublishedRow(NamedTuple):
    oid: int
    schema: str
    name: str
    membership_oid: int | None
    columns: list[str] | None
    has_column_list: bool
    row_filter: str | None
    is_implicit: bool


class _RelationRow(NamedTuple):
    oid: int
    schema: str
    name: str
    kind: str
    root_oid: int | None


class _TableRow(NamedTuple):
    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    root_oid: int | None
    identity: str
    identity_numbers: list[int] | None
    key_numbers: list[int] | None
    key_is_deferrable: bool
    pages: int | None
    rows: int | None
    has_row_security: bool
    uses_schema: bool
    selects: bool
    owns: bool
    moved_by: int | None
    toast_oid: int


class _AttributeRow(NamedTuple):
    table_oid: int
    number: int
    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    element_type_oid: int | None
    is_not_null: bool
    generated: str
    missing_value: str | None
    has_default: bool


class _NumberRow(NamedTuple):
    table_oid: int
    number: int
    is_dropped: bool
    changed_by: int


class _UniqueRow(NamedTuple):
    table_oid: int
    oid: int
    index_oid: int
    numbers: list[int]
    made_by: int


class _TypeFacts(NamedTuple):
    oid: int
    name: str
    kind: str
    inner: int
    modifier: int
    delimiter: str


def load_server(session: Session, *, clock: Clock = _CLOCK) -> ServerFacts:
    """The server, its settings and our role there."""
    before = clock.now()
    (server,) = session.load(_ServerRow, queries.SERVER, doing="loading the server's facts")
    ours = before + (clock.now() - before) / 2
    settings = _load_settings(session)
    (role,) = session.load(_RoleRow, queries.ROLE, doing="loading the role's rights")
    return ServerFacts(
        version=server.version,
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        database=server.database,
        encoding=server.encoding,
        is_standby=server.is_standby,
        wal_level=settings["wal_level"].value,
        max_slots=int(settings["max_replication_slots"].value),
        slots_used=server.slots_used,
        max_senders=int(settings["max_wal_senders"].value),
        senders_used=server.senders_used,
        slot_wal_limit_bytes=_bytes(settings["max_slot_wal_keep_size"]),
        idle_slot_limit_seconds=_integer_seconds(settings.get("idle_replication_slot_timeout")),
        sender_limit_seconds=_seconds(settings["wal_sender_timeout"]),
        block_bytes=int(settings["block_size"].value),
        role=RoleFacts(**role._asdict()),
        uses_tls=session.uses_tls,
        is_local=server.is_local,
        clock_ahead_seconds=server.clock - ours.timestamp(),
        has_standby_feedback=settings["hot_standby_feedback"].value == "on",
    )


def _load_settings(session: Session) -> dict[str, _Setting]:
    parameters = {"names": list(_SETTINGS)}
    doing = "loading the server's settings"
    return {
        row.name: row for row in session.load(_Setting, queries.SETTINGS, parameters, doing=doing)
    }


def _bytes(setting: _Setting) -> int | None:
    value = int(setting.value)
    return None if value == _UNLIMITED else value * _BYTES[setting.unit or "B"]


def _seconds(setting: _Setting) -> float | None:
    value = int(setting.value)
    return None if value == _SWITCHED_OFF else value * _SECONDS[setting.unit or "s"]


def _integer_seconds(setting: _Setting | None) -> int | None:
    # Version 18 is the first to have it.
    seconds = _seconds(setting) if setting is not None else None
    return None if seconds is None else round(seconds)


def load_slot(session: Session, name: str) -> SlotFacts | None:
    """The slot of this name, None if there is none."""
    doing = f"loading the slot {name}"
    rows = session.load(_SlotRow, queries.SLOT, {"slot": name}, doing=doing)
    if not rows:
        return None
    row = rows[0]
    return SlotFacts(
        name=row.name,
        plugin=row.plugin,
        database=row.database,
        is_temporary=row.is_temporary,
        is_active=row.is_active,
        confirmed_flush=_position(row.confirmed_flush),
        restart=_position(row.restart),
        wal_status=None if row.wal_status is None else WalStatus(row.wal_status),
        safe_wal_bytes=row.safe_wal_bytes,
        invalidation_reason=row.invalidation_reason,
        is_two_phase=row.is_two_phase,
        is_failover=row.is_failover,
    )


def load_readers(session: Session, prefix: str) -> tuple[SlotReader, ...]:
    """All slots whose names begin so, and who reads each of them."""
    doing = "loading the readers of the slots"
    rows = session.load(_ReaderRow, queries.SLOT_READERS, {"prefix": prefix}, doing=doing)
    return tuple(SlotReader(**row._asdict()) for row in rows)


def _position(text: str | None) -> int | None:
    return None if text is None else parse_lsn(text)


def load_publication(session: Session, name: str) -> PublicationFacts | None:
    """The publication of this name and what it sends, None if there is none."""
    doing = f"loading the publication {name}"
    found = session.load(_PublicationRow, queries.PUBLICATION, {"publication": name}, doing=doing)
    if not found:
        return None
    row = found[0]
    has_lists = session.server_version >= _COLUMN_LISTS
    query = queries.PUBLISHED if has_lists else queries.PUBLISHED_14
    parameters = {"publication": name, "oid": row.oid}
    tables = session.load(_PublishedRow, query, parameters, doing=doing)
    return PublicationFacts(**row._asdict(), tables=tuple(map(_published, tables)))


def _published(row: _PublishedRow) -> PublishedTable:
    return PublishedTable(
        oid=row.oid,
        name=QualifiedName(row.schema, row.name),
        membership_oid=row.membership_oid,
        # None is what the view shows for a table without a column.
        columns=tuple(row.columns or ()),
        has_column_list=row.has_column_list,
        row_filter=row.row_filter,
        is_implicit=row.is_implicit,
    )


def load_relations(session: Session) -> tuple[CatalogRelation, ...]:
    """All relations that a pattern can match, by schema and name."""
    rows = session.load(_RelationRow, queries.RELATIONS, doing="listing the tables")
    return tuple(
        CatalogRelation(
            oid=row.oid,
            name=QualifiedName(row.schema, row.name),
            kind=RelationKind(row.kind),
            root_oid=row.root_oid,
        )
        for row in rows
    )


def load_tables(session: Session, oids: Collection[int]) -> tuple[TableFacts, ...]:
    """These tables by schema and name; one that has gone meanwhile is left out."""
    parameters = {"oids": list(oids)}
    doing = "loading the tables' facts"
    rows = session.load(_TableRow, queries.TABLES, parameters, doing=doing)
    attributes: defaultdict[int, list[Attribute]] = defaultdict(list)
    for row in session.load(_AttributeRow, queries.ATTRIBUTES, parameters, doing=doing):
        attributes[row.table_oid].append(_attribute(row))
    numbers: defaultdict[int, list[_NumberRow]] = defaultdict(list)
    for number in session.load(_NumberRow, queries.NUMBERS, parameters, doing=doing):
        numbers[number.table_oid].append(number)
    unique: defaultdict[int, list[_UniqueRow]] = defaultdict(list)
    for key in session.load(_UniqueRow, queries.UNIQUE_KEYS, parameters, doing=doing):
        unique[key.table_oid].append(key)
    return tuple(
        replace(
            _table(row, attributes[row.oid], unique[row.oid]),
            dropped_numbers=tuple(each.number for each in numbers[row.oid] if each.is_dropped),
            changed_by=tuple((each.number, each.changed_by) for each in numbers[row.oid]),
        )
        for row in rows
    )


def _attribute(row: _AttributeRow) -> Attribute:
    return Attribute(
        number=row.number,
        name=row.name,
        type_oid=row.type_oid,
        type_modifier=row.type_modifier,
        type_name=row.type_name,
        base_type_oid=row.base_type_oid,
        element_type_oid=row.element_type_oid,
        is_not_null=row.is_not_null,
        generated=GeneratedKind(row.generated),
        missing_value=row.missing_value,
        has_default=row.has_default,
    )


def _table(
    row: _TableRow, attributes: Sequence[Attribute], unique: Sequence[_UniqueRow]
) -> TableFacts:
    names = {attribute.number: attribute.name for attribute in attributes}
    key = None
    if row.key_numbers is not None:
        columns = _columns(row.key_numbers, names)
        key = PrimaryKey(columns=columns, is_deferrable=row.key_is_deferrable)
    return TableFacts(
        oid=row.oid,
        name=QualifiedName(row.schema, row.name),
        kind=RelationKind(row.kind),
        persistence=Persistence(row.persistence),
        root_oid=row.root_oid,
        identity=IdentityKind(row.identity),
        identity_columns=_columns(row.identity_numbers or (), names),
        key=key,
        attributes=tuple(attributes),
        estimated_pages=row.pages,
        estimated_rows=row.rows,
        has_row_security=row.has_row_security,
        privileges=TablePrivileges(uses_schema=row.uses_schema, selects=row.selects, owns=row.owns),
        unique_keys=tuple(
            UniqueKey(
                oid=each.oid,
                index_oid=each.index_oid,
                columns=_columns(each.numbers, names),
                made_by=each.made_by,
            )
            for each in unique
        ),
        moved_by=row.moved_by,
        toast_oid=row.toast_oid,
    )


def _columns(numbers: Sequence[int], names: Mapping[int, str]) -> tuple[str, ...]:
    try:
        return tuple(names[number] for number in numbers)
    except KeyError:
        # Two questions, and a change in between; one view would have prevented it.
        message = "a table changed while its facts were loaded."
        raise errors.SourceUnavailableError(message) from None


def load_types(session: Session, oids: Collection[int]) -> dict[int, TypeRow]:
    """These types, with the bases of domains and the elements of arrays, however deep.

    One that has gone meanwhile is left out.
    """
    parameters = {"oids": list(oids)}
    rows = session.load(_TypeFacts, queries.TYPES, parameters, doing="loading types")
    return {
        row.oid: TypeRow(
            row.oid, row.name, TypeKind(row.kind), row.inner, row.modifier, row.delimiter
        )
        for row in rows
    }


class _LeafRow(NamedTuple):
    root: int
    oid: int
    schema: str
    name: str
    pages: int


def load_leaves(
    session: Session, oids: Collection[int], *, block_bytes: int
) -> dict[int, tuple[Leaf, ...]]:
    """Where the rows of these tables are, with the pages they take at the moment."""
    parameters = {"oids": list(oids), "block_bytes": block_bytes}
    doing = "loading the tables' sizes"
    found: defaultdict[int, list[Leaf]] = defaultdict(list)
    for row in session.load(_LeafRow, queries.LEAVES, parameters, doing=doing):
        found[row.root].append(Leaf(QualifiedName(row.schema, row.name), row.pages))
    return {oid: tuple(found[oid]) for oid in oids}


class _TransactionRow(NamedTuple):
    process: int | None
    role: str | None
    age_seconds: float | None
    prepared: str | None


def load_open_transactions(session: Session) -> tuple[RunningTransaction, ...]:
    """Transactions of others that have written something and have not ended, the oldest first."""
    doing = "loading open transactions"
    rows = session.load(_TransactionRow, queries.OPEN_TRANSACTIONS, doing=doing)
    return tuple(RunningTransaction(**row._asdict()) for row in rows)


class _PositionRow(NamedTuple):
    position: str


def load_position(session: Session) -> int:
    """How far the server's log is."""
    doing = "loading the server's log position"
    (row,) = session.load(_PositionRow, queries.CURRENT_LSN, doing=doing)
    return parse_lsn(row.position)
