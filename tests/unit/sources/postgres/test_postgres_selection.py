"""Patterns choose tables, and say when they choose none."""

from __future__ import annotations

from frazil.model.postgres.facts import CatalogRelation, RelationKind
from frazil.model.postgres.names import QualifiedName
from frazil.sources.postgres.tables.selection import select_tables

PARTED, LEAF, SUB_LEAF = 3, 4, 5
RELATIONS = (
    CatalogRelation(oid=1, name=QualifiedName("public", "orders"), kind=RelationKind.TABLE),
    CatalogRelation(oid=2, name=QualifiedName("public", "a.b[c]"), kind=RelationKind.TABLE),
    CatalogRelation(
        oid=PARTED, name=QualifiedName("public", "parted"), kind=RelationKind.PARTITIONED
    ),
    CatalogRelation(
        oid=LEAF, name=QualifiedName("public", "leaf"), kind=RelationKind.TABLE, root_oid=PARTED
    ),
    CatalogRelation(
        oid=SUB_LEAF,
        name=QualifiedName("elsewhere", "leaf"),
        kind=RelationKind.TABLE,
        root_oid=PARTED,
    ),
    CatalogRelation(oid=6, name=QualifiedName("public", "view"), kind=RelationKind.VIEW),
)


def chosen(*include: str, exclude: tuple[str, ...] = ()) -> tuple[int, ...]:
    return select_tables(RELATIONS, include=include, exclude=exclude).oids


def test_a_star_means_all_tables_of_a_schema_but_no_partition_in_addition_to_its_root() -> None:
    assert chosen("public.*") == (1, 2, PARTED)


def test_a_partition_is_chosen_where_its_root_is_not() -> None:
    assert chosen("*.leaf") == (LEAF, SUB_LEAF)
    assert chosen("*.*", exclude=("public.parted",)) == (1, 2, LEAF, SUB_LEAF)


def test_a_view_is_chosen_only_by_its_very_name() -> None:
    assert chosen("public.view") == (6,)
    assert chosen("public.vie?") == ()


def test_other_characters_mean_themselves() -> None:
    assert chosen("public.a.b[c]") == (2,)
    assert chosen("public.aXb[c]") == ()
    assert chosen("public.order?") == (1,)
    assert chosen("PUBLIC.orders") == ()


def test_a_pattern_that_means_nothing_is_named() -> None:
    found = select_tables(
        RELATIONS, include=["public.order", "public.orders"], exclude=["public.orders"]
    )
    assert found.oids == ()
    assert found.unmatched == ("public.order",)
