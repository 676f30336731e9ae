"""What shows at a real server that a table is not the one that was captured, and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.postgres.connecting import connect
from frazil.sources.postgres.tables.catalog_views import load_views
from frazil.sources.postgres.tables.identity import identity_differences, identity_of
from frazil.sources.postgres.tables.mirror_key import NoKey, NoKeyReason, mirror_key
from frazil.sources.postgres.tables.selection import can_be_published
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from tests.support.postgres.access import Database

pytestmark = pytest.mark.services

TABLE = "shop.orders"
ALL, SCHEMA, NAMED = "for all tables", "for tables in schema shop", f"for table {TABLE}"
OPTIONS = "insert, update, delete, truncate"


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, f"identity_{uuid4().hex[:10]}") as made:
        made.run("create schema shop", "create schema other")
        yield made


@pytest.fixture
def publish(database: Database) -> Iterator[Database]:
    database.run(
        f"create table {TABLE} (id int primary key, body text, code int not null, free int)",
        f"insert into {TABLE} select i, 'b', i, i from generate_series(1, 10) i",
    )
    yield database
    database.run(
        "drop publication if exists p",
        f"drop table if exists {TABLE}, other.orders, shop.second",
    )


def load_view(database: Database) -> CatalogView:
    with connect(database.dsn, purpose="test") as session, session.one_view():
        views = load_views(session, publication="p", include=[TABLE], exclude=())
    return views[TABLE]


def differences(
    database: Database, scope: str, *statements: str, key: tuple[str, ...] = ()
) -> tuple[str, ...]:
    database.run(f"create publication p {scope} with (publish_via_partition_root = true)")
    before = identity_of(load_view(database), key)
    database.run(*statements)
    return identity_differences(before, identity_of(load_view(database), key))


@pytest.mark.parametrize(
    ("scope", "statements", "text"),
    [
        pytest.param(
            ALL,
            [
                f"alter table {TABLE} set unlogged",
                f"delete from {TABLE}",
                f"alter table {TABLE} set logged",
            ],
            "it was unlogged for a while",
            marks=pytest.mark.fault("N35"),
        ),
        pytest.param(
            SCHEMA,
            [
                f"alter table {TABLE} set unlogged",
                f"delete from {TABLE}",
                f"alter table {TABLE} set logged",
            ],
            "it was unlogged for a while",
            marks=pytest.mark.fault("N35"),
        ),
        pytest.param(
            SCHEMA,
            [
                f"alter table {TABLE} set schema other",
                "delete from other.orders",
                "alter table other.orders set schema shop",
            ],
            "it was moved to another schema and back",
            marks=pytest.mark.fault("N35"),
        ),
        *(
            pytest.param(
                scope,
                [
                    "alter publication p set (publish = 'insert')",
                    f"delete from {TABLE}",
                    f"alter publication p set (publish = '{OPTIONS}')",
                ],
                "the options of its publication were changed",
                marks=pytest.mark.fault("N36"),
            )
            for scope in (ALL, SCHEMA, NAMED)
        ),
        pytest.param(
            NAMED,
            [
                f"alter table {TABLE} replica identity full",
                f"alter table {TABLE} drop constraint orders_pkey",
                f"insert into {TABLE} values (1, 'twice', 1, 1)",
                f"delete from {TABLE} where body = 'twice'",
                f"alter table {TABLE} add primary key (id)",
            ],
            "its key was dropped",
            marks=pytest.mark.fault("N37"),
        ),
    ],
)
def test_unannounced_changes_are_found(
    publish: Database, scope: str, statements: list[str], text: str
) -> None:
    (found,) = differences(publish, scope, *statements)
    assert found.startswith(text)


ROUTINE = [
    f"vacuum full {TABLE}",
    f"cluster {TABLE} using orders_pkey",
    f"truncate {TABLE}",
    f"reindex table concurrently {TABLE}",
    f"analyze {TABLE}",
    f"vacuum freeze {TABLE}",
    f"grant select on {TABLE} to public",
    f"create index on {TABLE} (body)",
    f"alter table {TABLE} alter id type bigint",
    f"alter table {TABLE} alter free type bigint",
    f"alter table {TABLE} add late text default 'x'",
    f"alter table {TABLE} rename column body to content",
    f"alter table {TABLE} replica identity full",
    "create table shop.second (id int primary key)",
]


@pytest.mark.fault("N35", "N36", "N37")
@pytest.mark.parametrize("scope", [ALL, SCHEMA, NAMED])
def test_what_people_do_to_tables_every_day_is_no_difference(publish: Database, scope: str) -> None:
    more = ["alter publication p add table shop.second"] if scope == NAMED else []
    assert differences(publish, scope, *ROUTINE, *more) == ()


def test_a_schema_does_not_matter_to_a_publication_of_all_tables(publish: Database) -> None:
    moves = (f"alter table {TABLE} set schema other", "alter table other.orders set schema shop")
    assert differences(publish, ALL, *moves) == ()


@pytest.mark.fault("N37")
def test_a_declared_key_has_an_index_of_its_own(publish: Database) -> None:
    publish.run(f"create unique index by_code on {TABLE} (code)")
    statements = ("drop index shop.by_code", f"create unique index by_code on {TABLE} (code)")
    assert differences(publish, NAMED, *statements, key=("code",))


def test_a_declared_key_that_is_a_constraint_outlives_a_new_index(publish: Database) -> None:
    publish.run(f"alter table {TABLE} add constraint by_code unique (code)")
    statement = "reindex index concurrently shop.by_code"
    assert differences(publish, NAMED, statement, key=("code",)) == ()


def test_a_constraint_made_of_the_index_that_was_there_is_the_same_key(publish: Database) -> None:
    publish.run(f"create unique index by_code on {TABLE} (code)")
    statement = f"alter table {TABLE} add constraint one_code unique using index by_code"
    assert differences(publish, NAMED, statement, key=("code",)) == ()


@pytest.mark.fault("N37")
def test_a_primary_key_made_of_a_second_index_is_the_same_key(publish: Database) -> None:
    publish.run(f"create unique index by_id on {TABLE} (id)")
    statement = (
        f"alter table {TABLE} drop constraint orders_pkey,"
        " add constraint other_pkey primary key using index by_id"
    )
    assert differences(publish, NAMED, statement) == ()


@pytest.mark.fault("N38")
@pytest.mark.parametrize(
    ("statement", "key", "is_unique"),
    [
        ("select 1", ("code",), False),
        (f"create index on {TABLE} (code)", ("code",), False),
        (f"create unique index on {TABLE} (code)", ("code",), True),
        (f"create unique index on {TABLE} (code)", ("body", "code"), True),
        (f"create unique index on {TABLE} (code) include (body)", ("code",), True),
        (f"create unique index on {TABLE} (code, body)", ("code",), False),
        (f"create unique index on {TABLE} (free)", ("free",), False),
        (f"create unique index on {TABLE} (code) where free > 3", ("code",), False),
        (f"create unique index on {TABLE} ((code + 1))", ("code",), False),
        (f"alter table {TABLE} add unique (code)", ("code",), True),
        (f"alter table {TABLE} add unique (code) deferrable", ("code",), False),
        ("select 1", ("id",), True),
    ],
)
def test_a_declared_key_must_be_kept_unique_by_the_server(
    publish: Database, statement: str, key: tuple[str, ...], *, is_unique: bool
) -> None:
    publish.run(statement, f"alter table {TABLE} replica identity full")
    view = load_view(publish)
    found = mirror_key(view.table, None, key)
    assert found == (key if is_unique else NoKey(NoKeyReason.NOT_UNIQUE, key))


@pytest.mark.fault("N38")
def test_a_key_that_may_still_be_null_in_old_rows_keeps_nothing_unique(publish: Database) -> None:
    if publish.server.version < 18:
        pytest.skip("nothing is called not null here before its rows were looked at")
    publish.run(
        f"insert into {TABLE} values (11, 'b', 11, null), (12, 'b', 12, null)",
        f"create unique index on {TABLE} (free)",
        f"alter table {TABLE} add constraint promised not null free not valid",
        f"alter table {TABLE} replica identity full",
    )
    assert mirror_key(load_view(publish).table, None, ("free",)) == NoKey(
        NoKeyReason.NOT_UNIQUE, ("free",)
    )
    publish.run(
        f"delete from {TABLE} where free is null",
        f"alter table {TABLE} validate constraint promised",
    )
    assert mirror_key(load_view(publish).table, None, ("free",)) == ("free",)


@pytest.mark.fault("N35")
def test_a_partitioned_table_is_as_durable_as_its_leaves(database: Database) -> None:
    """The server lets a leaf become unlogged, though its root is published by name."""
    database.run(
        f"create table {TABLE} (id int primary key, body text) partition by list (id)",
        f"create table shop.leaf partition of {TABLE} default",
        f"create publication p for table {TABLE} with (publish_via_partition_root = true)",
    )
    try:
        before = identity_of(load_view(database))
        assert can_be_published(load_view(database).table)
        database.run("alter table shop.leaf set unlogged")
        with pytest.raises(KeyError):
            load_view(database)
        database.run("alter table shop.leaf set logged")
        now = identity_of(load_view(database))
        assert identity_differences(before, now) == ()
        assert identity_differences(before, now, was_gone=True)
    finally:
        database.run("drop publication p", f"drop table {TABLE}")
