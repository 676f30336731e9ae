"""What each change at a Postgres database becomes, in the changelog and in the mirror.

All changes are made by one pipeline over many tables, in two rounds with a merge after each: what a
test names was done before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.ingest.captured import CapturedDatabase, Change, captured_database
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.services]

# Longer than what Postgres keeps in the row itself, so that an update that leaves it alone does
# not send it.
_LARGE = 9000
# The longest that an index takes, and long enough to be stored out of line.
_LARGE_KEY = 2500

_TABLES = (
    "create table items (id int primary key, name text, body text)",
    "alter table items alter body set storage external",
    "create table wide (id int primary key, name text, body text)",
    "alter table wide alter body set storage external, replica identity full",
    "create table documents (k text primary key, v text)",
    "alter table documents alter k set storage external",
    "create table owners (id int primary key, name text)",
    "create table pets (id int primary key, owner int references owners)",
    "create table counted (id int generated always as identity primary key, name text)",
    "create table sales (region text, id int, amount numeric(10, 2), note text,"
    " primary key (region, id)) partition by list (region)",
    "create table sales_eu partition of sales for values in ('eu')",
    "create table sales_else partition of sales default partition by range (id)",
    "create table sales_low partition of sales_else for values from (minvalue) to (1000)",
    "create table sales_high partition of sales_else for values from (1000) to (maxvalue)",
    "create table visits (id int primary key, city text, day date)",
)
_FIRST_ROWS = (
    f"insert into items select i, 'old', repeat('b', {_LARGE}) || i from generate_series(1, 20) i",
    f"insert into wide select i, 'old', repeat('b', {_LARGE}) || i from generate_series(1, 6) i",
    f"insert into documents select repeat('k', {_LARGE_KEY}) || i, 'old' from"
    " generate_series(1, 4) i",
    "insert into owners select i, 'o' || i from generate_series(1, 3) i",
    "insert into pets select i, i from generate_series(1, 3) i",
    "insert into counted (name) select 'c' || i from generate_series(1, 3) i",
    "insert into sales select r, i, i / 3.0, r || i from unnest('{eu,us}'::text[]) r,"
    " generate_series(998, 1002) i",
    "insert into visits select i, 'p' || i % 3, date '2024-01-01' + i from generate_series(1, 9) i",
)
_KEYED = (
    "items",
    "wide",
    "documents",
    "owners",
    "pets",
    "counted",
    "sales",
    "visits",
)


def _in_one(*statements: str) -> str:
    return f"begin; {'; '.join(statements)}; commit"


_PLAIN = (
    "insert into items values (101, 'new', 'small')",
    "update items set name = 'changed', body = 'small' where id = 1",
    "delete from items where id = 2",
    "update items set id = id, name = name where id = 10",
    _in_one("delete from items where id = 13", "insert into items values (13, 'again', 'another')"),
)
_KEYS = (
    "update items set id = 103, body = 'small' where id = 3",
    _in_one(
        "update items set id = 204 where id = 4",
        "update items set id = 4 where id = 5",
        "update items set id = 5 where id = 204",
    ),
    _in_one("update items set id = 306 where id = 6", "update items set id = 6 where id = 306"),
    "update items set id = 308 where id = 8",
    "update items set id = 8, name = 'back' where id = 308",
    "update items set id = 114 where id = 14",
    "update items set name = 'moved' where id = 114",
)
_TOASTED = (
    "update items set name = 'partial' where id = 9",
    f"insert into items values (110, 'new', repeat('n', {_LARGE}))",
    "update items set name = 'partial' where id = 110",
    _in_one(
        f"insert into items values (111, 'new', repeat('n', {_LARGE}))",
        "update items set name = 'partial' where id = 111",
        "update items set id = 112 where id = 111",
    ),
)
_UNDONE = (
    "begin; insert into items values (900); update items set name = 'lost' where id = 11; rollback",
    _in_one(
        "insert into items values (120, 'kept')",
        "savepoint s",
        "insert into items values (901)",
        "update items set name = 'lost' where id = 120",
        "rollback to s",
        "insert into items values (121, 'kept')",
    ),
    "begin; insert into items values (122, 'prepared'); prepare transaction 'one_{db}'",
    "begin; insert into items values (902); prepare transaction 'two_{db}'",
    "insert into items values (123, 'between')",
    "commit prepared 'one_{db}'",
    "rollback prepared 'two_{db}'",
)
_WITH_FULL_IDENTITY = (
    "update wide set name = 'changed' where id = 1",
    "delete from wide where id = 2",
    "update wide set id = 103 where id = 3",
    "update wide set name = null where id = 4",
)
_WITH_LARGE_KEYS = (
    f"update documents set v = 'changed' where k = repeat('k', {_LARGE_KEY}) || 1",
    f"delete from documents where k = repeat('k', {_LARGE_KEY}) || 2",
    f"update documents set k = 'short' where k = repeat('k', {_LARGE_KEY}) || 3",
    f"update documents set k = repeat('l', {_LARGE_KEY}) where k = repeat('k', {_LARGE_KEY}) || 4",
)
_TRUNCATIONS = (
    _in_one(
        "insert into owners values (50, 'gone')",
        "truncate owners cascade",
        "insert into owners values (51, 'stays')",
        "insert into pets values (51, 51)",
    ),
    "insert into counted (name) values ('gone')",
    "truncate counted restart identity",
    "insert into counted (name) values ('first again')",
)
_MOVES = (
    "update sales set region = 'us', id = 7 where region = 'eu' and id = 998",
    "update sales set id = 2000 where region = 'us' and id = 999",
    "update sales set note = 'same city' where region = 'us' and id = 1001",
    "delete from sales where region = 'us' and id = 1002",
    "insert into sales values ('asia', 1, 0.5, null)",
    "update visits set city = 'elsewhere' where id < 3",
    "update visits set city = null where id = 3",
    "update visits set day = date '2030-01-01' where id = 4",
    "delete from visits where id = 5",
)


@dataclass(frozen=True)
class Round:
    """The second round of a database, and the position of each changelog before it."""

    db: CapturedDatabase
    since: dict[str, str]

    def changes(self, table: str, id: Container[int] | None = None) -> list[Change]:  # noqa: A002
        """What was captured of a table in this round; only rows with one of these ids."""
        found = self.db.changes(table, since=self.since[table])
        return [each for each in found if id is None or each.row["id"] in id]

    def short(self, table: str, id: Container[int] | None = None) -> list[tuple[Any, ...]]:  # noqa: A002
        """The same with the operation and the values only, long ones by their first letter."""
        return [
            tuple(
                value[0] if isinstance(value, str) and len(value) > 99 else value for value in each
            )
            for each in (change.short for change in self.changes(table, id))
        ]


@pytest.fixture(scope="module", params=sampled(["postgres", "postgres_16"], ci={"postgres"}))
def done(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Round]:
    """Every change of this page, made once; in deep runs on an old server too."""
    server: Postgres = request.getfixturevalue(request.param)
    tables = [{"mirror": "public.visits", "partition_by": ["city", "month(day)"]}]
    folder = tmp_path_factory.mktemp("changes")
    with captured_database(spark, server, folder, tables=tables) as db:
        db.run(*_TABLES, *_FIRST_ROWS)
        db.catch_up()
        since = {table: db.last_sequence(table) for table in _KEYED}
        second = (*_PLAIN, *_KEYS, *_TOASTED, *_UNDONE, *_WITH_FULL_IDENTITY, *_WITH_LARGE_KEYS)
        for statement in (*second, *_TRUNCATIONS, *_MOVES):
            db.run(statement.replace("{db}", db.database.name))
        db.catch_up()
        yield Round(db, since)


@pytest.mark.parametrize("table", _KEYED)
def test_the_mirror_is_the_source(done: Round, table: str) -> None:
    done.db.assert_mirrored(table)


def test_every_change_is_one_row_with_its_transaction(done: Round) -> None:
    assert done.short("items", id=(1, 2, 101, 10)) == [
        ("INSERT", 101, "new", "small"),
        ("UPDATE", 1, "changed", "small"),
        ("DELETE", 2, None, None),
        ("UPDATE", 10, "old", ...),
    ]
    changes = done.changes("items")
    assert [each.at for each in changes] == sorted(each.at for each in changes if each.at)
    again = done.changes("items", id=(13,))
    assert [(each.operation, each.ordinal) for each in again] == [("DELETE", 0), ("INSERT", 1)]
    assert again[0].lsn == again[1].lsn


@pytest.mark.fault("T2")
def test_a_changed_key_goes_and_comes_with_its_previous_one(done: Round) -> None:
    gone, come = done.changes("items", id=(3, 103))
    assert gone.short == ("DELETE", 3, None, None)
    assert come.short == ("INSERT", 103, "old", "small")
    assert come.previous == {"id": 3}
    assert gone.previous is None
    assert gone.lsn == come.lsn


@pytest.mark.fault("T2")
def test_two_keys_are_exchanged_through_a_third_value_in_one_transaction(done: Round) -> None:
    changes = done.changes("items", id=(4, 5, 204))
    assert [(each.short[0], each.row["id"], each.previous) for each in changes] == [
        ("DELETE", 4, None),
        ("INSERT", 204, {"id": 4}),
        ("DELETE", 5, None),
        ("INSERT", 4, {"id": 5}),
        ("DELETE", 204, None),
        ("INSERT", 5, {"id": 204}),
    ]
    assert [each.ordinal for each in changes] == list(range(6))
    assert {each.unchanged for each in changes if each.operation == "INSERT"} == {("body",)}


@pytest.mark.fault("N6")
def test_a_key_that_comes_back_carries_what_was_never_sent(done: Round) -> None:
    in_one = done.changes("items", id=(6, 306))
    assert [each.operation for each in in_one] == ["DELETE", "INSERT"] * 2
    assert len({each.lsn for each in in_one}) == 1
    in_two = done.changes("items", id=(8, 308))
    assert [each.previous for each in in_two] == [None, {"id": 8}, None, {"id": 308}]
    rows = {row["id"]: row for row in done.db.mirror_rows("items")}
    assert rows[6]["body"] == "b" * _LARGE + "6"
    assert (rows[8]["name"], rows[8]["body"]) == ("back", "b" * _LARGE + "8")
    assert (rows[114]["name"], rows[114]["body"]) == ("moved", "b" * _LARGE + "14")


def test_what_an_update_leaves_alone_is_kept(done: Round) -> None:
    assert done.short("items", id=(9, 110, 111, 112)) == [
        ("UPDATE", 9, "partial", ...),
        ("INSERT", 110, "new", "n"),
        ("UPDATE", 110, "partial", ...),
        ("INSERT", 111, "new", "n"),
        ("UPDATE", 111, "partial", ...),
        ("DELETE", 111, None, None),
        ("INSERT", 112, "partial", ...),
    ]


@pytest.mark.fault("E8")
def test_only_what_committed_is_captured_in_the_order_of_commits(done: Round) -> None:
    kept = done.short("items", id=(11, *range(120, 130), *range(900, 910)))
    assert [each[:3] for each in kept] == [
        ("INSERT", 120, "kept"),
        ("INSERT", 121, "kept"),
        ("INSERT", 123, "between"),
        ("INSERT", 122, "prepared"),
    ]


def test_a_complete_old_row_fills_what_was_not_sent(done: Round) -> None:
    assert done.short("wide") == [
        ("UPDATE", 1, "changed", "b"),
        ("DELETE", 2, "old", "b"),
        ("DELETE", 3, "old", "b"),
        ("INSERT", 103, "old", "b"),
        ("UPDATE", 4, None, "b"),
    ]
    moved = done.changes("wide", id=(103,))
    assert [each.previous for each in moved] == [{"id": 3}]


def test_a_key_stored_out_of_line_is_known(done: Round) -> None:
    changes = done.changes("documents")
    assert [(each.operation, each.row["v"], each.unchanged) for each in changes] == [
        ("UPDATE", "changed", ()),
        ("DELETE", None, ()),
        ("DELETE", None, ()),
        ("INSERT", "old", ()),
        ("DELETE", None, ()),
        ("INSERT", "old", ()),
    ]
    assert changes[0].row["k"] == "k" * _LARGE_KEY + "1"
    assert changes[3].previous == {"k": "k" * _LARGE_KEY + "3"}


def test_each_truncated_table_has_one_row_at_its_position_in_the_order(done: Round) -> None:
    assert done.short("owners") == [
        ("INSERT", 50, "gone"),
        ("TRUNCATE", None, None),
        ("INSERT", 51, "stays"),
    ]
    assert done.short("pets") == [("TRUNCATE", None, None), ("INSERT", 51, 51)]
    assert done.short("counted") == [
        ("INSERT", 4, "gone"),
        ("TRUNCATE", None, None),
        ("INSERT", 1, "first again"),
    ]


@pytest.mark.fault("X9")
def test_a_row_that_changes_its_partition_goes_and_comes(done: Round) -> None:
    assert done.short("sales") == [
        ("DELETE", "eu", 998, None, None),
        ("INSERT", "us", 7, "332.67", "eu998"),
        ("DELETE", "us", 999, None, None),
        ("INSERT", "us", 2000, "333.00", "us999"),
        ("UPDATE", "us", 1001, "333.67", "same city"),
        ("DELETE", "us", 1002, None, None),
        ("INSERT", "asia", 1, "0.50", None),
    ]
    assert not any(done.db.has_changelog(each) for each in ("sales_eu", "sales_low"))


@pytest.mark.fault("X9")
def test_a_mirror_has_a_row_in_the_partition_of_its_newest_value(done: Round) -> None:
    mirror = done.db.names("visits").mirror
    name = f"{done.db.config.catalog.name}.public.{mirror.table}"
    counted = done.db.spark.sql(
        f"select partition.city, record_count from {name}.files where content = 0"
    ).collect()
    assert {"elsewhere", None} <= {row.city for row in counted}
