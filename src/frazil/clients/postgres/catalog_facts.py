"""Facts about a server, a slot, a publication and many tables, in a few questions.

Nothing here waits for a lock that a change of a table holds, except the questions for publications
and page counts, which wait as long as the session's patience.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from frazil import errors
from frazil.clients.postgres import catalog_queries as queries
from frazil.hooks import SystemClock
from frazil.model.postgres import facts
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.postgres.names import QualifiedName
from frazil.model.postgres.types import TypeKind, TypeRow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from frazil.clients.postgres.session import Session
    from frazil.hooks import Clock

_CLOCK = SystemClock()
_COLUMN_LISTS = 15 * facts.VERSION_STEP
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
# What the catalog's tables say is as of the snapshot; what its functions say is as of now.
_COLUMNS = """
select a.attname, a.attnum, c.relfilenode = pg_relation_filenode(c.oid)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.oid = to_regclass(%(quoted)s)
  and c.relname = %(name)s
  and n.nspname = %(schema)s
"""


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


def load_server(session: Session, *, clock: Clock = _CLOCK) -> facts.ServerFacts:
    """The server, its settings and our role there."""
    before = clock.now()
    (server,) = session.load(_ServerRow, queries.SERVER, doing="loading the server's facts")
    ours = before + (clock.now() - before) / 2
    settings = _load_settings(session)
    (role,) = session.load(facts.RoleFacts, queries.ROLE, doing="loading the role's rights")
    columns = server._asdict()
    clock_ahead = columns.pop("clock") - ours.timestamp()
    return facts.ServerFacts(
        **columns,
        wal_level=settings["wal_level"].value,
        max_slots=int(settings["max_replication_slots"].value),
        max_senders=int(settings["max_wal_senders"].value),
        slot_wal_limit_bytes=_bytes(settings["max_slot_wal_keep_size"]),
        idle_slot_limit_seconds=_integer_seconds(settings.get("idle_replication_slot_timeout")),
        sender_limit_seconds=_seconds(settings["wal_sender_timeout"]),
        block_bytes=int(settings["block_size"].value),
        role=role,
        uses_tls=session.uses_tls,
        clock_ahead_seconds=clock_ahead,
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


def load_slot(session: Session, name: str) -> facts.SlotFacts | None:
    """The slot of this name, None if there is none."""
    doing = f"loading the slot {name}"
    rows = session.load(_SlotRow, queries.SLOT, {"slot": name}, doing=doing)
    if not rows:
        return None
    row = rows[0]
    columns = row._asdict() | {
        "confirmed_flush": _position(row.confirmed_flush),
        "restart": _position(row.restart),
        "wal_status": None if row.wal_status is None else facts.WalStatus(row.wal_status),
    }
    return facts.SlotFacts(**columns)


def load_readers(session: Session, prefix: str) -> tuple[facts.SlotReader, ...]:
    """All slots whose names begin so, and who reads each of them."""
    doing = "loading the readers of the slots"
    return tuple(
        session.load(facts.SlotReader, queries.SLOT_READERS, {"prefix": prefix}, doing=doing)
    )


def _position(text: str | None) -> int | None:
    return None if text is None else parse_lsn(text)


def load_publication(session: Session, name: str) -> facts.PublicationFacts | None:
    """The publication of this name and what it sends, None if there is none."""
    doing = f"loading the publication {name}"
    parameters: dict[str, object] = {"publication": name}
    found = session.load(facts.PublicationFacts, queries.PUBLICATION, parameters, doing=doing)
    if not found:
        return None
    has_lists = session.server_version >= _COLUMN_LISTS
    query = queries.PUBLISHED if has_lists else queries.PUBLISHED_14
    rows = session.load(_PublishedRow, query, parameters | {"oid": found[0].oid}, doing=doing)
    # None is what the view shows for a table without a column.
    tables = (
        facts.PublishedTable(**_named(row) | {"columns": tuple(row.columns or ())}) for row in rows
    )
    return replace(found[0], tables=tuple(tables))


def _named(row: _PublishedRow | _RelationRow) -> dict[str, Any]:
    """The columns of a row, schema and name as one."""
    columns = row._asdict()
    columns["name"] = QualifiedName(columns.pop("schema"), row.name)
    return columns


def load_relations(session: Session) -> tuple[facts.CatalogRelation, ...]:
    """All relations that a pattern can match, by schema and name."""
    rows = session.load(_RelationRow, queries.RELATIONS, doing="listing the tables")
    return tuple(
        facts.CatalogRelation(**_named(row) | {"kind": facts.RelationKind(row.kind)})
        for row in rows
    )


def load_tables(session: Session, oids: Collection[int]) -> tuple[facts.TableFacts, ...]:
    """These tables by schema and name; one that has gone meanwhile is left out."""
    parameters = {"oids": list(oids)}
    doing = "loading the tables' facts"
    rows = session.load(_TableRow, queries.TABLES, parameters, doing=doing)
    attributes: defaultdict[int, list[facts.Attribute]] = defaultdict(list)
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


def _attribute(row: _AttributeRow) -> facts.Attribute:
    columns = row._asdict() | {"generated": facts.GeneratedKind(row.generated)}
    del columns["table_oid"]
    return facts.Attribute(**columns)


def _table(
    row: _TableRow, attributes: Sequence[facts.Attribute], unique: Sequence[_UniqueRow]
) -> facts.TableFacts:
    names = {attribute.number: attribute.name for attribute in attributes}
    key = None
    if row.key_numbers is not None:
        columns = _columns(row.key_numbers, names)
        key = facts.PrimaryKey(columns=columns, is_deferrable=row.key_is_deferrable)
    return facts.TableFacts(
        oid=row.oid,
        name=QualifiedName(row.schema, row.name),
        kind=facts.RelationKind(row.kind),
        persistence=facts.Persistence(row.persistence),
        root_oid=row.root_oid,
        identity=facts.IdentityKind(row.identity),
        identity_columns=_columns(row.identity_numbers or (), names),
        key=key,
        attributes=tuple(attributes),
        estimated_pages=row.pages,
        estimated_rows=row.rows,
        has_row_security=row.has_row_security,
        privileges=facts.TablePrivileges(
            uses_schema=row.uses_schema, selects=row.selects, owns=row.owns
        ),
        unique_keys=tuple(
            facts.UniqueKey(
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
    rows = session.load(TypeRow, queries.TYPES, parameters, doing="loading types")
    # The kind comes as a letter.
    return {row.oid: replace(row, kind=TypeKind(row.kind)) for row in rows}


class _LeafRow(NamedTuple):
    root: int
    oid: int
    schema: str
    name: str
    pages: int


def load_leaves(
    session: Session, oids: Collection[int], *, block_bytes: int
) -> dict[int, tuple[facts.Leaf, ...]]:
    """Where the rows of these tables are, with the pages they take at the moment."""
    parameters = {"oids": list(oids), "block_bytes": block_bytes}
    doing = "loading the tables' sizes"
    found: defaultdict[int, list[facts.Leaf]] = defaultdict(list)
    for row in session.load(_LeafRow, queries.LEAVES, parameters, doing=doing):
        found[row.root].append(facts.Leaf(QualifiedName(row.schema, row.name), row.pages))
    return {oid: tuple(found[oid]) for oid in oids}


def load_open_transactions(session: Session) -> tuple[facts.RunningTransaction, ...]:
    """Transactions of others that have written something and have not ended, the oldest first."""
    doing = "loading open transactions"
    return tuple(session.load(facts.RunningTransaction, queries.OPEN_TRANSACTIONS, doing=doing))


class _PositionRow(NamedTuple):
    position: str


def load_position(session: Session) -> int:
    """How far the server's log is."""
    doing = "loading the server's log position"
    (row,) = session.load(_PositionRow, queries.CURRENT_LSN, doing=doing)
    return parse_lsn(row.position)


class _ColumnRow(NamedTuple):
    name: str | None
    number: int | None
    is_same_file: bool


def load_snapshot_columns(session: Session, relation: QualifiedName) -> dict[str, int] | None:
    """The numbers of a table's columns by their names in the session's snapshot.

    None when the table of this name is another one by now, or was written again, which the server
    does not check. Names in a query mean what they mean now, whatever snapshot it runs in. And the
    rows of a table that was written again since, by a change of a column's type or by TRUNCATE, are
    in no older snapshot: there the table is empty. The session must have read from the table
    before: then it is locked against changes.
    """
    parameters = {"quoted": relation.quoted, "name": relation.name, "schema": relation.schema}
    rows = session.load(_ColumnRow, _COLUMNS, parameters, doing="loading a table's columns")
    if not rows or not all(row.is_same_file for row in rows):
        return None
    return {row.name: row.number for row in rows if row.name is not None and row.number is not None}
