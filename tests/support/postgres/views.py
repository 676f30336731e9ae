"""A small table as the catalog shows it, with any fact changed: for tests of what is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from frazil.model.postgres.types import TypeKind, TypeRow
from frazil.sources.postgres.tables.catalog_view import CatalogView
from tests.support.postgres import sound

if TYPE_CHECKING:
    from frazil.model.postgres.facts import Attribute

INT, TEXT, NUMERIC, INTS = 23, 25, 1700, 1007
TYPES = {
    oid: TypeRow(oid, name, TypeKind.BASE)
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
} | {INTS: TypeRow(INTS, "integer[]", TypeKind.ARRAY, inner=INT)}
SERVER = replace(sound.SERVER, system_identifier="7000")


def attribute(number: int, name: str, type_oid: int = INT, **facts: Any) -> Attribute:
    types = {"type_oid": type_oid, "base_type_oid": type_oid, "type_name": "whatever"}
    return sound.attribute(number, name, **{**types, **facts})


ID = attribute(1, "id", has_default=True)
WORD = attribute(3, "word", TEXT)


def view(*attributes: Attribute, **changed: Any) -> CatalogView:
    """A table with the primary key ``id``; what is changed goes to the facts that have it."""
    found = attributes or (ID, WORD)
    table = replace(sound.TABLE, attributes=found, dropped_numbers=(2,))
    published = replace(sound.SENT, columns=tuple(each.name for each in found))
    publication = replace(sound.PUBLICATION, tables=())
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
    "table_changed_by",
    "table_unique_keys",
    "table_moved_by",
    "table_toast_oid",
    "publication_options_changed_by",
    "published_is_implicit",
}
