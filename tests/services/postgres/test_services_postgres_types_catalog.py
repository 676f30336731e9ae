"""Types and columns of real servers: what they are made of, and what their older rows show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.clients.postgres.catalog_facts import load_publication, load_tables, load_types
from frazil.model.postgres.types import TypeKind, resolve_type
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from frazil.model.postgres.facts import Attribute, TableFacts

pytestmark = pytest.mark.services

MADE = """
    create schema shop;
    create domain shop.price as numeric(10, 2);
    create domain shop.discount as shop.price;
    create domain shop.tags as text[];
    create domain shop.seven as int default 7;
    create type shop.mood as enum ('glad', 'sad');
    create type shop.point_pair as (x int, y int);
    create table shop.things (
        id int,
        discounts shop.discount[],
        tags shop.tags,
        mood shop.mood,
        pair shop.point_pair,
        boxes box[],
        vector int2vector,
        plain numeric(5, 1)
    );
    create table shop.grown (id int, gone int);
    insert into shop.grown values (1, 1);
    alter table shop.grown add column rolled float default random();
    alter table shop.grown add column five int default 5;
    alter table shop.grown add column forgotten int default 6;
    alter table shop.grown alter column forgotten drop default;
    alter table shop.grown add column late int;
    alter table shop.grown alter column late set default 1;
    alter table shop.grown add column plain int;
    alter table shop.grown drop column gone;
    create table shop.numbered (id int);
    insert into shop.numbered values (1);
    alter table shop.numbered add column own int generated always as identity;
    alter table shop.numbered add column seven shop.seven;
    alter table shop.numbered add column doubled int generated always as (id * 2) stored;
    create table shop.parted (id int) partition by list (id);
    create table shop.part_1 partition of shop.parted for values in (1);
    insert into shop.parted values (1);
    alter table shop.parted add column five int default 5;
    alter table shop.parted add column six int default 6;
    create table shop.part_2 partition of shop.parted for values in (2);
    alter table shop.parted alter column five drop default;
    create publication shop for tables in schema shop
"""


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "types_catalog") as made:
        made.run(*MADE.split(";"))
        yield made


def oid_of(database: Database, name: str, kind: str = "regclass") -> int:
    found = database.ask(f"select '{name}'::{kind}::oid::int8")
    assert isinstance(found, int)
    return found


def table(database: Database, name: str) -> TableFacts:
    with database.session() as session:
        (found,) = load_tables(session, [oid_of(database, name)])
    return found


def column(facts: TableFacts, name: str) -> Attribute:
    found = facts.attribute(name)
    assert found is not None
    return found


def test_a_type_comes_with_all_that_it_is_made_of(database: Database) -> None:
    things = table(database, "shop.things")
    with database.session() as session:
        rows = load_types(session, [each.type_oid for each in things.attributes])

    def printed(name: str) -> tuple[TypeKind, ...]:
        found = column(things, name)
        type_ = resolve_type(found.type_oid, found.type_modifier, rows)
        kinds = [type_.kind]
        while type_.inner is not None:
            type_ = type_.inner
            kinds.append(type_.kind)
        return tuple(kinds)

    assert printed("id") == (TypeKind.BASE,)
    assert printed("discounts") == (TypeKind.ARRAY, TypeKind.DOMAIN, TypeKind.DOMAIN, TypeKind.BASE)
    assert printed("tags") == (TypeKind.DOMAIN, TypeKind.ARRAY, TypeKind.BASE)
    assert printed("mood") == (TypeKind.ENUM,)
    assert printed("pair") == (TypeKind.COMPOSITE,)
    assert printed("boxes") == (TypeKind.ARRAY, TypeKind.BASE)
    assert printed("vector") == (TypeKind.BASE,)
    assert rows[oid_of(database, "box", "regtype")].delimiter == ";"
    assert rows[oid_of(database, "shop.price", "regtype")].name == "shop.price"
    discount = column(things, "discounts")
    innermost = resolve_type(discount.type_oid, discount.type_modifier, rows).inner
    assert innermost is not None
    assert innermost.behind_domains.modifier == (10 << 16) + 2 + 4


def test_types_are_only_loaded_if_needed(database: Database) -> None:
    with database.session() as session:
        assert load_types(session, []) == {}
        assert load_types(session, [4_000_000_000]) == {}


@pytest.mark.parametrize(
    ("name", "missing", "has_default"),
    [
        ("id", None, False),
        ("rolled", None, True),
        ("five", "5", True),
        ("forgotten", "6", False),
        ("late", None, True),
        ("plain", None, False),
    ],
)
def test_a_column_knows_what_older_rows_show(
    database: Database, name: str, missing: str | None, *, has_default: bool
) -> None:
    found = column(table(database, "shop.grown"), name)
    assert (found.missing_value, found.has_default) == (missing, has_default)


def test_numbers_computed_values_and_defaults_of_a_domain_are_defaults(database: Database) -> None:
    found = table(database, "shop.numbered")
    assert [each.name for each in found.attributes if each.has_default] == [
        "own",
        "seven",
        "doubled",
    ]
    assert all(each.missing_value is None for each in found.attributes)


def test_leaves_know_what_older_rows_of_a_partitioned_table_show(database: Database) -> None:
    parted = table(database, "shop.parted")
    # Its own default is gone, and a later leaf never had older rows.
    assert column(parted, "five").missing_value == "5"
    assert column(parted, "six").missing_value == "6"
    # A leaf with something else in it: it is not known any more.
    database.run(
        "create table shop.part_3 (id int, five int)",
        "insert into shop.part_3 values (3)",
        "alter table shop.part_3 add column six int default 7",
        "alter table shop.parted attach partition shop.part_3 for values in (3)",
        "alter table shop.parted alter column six drop default",
    )
    found = column(table(database, "shop.parted"), "six")
    assert (found.missing_value, found.has_default) == (None, True)


def test_numbers_of_dropped_columns_stay_known(database: Database) -> None:
    grown = table(database, "shop.grown")
    assert grown.dropped_numbers == (2,)
    assert table(database, "shop.things").dropped_numbers == ()
    before = dict(grown.changed_by)
    assert list(before) == [1, 2, 3, 4, 5, 6, 7]
    database.run("alter table shop.grown rename column plain to simple")
    after = dict(table(database, "shop.grown").changed_by)
    changed = [number for number, xid in after.items() if xid != before[number]]
    assert changed == [7]
    assert after[7] > max(before.values())


def test_a_table_published_with_its_schema_shows_when_it_left(database: Database) -> None:
    def membership() -> int | None:
        with database.session() as session:
            publication = load_publication(session, "shop")
        assert publication is not None
        found = publication.table(oid_of(database, "shop.things"))
        assert found is not None
        return found.membership_oid

    before = membership()
    assert before is not None
    database.run(
        "alter publication shop drop tables in schema shop",
        "alter publication shop add tables in schema shop",
    )
    assert membership() not in {before, None}
