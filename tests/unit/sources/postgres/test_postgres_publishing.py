"""Which statements make a publication send what is captured, and what keeps a table out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from frazil.errors import ConfigError, FrazilError, PermissionError  # noqa: A004
from frazil.model.postgres.facts import (
    Persistence,
    PublicationFacts,
    RelationKind,
    TableFacts,
    TablePrivileges,
)
from frazil.model.postgres.names import QualifiedName
from frazil.sources.postgres.checks.obstacles import find_missing, find_obstacle
from frazil.sources.postgres.publication.changing import plan_publication, refuse_unfit
from frazil.sources.postgres.tables.catalog_view import CatalogView
from tests.support.postgres.sound import PUBLICATION, ROLE, SENT, SERVER, TABLE

pytestmark = pytest.mark.fault("N40", "N42")

FOREIGN = TablePrivileges(uses_schema=True, selects=True, owns=False)
THEIRS = replace(TABLE, oid=2, name=QualifiedName("shop", "theirs"), privileges=FOREIGN)
PARTED = replace(TABLE, oid=3, name=QualifiedName("shop", "parted"), kind=RelationKind.PARTITIONED)
EMPTY = replace(PUBLICATION, tables=())
STANDBY = replace(SERVER, is_standby=True)


def statements(
    publication: PublicationFacts | None, *tables: TableFacts, **options: Any
) -> tuple[str, ...]:
    settings = {"name": "sales_frazil", "creates": True, "server": SERVER, **options}
    return plan_publication(publication, tables, **settings).statements


def obstacle(
    table: TableFacts,
    publication: PublicationFacts = EMPTY,
    *,
    creates: bool = True,
    **server: Any,
) -> FrazilError | None:
    sent = publication.table(table.oid) or replace(SENT, oid=table.oid, name=table.name)
    view = CatalogView(
        server=replace(SERVER, **server),
        publication=publication,
        published=sent,
        table=table,
        types={},
    )
    return find_obstacle(view, creates_publication=creates)


def test_every_statement_is_about_the_table_alone() -> None:
    assert statements(None, TABLE) == (
        'create publication "sales_frazil" for table only "shop"."orders" '
        "with (publish_via_partition_root = true)",
    )
    assert statements(EMPTY, TABLE, PARTED) == (
        'alter publication "sales_frazil" add table only "shop"."orders", only "shop"."parted"',
    )
    assert statements(PUBLICATION) == (
        'alter publication "sales_frazil" drop table only "shop"."orders"',
    )


def test_what_we_may_not_add_is_left_out_and_what_is_there_stays() -> None:
    assert "theirs" not in str(statements(None, TABLE, THEIRS))
    assert "theirs" not in str(statements(EMPTY, TABLE, THEIRS))
    sent = replace(PUBLICATION, tables=(SENT, replace(SENT, oid=2, name=THEIRS.name)))
    assert statements(sent, TABLE, THEIRS) == ()


@pytest.mark.parametrize(
    ("publication", "options"),
    [
        (replace(EMPTY, is_ours=False), {}),
        (EMPTY, {"creates": False}),
        (EMPTY, {"server": STANDBY}),
    ],
)
def test_a_publication_that_is_not_ours_to_change_is_not_changed(
    publication: PublicationFacts, options: dict[str, Any]
) -> None:
    assert statements(publication, TABLE, **options) == ()


@pytest.mark.parametrize("options", [{"creates": False}, {"server": STANDBY}])
def test_without_a_publication_and_the_right_to_one_nothing_begins(
    options: dict[str, Any],
) -> None:
    with pytest.raises(PermissionError, match="the publication sales_frazil does not exist"):
        statements(None, TABLE, **options)


def test_a_publication_without_some_kinds_of_changes_is_refused() -> None:
    refuse_unfit(None)
    refuse_unfit(PUBLICATION)
    with pytest.raises(ConfigError, match="does not send delete"):
        refuse_unfit(replace(PUBLICATION, sends_deletes=False))


ADD = 'alter publication "sales_frazil" add table only "shop"."orders";'


@pytest.mark.parametrize(
    ("found", "text", "sql"),
    [
        (obstacle(TABLE, creates=False), "source.publication.create is false", ADD),
        (
            obstacle(TABLE, replace(EMPTY, is_ours=False)),
            "role frazil does not own the publication",
            ADD,
        ),
        (obstacle(THEIRS), "does not own the table", ADD.replace("orders", "theirs")),
        (obstacle(TABLE, is_standby=True), "add it on the primary", ADD),
        (
            obstacle(PARTED, replace(EMPTY, via_root=False)),
            "under the names of the partitions",
            "publish_via_partition_root = true",
        ),
        (
            obstacle(replace(TABLE, privileges=replace(TABLE.privileges, uses_schema=False))),
            "may not use the schema shop",
            "grant usage on schema",
        ),
        (
            obstacle(replace(TABLE, privileges=replace(TABLE.privileges, selects=False))),
            "may not read shop.orders",
            "grant select on",
        ),
        (obstacle(replace(TABLE, has_row_security=True)), "row-level security", "bypassrls"),
        (obstacle(replace(TABLE, persistence=Persistence.UNLOGGED)), "unlogged", "set logged"),
        (obstacle(replace(TABLE, kind=RelationKind.FOREIGN)), "a foreign table", "source.exclude"),
        (obstacle(replace(TABLE, kind=RelationKind.VIEW)), "a view", "source.exclude"),
    ],
)
def test_what_keeps_a_table_out_is_reported_with_the_sql_that_lets_it_in(
    found: FrazilError | None, text: str, sql: str
) -> None:
    assert found is not None
    assert text in found.message
    assert sql in str(found.next_step)


def test_a_missing_table_is_reported_with_the_nearest_name() -> None:
    names = ("shop.orders", "shop.part", "x.y")
    include = ("shop.*", "shop.oders", "shop.part", "shop.left_out", "a.b")
    settings: Any = SimpleNamespace(include=include, exclude=("shop.left_out",))
    found = find_missing(settings, {"shop.orders": None}, lambda: names)
    assert set(found) == {"shop.oders", "a.b"}
    assert "did you mean shop.orders?" in str(found["shop.oders"])

    def not_loaded() -> NoReturn:
        raise AssertionError

    assert find_missing(settings, include, not_loaded) == {}


def test_nothing_keeps_out_what_can_be_added_and_read() -> None:
    assert obstacle(TABLE) is None
    assert obstacle(TABLE, PUBLICATION, creates=False) is None
    assert obstacle(THEIRS, role=replace(ROLE, is_superuser=True)) is None
    everything = replace(EMPTY, sends_all_tables=True, tables=(replace(SENT, oid=2),))
    assert obstacle(THEIRS, everything, creates=False) is None
    # A part of the columns may be granted alone; the copy shows whether that is enough.
    listed = replace(EMPTY, tables=(replace(SENT, has_column_list=True),))
    assert obstacle(replace(TABLE, privileges=replace(FOREIGN, selects=False)), listed) is None
