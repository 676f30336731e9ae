"""What is to be known of a PostgreSQL server before changes are read from it: facts, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.model.postgres.names import QualifiedName

# As the server counts: major version times this.
VERSION_STEP = 10_000


class RelationKind(StrEnum):
    """What a relation is, by the catalog's letters."""

    TABLE = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN = "f"


class Persistence(StrEnum):
    """Where a relation's changes go."""

    PERMANENT = "p"
    UNLOGGED = "u"
    TEMPORARY = "t"


class IdentityKind(StrEnum):
    """Which columns of an old row the server sends."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


class GeneratedKind(StrEnum):
    """Whether, and when, a column is computed from others."""

    NO = ""
    STORED = "s"
    VIRTUAL = "v"


class WalStatus(StrEnum):
    """Whether the log that a slot needs is still there."""

    RESERVED = "reserved"
    EXTENDED = "extended"
    UNRESERVED = "unreserved"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The role that we are at the server.

    ``may_replicate`` counts memberships by which hosted servers grant it;
    ``may_create_publication`` is the right to create objects in this database.
    """

    name: str
    is_superuser: bool
    may_replicate: bool
    bypasses_row_security: bool
    may_create_publication: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server and the database we are connected to.

    ``slot_wal_limit_bytes`` and ``idle_slot_limit_seconds`` are None where there is no limit, or
    where the version knows none. ``clock_ahead_seconds`` is its clock minus ours.
    ``has_standby_feedback`` says that a standby reports to its primary which rows it still needs.
    """

    version: int
    system_identifier: str
    timeline: int
    database: str
    encoding: str
    is_standby: bool
    wal_level: str
    max_slots: int
    slots_used: int
    max_senders: int
    senders_used: int
    slot_wal_limit_bytes: int | None
    idle_slot_limit_seconds: int | None
    sender_limit_seconds: float | None
    block_bytes: int
    role: RoleFacts
    uses_tls: bool
    is_local: bool
    clock_ahead_seconds: float
    has_standby_feedback: bool = True

    @property
    def major(self) -> int:
        """The version as people name it."""
        return self.version // VERSION_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """A replication slot; positions are None until it has any.

    ``plugin`` and ``database`` are None for a physical slot, and ``invalidation_reason`` for a slot
    that is valid or a server that does not show it.
    """

    name: str
    plugin: str | None
    database: str | None
    is_temporary: bool
    is_active: bool
    confirmed_flush: int | None
    restart: int | None
    wal_status: WalStatus | None
    safe_wal_bytes: int | None
    invalidation_reason: str | None
    is_two_phase: bool
    is_failover: bool

    @property
    def is_lost(self) -> bool:
        """Whether the server can no longer give what the slot promised."""
        return self.wal_status is WalStatus.LOST or self.invalidation_reason is not None


@dataclass(frozen=True, slots=True)
class SlotReader:
    """A slot and who holds it: the server's process, and what its connection is called."""

    slot: str
    is_temporary: bool
    process: int | None
    application: str | None
    role: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table as a publication sends it.

    ``membership_oid`` is the row of ``pg_publication_rel`` for the table or else for its root, or
    that of ``pg_publication_namespace`` for its schema; None where all tables are published. It
    changes when the table leaves and enters again. ``is_implicit`` says that neither the table nor
    its root was named: it is published as one of all tables, or of its schema. ``row_filter`` is
    SQL with all names qualified.
    """

    oid: int
    name: QualifiedName
    membership_oid: int | None
    columns: tuple[str, ...]
    has_column_list: bool
    row_filter: str | None
    is_implicit: bool = False


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication and all that it sends.

    ``options_changed_by`` is the transaction (32 bits) that changed these, or its owner, last.
    """

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
    options_changed_by: int = 0
    tables: tuple[PublishedTable, ...] = ()

    def table(self, oid: int) -> PublishedTable | None:
        """How this table is published, if it is."""
        return next((each for each in self.tables if each.oid == oid), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRelation:
    """A relation of the database: enough to choose from.

    ``root_oid`` is the topmost partitioned table of a partition.
    """

    oid: int
    name: QualifiedName
    kind: RelationKind
    root_oid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A column. The number stays with it for ever; name, position and type do not.

    ``missing_value`` is the text of what rows older than the column show in it, None where no row
    is older, or where all of them were written again since. ``has_default`` says that a row that
    does not name the column gets something in it: a default, its type's, a number of its own, or a
    computed value. ``base_type_oid`` is what a domain represents, else the type itself;
    ``element_type_oid`` is an array's.
    """

    number: int
    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    element_type_oid: int | None
    is_not_null: bool
    generated: GeneratedKind
    missing_value: str | None = field(default=None, repr=False)
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows itself, and how many pages it has."""

    name: QualifiedName
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryKey:
    """The columns of a primary key, in its order."""

    columns: tuple[str, ...]
    is_deferrable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """Columns of which no two rows ever have the same values, and none is null.

    ``oid`` is the constraint's, which outlives the rebuilding of its index, or that of an index
    without one. ``index_oid`` outlives a constraint that is made of an index which is there.
    ``made_by`` is the transaction (32 bits) that wrote it.
    """

    oid: int
    columns: tuple[str, ...]
    made_by: int
    index_oid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePrivileges:
    """What our role may do with a table, by grants alone."""

    uses_schema: bool
    selects: bool
    owns: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table at the source.

    ``persistence`` of a partitioned table is that of its least durable leaf.
    ``identity_columns`` are those of an old row that the server sends, none if it sends no old row.
    ``root_oid`` is the topmost partitioned table of a partition. ``has_row_security`` says that a
    policy applies to our role. Pages and rows are the server's estimates, None before its first.
    ``dropped_numbers`` belonged to columns that are gone, and are never given again.
    ``changed_by`` pairs every number, also of those, with the transaction (32 bits) that changed
    the column last. ``moved_by`` is the one that moved the table to its schema, or created it.
    ``toast_oid`` is 0 for a table whose rows are always small; it changes when rows are written
    into another table instead of this one, as ALTER TABLE does, and VACUUM FULL does not.
    """

    oid: int
    name: QualifiedName
    kind: RelationKind
    persistence: Persistence
    root_oid: int | None
    identity: IdentityKind
    identity_columns: tuple[str, ...]
    key: PrimaryKey | None
    attributes: tuple[Attribute, ...]
    estimated_pages: int | None
    estimated_rows: int | None
    has_row_security: bool
    privileges: TablePrivileges
    dropped_numbers: tuple[int, ...] = ()
    changed_by: tuple[tuple[int, int], ...] = ()
    unique_keys: tuple[UniqueKey, ...] = ()
    moved_by: int | None = None
    toast_oid: int = 0

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are in other tables."""
        return self.kind is RelationKind.PARTITIONED

    def attribute(self, name: str) -> Attribute | None:
        """The column of this name."""
        return next((each for each in self.attributes if each.name == name), None)

    def keys_within(self, columns: Collection[str]) -> tuple[UniqueKey, ...]:
        """What makes rows unique by these columns, or by some of them already."""
        return tuple(each for each in self.unique_keys if set(each.columns) <= set(columns))


@dataclass(frozen=True, slots=True)
class RunningTransaction:
    """A transaction that a new slot waits for: who has it open, and since how many seconds.

    ``prepared`` is the name of a prepared one, which no process has open. The age is None where
    our role may not see it.
    """

    process: int | None
    role: str | None
    age_seconds: float | None
    prepared: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresFacts:
    """Everything a preflight checks; ``tables`` are those the configuration chose.

    ``nearest`` has for patterns without a match the relation that is called most like it.
    """

    server: ServerFacts
    slot: SlotFacts | None
    publication: PublicationFacts | None
    tables: tuple[TableFacts, ...]
    # Configured patterns that no relation matches.
    unmatched: tuple[str, ...] = ()
    nearest: Mapping[str, str] = field(default_factory=dict)
    transactions: tuple[RunningTransaction, ...] = ()

    @property
    def by_oid(self) -> Mapping[int, TableFacts]:
        """The tables by their relation's number."""
        return {table.oid: table for table in self.tables}
