"""Columns that come, go and change at a Postgres database, seen through changelog and mirror.

Every table of one database has a change of its own, between two runs of the pipeline; tables that
are paused by it are read again in a third run. What a test names was done before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from frazil.errors import UnsupportedSchemaChangeError
from frazil.ledger.table_state import Paused, ResyncRequired, Streaming
from frazil.pipeline.loops.loop import Ending
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.ledger.table_state import State
    from tests.support.ingest.captured import CapturedDatabase, Row

pytestmark = [pytest.mark.spark, pytest.mark.services]

# Longer than what Postgres keeps in the row itself.
_LARGE = 9000


def _in_one(*statements: str) -> str:
    return f"begin; {'; '.join(statements)}; commit"


# By table, what makes it and what changes it. The first four are tried on old servers as well.
_FOLLOWED = {
    "added": (
        "create table added (id int primary key, a text)",
        "insert into added values (1, 'x'), (2, 'y')",
        "alter table added add b int, add c text not null default 'old', add d int default null",
        "insert into added values (3, 'z', 3, 'new')",
        "update added set c = 'changed' where id = 2",
        "alter table added alter c set default 'other', add e numeric(6, 2) default 1.5,"
        " add f date default '2024-02-29', add g bool default true, add h uuid default"
        " '00000000-0000-0000-0000-000000000001', add i timestamptz default '2024-02-29 12:00Z',"
        " add j bytea default '\\x00ff', add k bigint default -1, add l float8 default 0.1,"
        " add m jsonb default '{\"a\": [1]}'",
        "insert into added values (4, 'z', 4, default)",
    ),
    "renamed": (
        "create table renamed (id int primary key, a text, b text)",
        "insert into renamed values (1, 'x', 'p'), (2, 'y', 'q'), (3, 'z', 'r')",
        "alter table renamed rename id to code",
        "alter table renamed rename a to c",
        "update renamed set code = 9, c = 'changed' where code = 1",
        _in_one(
            "alter table renamed rename b to a",
            "alter table renamed rename c to b",
            "delete from renamed where code = 2",
            "insert into renamed values (4, 'in b', 'in a')",
        ),
    ),
    "within": (
        "create table within (id int primary key, a text)",
        "insert into within values (1, 'x'), (2, 'y'), (3, 'z')",
        _in_one(
            "update within set a = 'before' where id = 1",
            "alter table within rename a to b",
            "update within set b = 'after' where id = 2",
            "alter table within add a int default 7",
            "insert into within values (4, 'new', 4)",
            "update within set a = 8 where id = 3",
        ),
    ),
    "moved_on": (
        "create table moved_on (id int primary key, a text)",
        "insert into moved_on values (1, 'x'), (2, 'y')",
        "insert into moved_on values (3, 'first')",
        "alter table moved_on rename a to b",
        "update moved_on set b = 'second' where id = 1",
        "alter table moved_on rename b to c",
        "alter table moved_on add d int default 5",
        "insert into moved_on values (4, 'third', 6)",
        "alter table moved_on rename d to a",
        "update moved_on set a = 8 where id = 2",
    ),
    "dropped": (
        "create table dropped (id int primary key, a text, b text)",
        "insert into dropped values (1, 'x', 'kept'), (2, 'y', 'kept'), (3, 'z', 'kept')",
        "alter table dropped drop b",
        "update dropped set a = 'changed' where id = 2",
    ),
    "dropped_for_good": (
        "create table dropped_for_good (id int primary key, a text, b text)",
        "insert into dropped_for_good values (1, 'x', 'kept'), (2, 'y', 'kept')",
        "alter table dropped_for_good drop b",
        "update dropped_for_good set a = 'changed' where id = 2",
    ),
    "came_back": (
        "create table came_back (id int primary key, a text, b text)",
        "insert into came_back values (1, 'x', 'p'), (2, 'y', 'q')",
        "alter table came_back drop b, add b int",
        "update came_back set b = 5 where id = 2",
    ),
    "widened": (
        "create table widened (id int primary key, n int, f real, d numeric(5, 2), s varchar(5))",
        "insert into widened values (1, 1, 0.1, 1.5, 'x'), (2, 2147483647, 'NaN', 999.99, 'y')",
        "alter table widened alter n type bigint using n * 100::bigint, alter f type float8,"
        " alter d type numeric(12, 2), alter s type text",
        "insert into widened values (3, 9223372036854775807, 0.1, 1234567890.12, 'long enough')",
    ),
    "longer": (
        "create table longer (id int primary key, s varchar(5))",
        "insert into longer values (1, 'x')",
        "alter table longer alter s type text",
        "insert into longer values (2, 'long enough')",
    ),
}
_PAUSED = {
    "random": (
        "create table random (id int primary key, a text)",
        "insert into random values (1, 'x'), (2, 'y')",
        "alter table random add b uuid default gen_random_uuid()",
        "insert into random values (3, 'z')",
    ),
    "passing": (
        "create table passing (id int primary key, a text)",
        "insert into passing values (1, 'x'), (2, 'y')",
        "alter table passing add b int default 9",
        "insert into passing values (3, 'z', 7)",
        "alter table passing drop b",
    ),
    "disputed": (
        "create table disputed (id int primary key, a text)",
        "insert into disputed values (1, 'x'), (2, 'y')",
        "insert into disputed values (3, 'z')",
        "alter table disputed drop a",
        "alter table disputed add b text",
        "insert into disputed values (4, 'in b')",
        "alter table disputed rename b to a",
        "insert into disputed values (5, 'in b')",
    ),
    "old_format": (
        "create table old_format (id int primary key, a text)",
        "insert into old_format values (1, 'x'), (2, 'y')",
        "alter table old_format add b int default 7",
        "insert into old_format values (3, 'z')",
    ),
    "retyped": (
        "create table retyped (id int primary key, a text)",
        "insert into retyped values (1, '10'), (2, '20')",
        "alter table retyped alter a type int using a::int + 1",
        "insert into retyped values (3, 30)",
    ),
    "rekeyed": (
        "create table rekeyed (id int primary key, code int not null, a text)",
        "insert into rekeyed values (1, 10, 'x'), (2, 20, 'y')",
        "alter table rekeyed drop constraint rekeyed_pkey, add primary key (code)",
        "update rekeyed set a = 'changed' where code = 20",
        "update rekeyed set id = 1 where code = 20",
    ),
    "keyless": (
        "create table keyless (id int primary key, a text)",
        "insert into keyless values (1, 'x'), (2, 'y')",
        "alter table keyless drop constraint keyless_pkey, replica identity full",
        "insert into keyless values (1, 'twice')",
    ),
}
_ON_OLD_SERVERS = ("added", "renamed", "within", "moved_on", "random", "disputed")
# Mirrors do not follow.
_WITH_ANOTHER_KEY = ("rekeyed", "keyless")
_CREATES = 2


@dataclass(frozen=True)
class Evolved:
    """A database after three runs, and what was seen after the second."""

    db: CapturedDatabase
    states: dict[str, State]
    ending: object
    paused_rows: dict[str, list[Row]]


def _run_all(db: CapturedDatabase, tables: dict[str, tuple[str, ...]]) -> Evolved:
    for statements in tables.values():
        db.run(*statements[:_CREATES])
    db.catch_up()
    for statements in tables.values():
        db.run(*statements[_CREATES:])
    db.catch_up()
    paused = [table for table in tables if table in _PAUSED]
    seen = Evolved(db, db.states(), db.ending, {table: db.mirror_rows(table) for table in paused})
    db.resync(*paused)
    db.ingest()
    db.merge(*(table for table in paused if table not in _WITH_ANOTHER_KEY))
    return seen


@pytest.fixture(scope="module")
def evolved(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Evolved]:
    """All tables, on the newest server."""
    tables = [
        {"mirror": "public.dropped_for_good", "on_drop": "drop"},
        {"mirror": "public.old_format", "format_version": 2},
    ]
    folder = tmp_path_factory.mktemp("evolved")
    with captured_database(spark, postgres, folder, tables=tables) as db:
        yield _run_all(db, _FOLLOWED | _PAUSED)


@pytest.fixture(scope="module")
def evolved_16(
    spark: SparkSession, postgres_16: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Evolved]:
    """Some of them, on an old one."""
    tables = {name: (_FOLLOWED | _PAUSED)[name] for name in _ON_OLD_SERVERS}
    with captured_database(spark, postgres_16, tmp_path_factory.mktemp("evolved")) as db:
        yield _run_all(db, tables)


@pytest.mark.fault("T9")
@pytest.mark.parametrize("table", _FOLLOWED)
def test_a_mirror_follows(evolved: Evolved, table: str) -> None:
    assert evolved.states[table] == Streaming()
    evolved.db.assert_mirrored(table)


# Changes of schemas on servers of both versions are read in test_services_relation_matching.
@pytest.mark.deep
@pytest.mark.parametrize("table", _ON_OLD_SERVERS)
def test_the_same_on_an_old_server(evolved_16: Evolved, table: str) -> None:
    paused = isinstance(evolved_16.states[table], Paused)
    assert paused == (table in _PAUSED)
    evolved_16.db.assert_mirrored(table)


@pytest.mark.fault("T10", "T3")
@pytest.mark.parametrize("table", [each for each in _PAUSED if each not in _WITH_ANOTHER_KEY])
def test_what_cannot_be_followed_pauses_its_table_until_it_is_copied_again(
    evolved: Evolved, table: str
) -> None:
    state = evolved.states[table]
    assert isinstance(state, Paused)
    assert f"frazil resync public.{table}" in (state.cause.remedy or "")
    assert {row["id"] for row in evolved.paused_rows[table]} == {1, 2}
    assert evolved.ending is Ending.ACTION_REQUIRED
    assert evolved.db.states()[table] == Streaming()
    evolved.db.assert_mirrored(table)


@pytest.mark.fault("T3")
def test_a_mirror_with_another_key_is_created_again_once_it_was_dropped(evolved: Evolved) -> None:
    db = evolved.db
    state = evolved.states["rekeyed"]
    assert isinstance(state, ResyncRequired)
    assert "its key was dropped" in state.reason
    with pytest.raises(UnsupportedSchemaChangeError, match="key changes") as refused:
        db.merge("rekeyed")
    assert refused.value.next_step is not None
    assert "drop the mirror" in refused.value.next_step
    assert {row["id"] for row in db.mirror_rows("rekeyed")} == {1, 2}
    db.spark.sql(f"drop table {db.config.catalog.name}.public.rekeyed")
    db.merge("rekeyed")
    db.assert_mirrored("rekeyed")


def test_a_table_that_lost_its_key_goes_on_with_a_changelog(evolved: Evolved) -> None:
    assert isinstance(evolved.states["keyless"], ResyncRequired)
    assert evolved.db.states()["keyless"] == Streaming()
    last = [each.short for each in evolved.db.changes("keyless")][-4:]
    assert last[0] == ("TRUNCATE", None, None)
    assert sorted(last[1:]) == [("READ", 1, "twice"), ("READ", 1, "x"), ("READ", 2, "y")]


def test_paused_tables_say_why(evolved: Evolved) -> None:
    reasons = {name: str(state) for name, state in evolved.states.items()}
    assert "b is new, and older rows may have values in it" in reasons["random"]
    assert "only format version 3 keeps" in reasons["old_format"]
    assert "a changes from string to int" in reasons["retyped"]
    assert "it is not known which" in reasons["disputed"]


@pytest.mark.fault("T9")
def test_a_default_is_not_written_into_rows_that_were_never_sent(evolved: Evolved) -> None:
    sent = [(each.operation, each.row["id"]) for each in evolved.db.changes("added")]
    assert sent[2:] == [("INSERT", 3), ("UPDATE", 2), ("INSERT", 4)]


def test_a_dropped_column_keeps_what_it_had_or_goes(evolved: Evolved) -> None:
    rows = {row["id"]: row["b"] for row in evolved.db.mirror_rows("dropped")}
    assert (rows[1], rows[3]) == ("kept", "kept")
    assert "b" not in evolved.db.field_ids(evolved.db.names("dropped_for_good").mirror)
    assert "b" not in evolved.db.field_ids(evolved.db.names("dropped_for_good").changelog)


def test_a_renamed_column_stays_the_same_field(evolved: Evolved) -> None:
    changelog = evolved.db.field_ids(evolved.db.names("renamed").changelog)
    assert (changelog["code"], changelog["b"], changelog["a"]) == (1, 2, 3)
    operations = [(each.operation, each.row["code"]) for each in evolved.db.changes("renamed")]
    assert operations[3:] == [("DELETE", 1), ("INSERT", 9), ("DELETE", 2), ("INSERT", 4)]


def test_a_widened_table_is_read_again_by_itself(evolved: Evolved) -> None:
    operations = [each.operation for each in evolved.db.changes("widened")]
    assert operations == ["READ", "READ", "TRUNCATE", "READ", "READ", "READ"]
    # Text of any length was text before.
    assert [each.operation for each in evolved.db.changes("longer")] == ["READ", "INSERT"]


def test_a_running_pipeline_follows_one_change_after_the_other(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    source = {"on_widen": "accept"}
    with captured_database(spark, postgres, tmp_path, source=source) as db:
        db.run(
            "create table t (id int primary key, a text, b int, c text)",
            "alter table t alter c set storage external",
            f"insert into t select i, 'x', i, repeat('c', {_LARGE}) || i from"
            " generate_series(1, 9) i",
        )
        db.catch_up()
        with db.running() as take:
            for change in (
                "alter table t drop a; update t set b = 10 where id = 1",
                "alter table t add a text; update t set a = 'again' where id = 2",
                "alter table t rename c to d; update t set id = 13 where id = 3",
                "alter table t add c int default 4; update t set c = 5 where id = 4",
                "update t set b = 11 where id = 4",
                "alter table t alter b type bigint; insert into t values (20, 1099511627776)",
                "alter table t rename id to code; delete from t where code = 5",
                "alter table t replica identity full; update t set a = 'y' where code = 6",
                "truncate t; insert into t values (30, 1, 'd', 'a', 2)",
                "alter table t drop c; insert into t values (31, 1, 'd', 'a')",
                "alter table t add c int; insert into t values (32, 1, 'd', 'a', 3)",
                "alter table t rename d to e; update t set e = 'changed' where code = 30",
            ):
                db.run(change)
                take()
        assert db.states() == {"t": Streaming()}
        before_truncate = [each for each in db.changes("t") if each.operation != "READ"][:9]
        assert [(each.operation, each.row["code"]) for each in before_truncate] == [
            ("UPDATE", 1),
            ("UPDATE", 2),
            ("DELETE", 3),
            ("INSERT", 13),
            ("UPDATE", 4),
            ("UPDATE", 4),
            ("INSERT", 20),
            ("DELETE", 5),
            ("UPDATE", 6),
        ]
        db.merge()
        db.assert_mirrored("t")
