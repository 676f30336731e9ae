"""Relation messages of real servers, recognised while the catalog moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.clients.postgres.catalog_facts import (
    load_publication,
    load_server,
    load_tables,
    load_types,
)
from frazil.codec.pgoutput.messages import Begin, Relation
from frazil.errors import UnsupportedSchemaChangeError
from frazil.sources.postgres.stream.relation_matching import match_relation
from frazil.sources.postgres.tables.catalog_view import CatalogView
from frazil.sources.postgres.tables.description import (
    TableOptions,
    describe_relation,
    describe_table,
)
from frazil.sources.postgres.tables.shape import decode_shape
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from frazil.model.source_table import SourceTable

pytestmark = pytest.mark.services

TABLE = "shop.things"


@pytest.fixture(params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "matching") as made:
        made.run(
            "create schema shop",
            "create table shop.things (id int primary key, gone int, b text, n int, "
            "twice int generated always as (id * 2) stored)",
            "alter table shop.things drop column gone",
            "create publication things for table shop.things",
            "select pg_create_logical_replication_slot('matching', 'pgoutput')",
        )
        yield made


def load_view(database: Database) -> CatalogView:
    oid = database.ask(f"select '{TABLE}'::regclass::oid::int8")
    assert isinstance(oid, int)
    with database.session() as session, session.one_view():
        publication = load_publication(session, "things")
        (table,) = load_tables(session, [oid])
        types = load_types(session, [each.type_oid for each in table.attributes])
        server = load_server(session)
    assert publication is not None
    published = publication.table(oid)
    assert published is not None
    return CatalogView(
        server=server, publication=publication, published=published, table=table, types=types
    )


def follow(database: Database, known: SourceTable, *, with_xid: bool = True) -> list[SourceTable]:
    """The table as each relation message shows it, with the catalog as it is at the end."""
    view, tables, xid = load_view(database), [known], None
    with database.streaming("matching", "things") as stream:
        for message in database.read_to_now(stream):
            if isinstance(message, Begin):
                xid = message.xid
            elif isinstance(message, Relation):
                shape = decode_shape(tables[-1].shape, table=TABLE)
                found = match_relation(message, shape, view, xid=xid if with_xid else None)
                described = describe_relation(message, found, view, TableOptions(), known=shape)
                tables.append(described.table)
    return tables[1:]


def columns(table: SourceTable) -> list[tuple[int, str]]:
    return [(each.number, each.name) for each in table.columns]


@pytest.mark.fault("N25")
def test_every_message_is_recognised_after_the_table_has_moved_on(database: Database) -> None:
    first = describe_table(load_view(database), TableOptions()).table
    assert columns(first) == [(1, "id"), (3, "b"), (4, "n")]
    database.run(
        "insert into shop.things (id) values (1)",
        "alter table shop.things rename column b to c",
        "alter table shop.things rename column n to b",
        "alter table shop.things rename column c to n",
        "insert into shop.things (id) values (2)",
        "alter table shop.things add column late int default 7",
        "insert into shop.things (id) values (3)",
        "alter table shop.things rename column late to later",
        "alter table shop.things add column last int",
    )
    tables = follow(database, first, with_xid=False)
    assert [columns(each) for each in tables] == [
        [(1, "id"), (3, "b"), (4, "n")],
        [(1, "id"), (3, "n"), (4, "b")],
        [(1, "id"), (3, "n"), (4, "b"), (6, "late")],
    ]
    assert [each.key for each in tables] == [(1,)] * 3
    late = tables[2].column(6)
    assert (late.default, late.rewrote) == (7, False)


def test_what_was_known_counts_where_a_column_went_and_another_came_since(
    database: Database,
) -> None:
    first = describe_table(load_view(database), TableOptions()).table
    database.run(
        "insert into shop.things (id) values (1)",
        "alter table shop.things drop column n",
        "alter table shop.things add column m int",
        "insert into shop.things (id) values (2)",
        "alter table shop.things add column last int",
    )
    with pytest.raises(UnsupportedSchemaChangeError, match="meant by n"):
        follow(database, first, with_xid=False)
    tables = follow(database, first)
    assert [columns(each) for each in tables] == [
        [(1, "id"), (3, "b"), (4, "n")],
        [(1, "id"), (3, "b"), (6, "m")],
    ]


def test_a_column_that_another_one_replaces_is_found_by_the_transaction_that_wrote_the_catalog(
    database: Database,
) -> None:
    first = describe_table(load_view(database), TableOptions()).table
    database.run(
        "alter table shop.things drop column b, add column b int",
        "insert into shop.things (id, n, b) values (1, 1, 1)",
    )
    with pytest.raises(UnsupportedSchemaChangeError, match="meant by"):
        follow(database, first, with_xid=False)
    (table,) = follow(database, first)
    assert columns(table) == [(1, "id"), (4, "n"), (6, "b")]


@pytest.mark.fault("N25")
def test_a_column_that_comes_back_just_as_it_was_means_a_resync(database: Database) -> None:
    first = describe_table(load_view(database), TableOptions()).table
    database.run(
        "alter table shop.things drop column n, add column n int",
        "insert into shop.things (id, b, n) values (1, 'x', 1)",
    )
    with pytest.raises(UnsupportedSchemaChangeError, match="meant by n"):
        follow(database, first)
