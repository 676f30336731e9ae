"""A Postgres server in perfect order, for tests that then break one thing of it."""

from __future__ import annotations

from typing import Any

from frazil.model.postgres.facts import (
    Attribute,
    GeneratedKind,
    IdentityKind,
    Persistence,
    PostgresFacts,
    PrimaryKey,
    PublicationFacts,
    PublishedTable,
    RelationKind,
    RoleFacts,
    ServerFacts,
    SlotFacts,
    TableFacts,
    TablePrivileges,
    WalStatus,
)
from frazil.model.postgres.names import QualifiedName

GIB = 2**30
ORDERS = QualifiedName("shop", "orders")
ROLE = RoleFacts(
    name="frazil",
    is_superuser=False,
    may_replicate=True,
    bypasses_row_security=False,
    may_create_publication=True,
)
SERVER = ServerFacts(
    version=180001,
    system_identifier="7",
    timeline=1,
    database="sales",
    encoding="UTF8",
    is_standby=False,
    wal_level="logical",
    max_slots=10,
    slots_used=1,
    max_senders=10,
    senders_used=1,
    slot_wal_limit_bytes=40 * GIB,
    idle_slot_limit_seconds=None,
    sender_limit_seconds=60,
    block_bytes=8192,
    role=ROLE,
    uses_tls=True,
    is_local=False,
    clock_ahead_seconds=0.1,
)
SLOT = SlotFacts(
    name="sales_frazil",
    plugin="pgoutput",
    database="sales",
    is_temporary=False,
    is_active=False,
    confirmed_flush=16,
    restart=8,
    wal_status=WalStatus.RESERVED,
    safe_wal_bytes=GIB,
    invalidation_reason=None,
    is_two_phase=False,
    is_failover=False,
)


def attribute(number: int, name: str, **facts: Any) -> Attribute:
    usual: dict[str, Any] = {
        "type_oid": 23,
        "type_modifier": -1,
        "type_name": "integer",
        "base_type_oid": 23,
        "element_type_oid": None,
        "is_not_null": False,
        "generated": GeneratedKind.NO,
    }
    return Attribute(number=number, name=name, **{**usual, **facts})


TABLE = TableFacts(
    oid=1,
    name=ORDERS,
    kind=RelationKind.TABLE,
    persistence=Persistence.PERMANENT,
    root_oid=None,
    identity=IdentityKind.DEFAULT,
    identity_columns=("id",),
    key=PrimaryKey(columns=("id",), is_deferrable=False),
    attributes=(attribute(1, "id"), attribute(2, "word")),
    estimated_pages=1,
    estimated_rows=1,
    has_row_security=False,
    privileges=TablePrivileges(uses_schema=True, selects=True, owns=True),
)
SENT = PublishedTable(
    oid=1,
    name=ORDERS,
    membership_oid=99,
    columns=("id", "word"),
    has_column_list=False,
    row_filter=None,
)
PUBLICATION = PublicationFacts(
    oid=50,
    name="sales_frazil",
    is_ours=True,
    sends_all_tables=False,
    sends_inserts=True,
    sends_updates=True,
    sends_deletes=True,
    sends_truncates=True,
    via_root=True,
    sends_generated=False,
    tables=(SENT,),
)
SOUND = PostgresFacts(server=SERVER, slot=SLOT, publication=PUBLICATION, tables=(TABLE,))
