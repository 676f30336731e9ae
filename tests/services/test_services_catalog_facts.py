"""Facts of real servers, and what a preflight makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from frazil.clients.postgres import catalog_queries
from frazil.clients.postgres.catalog_facts import load_leaves
from frazil.clients.postgres.connecting import connect
from frazil.model.postgres.facts import (
    GeneratedKind,
    IdentityKind,
    Persistence,
    PrimaryKey,
    RelationKind,
)
from frazil.sources.findings import Severity
from frazil.sources.postgres.checks.preflight import find_problems
from frazil.sources.postgres.checks.source_check import load_facts
from frazil.sources.postgres.preflight_settings import PreflightSettings
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from frazil.model.postgres.facts import PostgresFacts, PublishedTable, TableFacts

pytestmark = pytest.mark.services

PASSWORD = "modest-password"
TABLES = """
    create schema shop;
    create schema closed;
    create domain price as numeric(10, 2);
    create domain discount as price;
    create table shop.orders (
        id bigint,
        gone int,
        buyer varchar(20) not null,
        paid discount,
        tags text[],
        doubled bigint generated always as (id * 2) stored,
        primary key (id) include (buyer)
    );
    alter table shop.orders drop column gone;
    insert into shop.orders (id, buyer) select n, 'x' from generate_series(1, 5000) as n;
    alter table shop.orders add column note text default 'it''s, {new}';
    alter table shop.orders add column marks int[] default '{1,2}';
    create table shop.parted (day date, id int, primary key (day, id)) partition by range (day);
    create table shop.parted_1 partition of shop.parted
        for values from ('2026-01-01') to (maxvalue);
    create table shop.nothing (id int primary key);
    alter table shop.nothing replica identity nothing;
    create table shop.deferred (id int primary key deferrable initially deferred);
    create unlogged table shop.unlogged (id int primary key);
    create table shop.full_row (a int, b int);
    alter table shop.full_row replica identity full;
    create table shop.by_index (id int primary key, code int not null unique, word text);
    alter table shop.by_index replica identity using index by_index_code_key;
    create table shop."odd ""name"" *" (id int primary key);
    create view shop.seen as select 1 as one;
    create table closed.hidden (id int primary key);
    create table shop.policed (id int primary key);
    alter table shop.policed enable row level security;
    analyze shop.orders;
    create publication facts for table
        shop.orders (id, buyer, paid) where (id > 10 and buyer <> 'nobody'),
        shop.parted, shop.nothing, shop.by_index
        with (publish_via_partition_root = true);
    create publication leaves for table shop.parted with (publish = 'insert');
    grant usage on schema shop to modest;
    grant select on shop.orders, shop.policed to modest;
    grant select (a, b) on shop.full_row to modest
"""

EXPECTED = (
    "may not replicate",
    "may not read shop.parted",
    "may not use the schema shop",
    "may not use the schema closed",
    "shop.seen is a view",
    "shop.unlogged is unlogged",
    "does not have closed.hidden",
    "shop.deferred is deferrable",
    "shop.nothing has no replica identity",
    "shop.full_row has no primary key",
    "shop.policed has row-level security",
    "Only some columns of shop.orders",
    "Only some rows of shop.orders",
    "not sent and will be missing: doubled",
    "the key columns id",
    "max_slot_wal_keep_size is not set",
)


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "facts") as made:
        made.run(f"create role modest login password '{PASSWORD}'", *TABLES.split(";"))
        yield made
        made.run("drop owned by modest", "drop role modest")


def load(
    database: Database,
    *,
    publication: str = "facts",
    role: str | None = None,
    password: str = PASSWORD,
) -> PostgresFacts:
    dsn = database.dsn_of(role, password) if role else database.dsn
    with connect(dsn, purpose="check") as session:
        return load_facts(
            session,
            slot="absent",
            publication=publication,
            include=["shop.*", "closed.*", "shop.seen"],
        )


@pytest.fixture(scope="module")
def facts(database: Database) -> PostgresFacts:
    return load(database)


def table(facts: PostgresFacts, name: str) -> TableFacts:
    return next(each for each in facts.tables if each.name.name == name)


def published(facts: PostgresFacts, name: str) -> PublishedTable:
    assert facts.publication is not None
    return next(each for each in facts.publication.tables if each.name.name == name)


def test_the_server_is_known(facts: PostgresFacts, database: Database) -> None:
    server = facts.server
    assert server.major == database.server.version
    assert server.wal_level == "logical"
    assert (server.max_slots, server.max_senders) == (16, 16)
    assert server.slot_wal_limit_bytes is None
    assert server.idle_slot_limit_seconds is None
    assert server.sender_limit_seconds == 60
    assert server.block_bytes == 8192
    assert server.encoding == "UTF8"
    assert server.database == "facts"
    assert server.timeline == 1
    assert not server.is_standby
    assert not server.uses_tls
    assert server.is_local
    assert abs(server.clock_ahead_seconds) < 5
    assert server.role.is_superuser
    assert server.role.may_replicate


def test_columns_keep_their_numbers_and_show_what_old_rows_have(facts: PostgresFacts) -> None:
    orders = table(facts, "orders")
    assert [(each.number, each.name) for each in orders.attributes] == [
        (1, "id"),
        (3, "buyer"),
        (4, "paid"),
        (5, "tags"),
        (6, "doubled"),
        (7, "note"),
        (8, "marks"),
    ]
    buyer, paid, tags, doubled, note, marks = orders.attributes[1:]
    assert (buyer.type_name, buyer.type_modifier, buyer.is_not_null) == (
        "character varying(20)",
        24,
        True,
    )
    assert (paid.type_name, paid.base_type_oid) == ("public.discount", 1700)
    assert (tags.base_type_oid, tags.element_type_oid) == (1009, 25)
    assert doubled.generated is GeneratedKind.STORED
    assert note.missing_value == "it's, {new}"
    assert marks.missing_value == "{1,2}"
    assert buyer.missing_value is None
    assert "it's" not in repr(orders)


def test_keys_and_identities_are_what_the_server_uses(facts: PostgresFacts) -> None:
    def identity(name: str) -> tuple[IdentityKind, tuple[str, ...]]:
        return table(facts, name).identity, table(facts, name).identity_columns

    assert table(facts, "orders").key == PrimaryKey(columns=("id",), is_deferrable=False)
    assert identity("orders") == (IdentityKind.DEFAULT, ("id",))
    assert identity("nothing") == (IdentityKind.NOTHING, ())
    assert identity("full_row") == (IdentityKind.FULL, ("a", "b"))
    assert identity("by_index") == (IdentityKind.INDEX, ("code",))
    assert table(facts, "deferred").key == PrimaryKey(columns=("id",), is_deferrable=True)
    assert identity("deferred") == (IdentityKind.DEFAULT, ())
    assert table(facts, "parted").key == PrimaryKey(columns=("day", "id"), is_deferrable=False)
    assert table(facts, "full_row").key is None


def test_kinds_and_sizes_are_known(facts: PostgresFacts, database: Database) -> None:
    names = {each.name.name for each in facts.tables}
    assert "parted" in names
    assert "parted_1" not in names
    assert table(facts, "parted").is_partitioned
    assert table(facts, "seen").kind is RelationKind.VIEW
    assert table(facts, "unlogged").persistence is Persistence.UNLOGGED
    orders = table(facts, "orders")
    assert orders.estimated_rows == 5000
    assert table(facts, "nothing").estimated_rows is None
    with database.session() as session:
        parted = table(facts, "parted")
        oids = [orders.oid, parted.oid]
        leaves = load_leaves(session, oids, block_bytes=facts.server.block_bytes)
    assert [(each.name, each.pages) for each in leaves[orders.oid]] == [
        (orders.name, orders.estimated_pages)
    ]
    assert all(each.name != parted.name for each in leaves[parted.oid])


def test_a_publication_shows_what_it_sends(facts: PostgresFacts, database: Database) -> None:
    publication = facts.publication
    assert publication is not None
    assert publication.via_root
    assert publication.is_ours
    assert not publication.sends_all_tables
    assert [each.name.name for each in publication.tables] == [
        "by_index",
        "nothing",
        "orders",
        "parted",
    ]
    orders = published(facts, "orders")
    assert orders.columns == ("id", "buyer", "paid")
    assert orders.has_column_list
    assert orders.row_filter == "((id > 10) AND ((buyer)::text <> 'nobody'::text))"
    assert not published(facts, "parted").has_column_list
    before = published(facts, "nothing").membership_oid
    assert before is not None
    database.run(
        "alter publication facts drop table shop.nothing",
        "alter publication facts add table shop.nothing",
    )
    assert published(load(database), "nothing").membership_oid not in {before, None}


def test_leaves_are_shown_where_leaves_are_sent(database: Database) -> None:
    facts = load(database, publication="leaves")
    assert facts.publication is not None
    (leaf,) = facts.publication.tables
    assert leaf.name.name == "parted_1"
    # Its root's.
    assert leaf.membership_oid is not None
    assert not facts.publication.sends_truncates


def test_the_question_for_version_14_is_understood(database: Database) -> None:
    class Row(NamedTuple):
        oid: int
        schema: str
        name: str
        membership_oid: int | None
        columns: list[str]
        has_column_list: bool
        row_filter: str | None
        is_implicit: bool

    parameters = {"publication": "facts", "oid": 0}
    with database.session() as session:
        rows = session.load(Row, catalog_queries.PUBLISHED_14, parameters, doing="testing")
    (orders,) = (row for row in rows if row.name == "orders")
    assert orders.columns == ["id", "buyer", "paid", "tags", "note", "marks"]
    assert not orders.has_column_list


def test_a_modest_role_sees_its_own_rights(database: Database) -> None:
    facts = load(database, role="modest")
    role = facts.server.role
    assert (role.name, role.is_superuser, role.may_replicate) == ("modest", False, False)
    assert not role.may_create_publication
    assert table(facts, "orders").privileges.selects
    assert table(facts, "full_row").privileges.selects
    assert not table(facts, "orders").privileges.owns
    assert not table(facts, "parted").privileges.selects
    assert not table(facts, "hidden").privileges.uses_schema
    assert table(facts, "policed").has_row_security
    assert facts.publication is not None
    assert not facts.publication.is_ours


def test_every_problem_is_found_at_once_and_its_sql_fixes_it(database: Database) -> None:
    settings = PreflightSettings(
        slot="absent", publication="facts", creates_publication=False, held_wal_bytes=2**30
    )
    # Nothing but the right to log in.
    database.run("create role bare login password 'bare'")
    try:
        found = find_problems(load(database, role="bare", password="bare"), settings)
        text = "\n".join(problem.sentence for problem in found)
        missed = [each for each in EXPECTED if each not in text]
        assert missed == []
        lines = [line for problem in found for line in problem.sql]
        assert len(set(lines)) >= len(EXPECTED) - 4
        # What is left needs an operator's decision, or a restart of the server.
        database.run(*(line for line in lines if "…" not in line and "alter system" not in line))
        after = find_problems(load(database, role="bare", password="bare"), settings)
        stopping = [each.sentence for each in after if each.severity is Severity.STOPS]
        assert stopping == [
            # That one was unlogged before, so it could not be added yet.
            "The publication facts does not have shop.unlogged, and source.publication.create is "
            "false: its owner can add the table.",
            "shop.seen is a view, which sends no changes.",
        ]
    finally:
        database.run("drop owned by bare", "drop role bare")
