"""A small table as the catalog shows it, with any fact changed: for tests of what is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from frazil.model.postgres_facts import (
    Attribute,
    GeneratedKind,
    IdentityKind,
    Persistence,
    PrimaryKey,
    PublicationFacts,
    PublishedTable,
    RelationKind,
    RoleFacts,
    ServerFacts,
    TableFacts,
    TablePrivileges,
)
from frazil.model.postgres_names import QualifiedName
from frazil.model.postgres_type import Kind, TypeRow
from frazil.sources.postgres.catalog_view import CatalogView

NAME = QualifiedName("shop", "orders")
INT, TEXT, NUMERIC, INTS = 23, 25, 1700, 1007
TYPES = {
    oid: TypeRow(oid, name, Kind.BASE)
    for oid, name in {
        16: "boolean",
        17: "bytea",
        20: "bigint",
        INT: "integer",
        TEXT: "text",
        700: "real",
        701: "double precision",
        1082: "date",
        1114: "timestamp without time zone",
        1184: "timestamp with time zone",
        2950: "uuid",
        NUMERIC: "numeric",
    }.items()
} | {INTS: TypeRow(INTS, "integer[]", Kind.ARRAY, inner=INT)}
SERVER = ServerFacts(
    version=180000,
    system_identifier="7000",
    timeline=1,
    database="sales",
    encoding="UTF8",
    is_standby=False,
    wal_level="logical",
    max_slots=10,
    slots_used=1,
    max_senders=10,
    senders_used=1,
    slot_wal_limit_bytes=None,
    idle_slot_limit_seconds=None,
    sender_limit_seconds=60,
    block_bytes=8192,
    role=RoleFacts(
        name="frazil",
        is_superuser=False,
        may_replicate=True,
        bypasses_row_security=False,
        may_create_publication=True,
    ),
    uses_tls=True,
    is_local=False,
    clock_ahead_seconds=0,
)


def attribute(number: int, name: str, type_oid: int = INT, **facts: Any) -> Attribute:
    usual: dict[str, Any] = {
        "type_modifier": -1,
        "type_name": "whatever",
        "base_type_oid": type_oid,
        "element_type_oid": None,
        "is_not_null": False,
        "generated": GeneratedKind.NO,
    }
    return Attribute(number=number, name=name, type_oid=type_oid, **{**usual, **facts})


ID = attribute(1, "id", has_default=True)
WORD = attribute(3, "word", TEXT)


def view(*attributes: Attribute, **changed: Any) -> CatalogView:
    """A table with the primary key ``id``; what is changed goes to the facts that have it."""
    found = attributes or (ID, WORD)
    table = TableFacts(
        oid=1,
        name=NAME,
        kind=RelationKind.TABLE,
        persistence=Persistence.PERMANENT,
        root_oid=None,
        identity=IdentityKind.DEFAULT,
        identity_columns=("id",),
        key=PrimaryKey(columns=("id",), is_deferrable=False),
        attributes=found,
        estimated_pages=1,
        estimated_rows=1,
        has_row_security=False,
        privileges=TablePrivileges(uses_schema=True, selects=True, owns=True),
        dropped_numbers=(2,),
    )
    published = PublishedTable(
        oid=1,
        name=NAME,
        membership_oid=99,
        columns=tuple(each.name for each in found),
        has_column_list=False,
        row_filter=None,
    )
    publication = PublicationFacts(
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
    )
    made = CatalogView(
        server=SERVER, publication=publication, published=published, table=table, types=TYPES
    )
    for part in ("server", "publication", "published", "table"):
        facts = getattr(made, part)
        mine = {key: value for key, value in changed.items() if part + "_" + key in PARTS}
        made = replace(made, **{part: replace(facts, **mine)})
    return made


PARTS = {
    "server_system_identifier",
    "server_database",
    "server_timeline",
    "publication_sends_truncates",
    "publication_via_root",
    "publication_sends_generated",
    "published_membership_oid",
    "published_row_filter",
    "published_has_column_list",
    "published_columns",
    "table_oid",
    "table_key",
    "table_identity",
    "table_identity_columns",
    "table_dropped_numbers",
}
