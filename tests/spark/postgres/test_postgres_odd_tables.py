"""Tables that a pipeline must know what to do with: without a key, filtered, refused by name.

One pipeline captures them all, for a table that is refused must not keep the others from going on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.ledger.table_state import Copying, Streaming
from frazil.pipeline.loops.loop import Ending
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services]

# As long as Postgres lets a name be.
_LONG = "l" * 63
_LONG_COLUMN = "c" * 63

_WITHOUT_KEY = (
    "create table keyless (a int, b text)",
    "create table nameless (id int primary key, b text)",
    "alter table nameless replica identity nothing",
    "create table uncovered (id int primary key, code int not null unique, b text)",
    "alter table uncovered replica identity using index uncovered_code_key",
    "create table deferred (id int primary key deferrable initially deferred, b text)",
    "alter table deferred replica identity full",
)
_SENT_IN_PART = (
    "create table filtered (id int primary key, active bool, b text)",
    "alter table filtered replica identity full",
    "create table listed (id int primary key, b text, secret text)",
    "create publication {publication} for table filtered where (active), listed (id, b)"
    " with (publish_via_partition_root = true)",
)
_RELATED = (
    "create table parent (id int primary key, b text)",
    "create table child (extra int, primary key (id)) inherits (parent)",
    "create table empty (id int primary key, b text)",
    "create table computed (id int primary key, a int,"
    " twice int generated always as (a * 2) stored,"
    " thrice int generated always as (a * 3) virtual)",
)
_KEYS = (
    "create table composite (a int, b text, c uuid, d date, e bigint, v text,"
    " primary key (e, d, c, b, a))",
    "create table tokens (id uuid primary key, v text)",
    "create table labels (label text primary key, v text)",
)
_NAMES = (
    'create table "select" ("from" int primary key, "order" text, "group" text)',
    'create table "we""ird" ("qu""ote" int primary key, "näme" text, "tick`s" text,'
    ' "it\'s, so; (it) {{is}}" text)',
    'create table "😀" ("🎉" int primary key, "Ünïcode" text)',
    f"create table {_LONG} ({_LONG_COLUMN} int primary key, b text)",
    'create table "Case" ("Camel" int primary key, "SHOUT" text)',
    "create table cdc_like (cdc_id int primary key, cdc_other text)",
)
_REFUSED = (
    'create table alike ("Id" int primary key, "id" int)',
    'create table "Item" (id int primary key)',
    "create table item (id int primary key)",
    'create table "dotted.name" (id int primary key)',
    "create table orders (id int primary key)",
    "create table orders_changelog (id int primary key)",
    "create table clash (id int primary key, cdc_operation text)",
)
_FIRST_ROWS = (
    "insert into keyless values (1, 'x'), (1, 'x'), (2, 'y')",
    "insert into nameless values (1, 'x')",
    "insert into uncovered values (1, 10, 'x'), (2, 20, 'y')",
    "insert into deferred values (1, 'x'), (2, 'y')",
    "insert into filtered values (1, true, 'in'), (2, false, 'out'), (3, null, 'unknown')",
    "insert into listed values (1, 'x', 'hidden'), (2, 'y', 'hidden')",
    "insert into parent values (1, 'own')",
    "insert into computed values (1, 1), (2, 2)",
    "insert into child values (1, 'of the child', 5), (2, 'of the child', 6)",
    "insert into composite select 1, b, c::uuid, d::date, e, 'old' from"
    " unnest('{x,y}'::text[]) b, unnest('{00000000-0000-0000-0000-000000000001,"
    "ffffffff-ffff-ffff-ffff-ffffffffffff}'::text[]) c, unnest('{2024-02-29}'::text[]) d,"
    " unnest('{-9223372036854775808,9223372036854775807}'::bigint[]) e",
    "insert into tokens values ('00000000-0000-0000-0000-000000000001', 'x'),"
    " ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'y')",
    "insert into labels values ('', 'empty'), ('a', 'x'), ('A', 'y'), ('a ', 'z'), ('ä', 'w')",
    "insert into \"select\" values (1, 'x', 'y')",
    "insert into \"we\"\"ird\" values (1, 'x', 'y', 'z')",
    "insert into \"😀\" values (1, '🎊')",
    f"insert into {_LONG} values (1, 'x')",
    "insert into \"Case\" values (1, 'x')",
    "insert into cdc_like values (1, 'x')",
)
_CHANGES = (
    "insert into keyless values (3, 'z')",
    "alter table keyless replica identity full",
    "update keyless set b = 'changed' where a = 2",
    "delete from keyless where a = 1",
    "insert into nameless values (2, 'y')",
    "update uncovered set b = 'changed' where id = 1",
    "update uncovered set id = 20 where id = 2",
    "begin; update deferred set id = 3 - id; commit",
    "update filtered set active = false, b = 'left' where id = 1",
    "update filtered set active = true, b = 'entered' where id = 2",
    "insert into filtered values (4, true, 'in'), (5, false, 'out')",
    "update filtered set b = 'changed' where id = 4",
    "delete from filtered where id = 3",
    "update listed set secret = 'still hidden', b = 'changed' where id = 1",
    "update listed set id = 3 where id = 2",
    "update parent set b = b || '!'",
    "update computed set a = 5 where id = 1",
    "insert into child values (3, 'of the child', 7)",
    "delete from only parent where id = 1",
    "insert into parent values (9, 'own')",
    "update composite set v = 'changed' where b = 'x'",
    "update composite set a = 2, b = 'z' where b = 'y' and e > 0",
    "update tokens set id = '00000000-0000-0000-0000-000000000002' where v = 'x'",
    "delete from tokens where v = 'y'",
    "update labels set v = 'changed' where label in ('', 'a ')",
    "update labels set label = 'Ä' where label = 'ä'",
    "delete from labels where label = 'A'",
    'update "select" set "order" = \'changed\'',
    'update "we""ird" set "qu""ote" = 2, "it\'s, so; (it) {{is}}" = \'changed\'',
    "insert into \"😀\" values (2, '🥳')",
    f"update {_LONG} set {_LONG_COLUMN} = 2",
    'update "Case" set "Camel" = 2, "SHOUT" = \'changed\'',
    "update cdc_like set cdc_id = 2",
)
_MIRRORED = (
    "parent",
    "child",
    "empty",
    "composite",
    "tokens",
    "labels",
    "select",
    'we"ird',
    "😀",
    _LONG,
    "Case",
    "cdc_like",
)
_APPENDED = ("keyless", "nameless", "uncovered", "deferred")


@pytest.fixture(scope="module")
def db(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CapturedDatabase]:
    """All tables captured, changed, captured again, and merged once."""
    with captured_database(spark, postgres, tmp_path_factory.mktemp("odd")) as db:
        publication = f"{db.config.pipeline}_frazil"
        tables = (*_WITHOUT_KEY, *_SENT_IN_PART, *_RELATED, *_KEYS, *_NAMES, *_REFUSED)
        db.run(*(each.replace("{publication}", publication) for each in tables), *_FIRST_ROWS)
        db.ingest()
        db.run(*_CHANGES)
        db.catch_up()
        yield db


@pytest.mark.fault("T12", "G8", "T4")
@pytest.mark.parametrize("table", _MIRRORED)
def test_the_mirror_is_the_source_whatever_it_is_called_and_keyed_by(
    db: CapturedDatabase, table: str
) -> None:
    db.assert_mirrored(table)


@pytest.mark.fault("T1", "N8")
def test_a_table_without_a_usable_key_has_a_changelog_and_no_mirror(db: CapturedDatabase) -> None:
    states = db.states()
    for table in _APPENDED:
        assert states[table] == Streaming()
        assert not db.has_mirror(table)
        assert all(each.previous is None for each in db.changes(table))
    shown = {table: [each.short for each in db.changes(table)] for table in _APPENDED}
    assert sorted(shown["keyless"][:3]) == [("READ", 1, "x"), ("READ", 1, "x"), ("READ", 2, "y")]
    assert shown["keyless"][3:] == [
        ("INSERT", 3, "z"),
        ("UPDATE", 2, "changed"),
        ("DELETE", 1, "x"),
        ("DELETE", 1, "x"),
    ]
    assert shown["nameless"] == [("READ", 1, "x"), ("INSERT", 2, "y")]
    assert shown["uncovered"][2:] == [("UPDATE", 1, 10, "changed"), ("UPDATE", 20, 20, "y")]
    assert sorted(shown["deferred"][2:]) == [("UPDATE", 1, "y"), ("UPDATE", 2, "x")]


@pytest.mark.fault("N10")
def test_only_rows_that_the_filter_lets_through_are_mirrored(db: CapturedDatabase) -> None:
    db.assert_rows("filtered", db.query("select * from filtered where active"))
    assert [each.short for each in db.changes("filtered")] == [
        ("READ", 1, True, "in"),
        ("DELETE", 1, True, "in"),
        ("INSERT", 2, True, "entered"),
        ("INSERT", 4, True, "in"),
        ("UPDATE", 4, True, "changed"),
    ]


def test_only_columns_of_the_list_are_mirrored(db: CapturedDatabase) -> None:
    db.assert_rows("listed", db.query("select id, b from listed"))
    assert "secret" not in db.mirror_rows("listed")[0]
    assert "secret" not in db.changelog_rows("listed")[0]


def test_computed_columns_are_not_sent_and_not_mirrored(db: CapturedDatabase) -> None:
    db.assert_rows("computed", db.query("select id, a from computed"))
    assert list(db.field_ids(db.names("computed").mirror)) == ["id", "a"]


def test_an_empty_table_has_a_changelog_and_a_mirror(db: CapturedDatabase) -> None:
    assert db.changelog_rows("empty") == []
    assert list(db.field_ids(db.names("empty").mirror)) == ["id", "b"]


@pytest.mark.fault("N10")
def test_rows_of_a_table_that_inherits_are_its_own(db: CapturedDatabase) -> None:
    assert {row["id"] for row in db.mirror_rows("parent")} == {9}
    assert {row["extra"] for row in db.mirror_rows("child")} == {5, 6, 7}


def test_names_that_would_be_one_are_refused_and_the_others_go_on(db: CapturedDatabase) -> None:
    reasons = {
        name: str(state)
        for name, state in db.states().items()
        if isinstance(state, Copying) and state.cause is not None
    }
    alike_names = {"Item", "item", "orders", "orders_changelog"}
    assert set(reasons) == {"alike", "dotted.name", "clash", *alike_names}
    assert "'Id' and 'id' would be one column" in reasons["alike"]
    assert "also the changelog of public.Item" in reasons["item"]
    assert "also the changelog of public.item" in reasons["Item"]
    assert "also the changelog of public.orders" in reasons["orders_changelog"]
    assert "holds a dot" in reasons["dotted.name"]
    assert "'cdc_operation' is called like a column of the changelog" in reasons["clash"]
    assert db.ending is Ending.ACTION_REQUIRED
    assert db.failures == []


@pytest.mark.fault("N10")
def test_rows_that_a_policy_would_hide_are_an_error_and_the_other_tables_go_on(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    with captured_database(spark, postgres, tmp_path) as db:
        role = f"reader_{db.database.name}"
        publication = f"{db.config.pipeline}_frazil"
        db.run(
            "create table secured (id int primary key, tenant text)",
            "create table plain (id int primary key)",
            "insert into secured values (1, 'a'), (2, 'b')",
            "insert into plain values (1)",
            "alter table secured enable row level security",
            "create policy own on secured using (tenant = 'a')",
            f"create publication {publication} for table secured, plain"
            " with (publish_via_partition_root = true)",
            f"create role {role} login replication password 'secret'",
            f"grant select on all tables in schema public to {role}",
        )
        try:
            dsn = db.database.dsn_of(role, "secret").value
            db.reconfigure(source={"dsn": dsn, "publication": {"create": False}})
            db.ingest()
            states = db.states()
            assert states["plain"] == Streaming()
            assert isinstance(states["secured"], Copying)
            assert "row-level security" in str(states["secured"].cause)
            assert db.ending is Ending.ACTION_REQUIRED
            db.run(f"alter role {role} bypassrls")
            db.catch_up()
            assert db.states()["secured"] == Streaming()
            db.assert_mirrored("secured", "plain")
        finally:
            db.run(f"drop owned by {role}", f"drop role {role}")
