"""What a role, a database or a server sets changes nothing in the text of captured values."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.codec.pgtext.convert import SESSION_SETTINGS
from frazil.testing.contract.replay import CaptureUnderTest
from tests.support.postgres.access import database_on
from tests.support.postgres.subject import PostgresSubject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database

pytestmark = [pytest.mark.services, pytest.mark.fault("N39")]

# A value or more of every type whose text some setting changes, as a column of a table.
VALUES = {
    "moment": ("timestamptz", "'2001-02-03 04:05:06.789+00'"),
    "day": ("date", "'2001-02-03'"),
    "hour": ("timetz", "'04:05:06+03'"),
    "span": ("interval", "'-1 year 2 months -3 days 04:05:06'"),
    "number": ("float8", "(0.1::float8 + 0.2::float8)"),
    "numbers": ("float4[]", "array[1/3.0, null, 2]::float4[]"),
    "bytes": ("bytea", "decode('00ff5c', 'hex')"),
    "money": ("money", "'1234567.89'::numeric::money"),
    "relation": ("regclass", "'shop.\"Odd Name\"'::regclass"),
    "plain": ("regclass", "'shop.plain'::regclass"),
    "type": ("regtype", "'int4'::regtype"),
    "texts": ("text[]", "array['NULL', null, 'a b']"),
    "pair": ("shop.pair", "row('2001-02-03 04:05:06+00'::timestamptz, '1 day'::interval)"),
    "stretch": ("tstzrange", "'[2001-02-03 04:05:06+00,)'"),
}
SELECT = ", ".join(f"{expression}::{type_}::text" for type_, expression in VALUES.values())
# Settings with values of their own kind; those of flags and enumerations are tried.
HOSTILE = {
    "DateStyle": ["SQL, DMY", "German"],
    "TimeZone": ["Asia/Tokyo", "America/New_York"],
    "IntervalStyle": ["iso_8601", "sql_standard"],
    "extra_float_digits": ["-15", "0"],
    "search_path": ["shop, public", "shop"],
    "client_encoding": ["LATIN1"],
    "lc_monetary": ["C", "C.UTF-8", "de_DE.UTF-8", "en_US.UTF-8", "ja_JP.UTF-8"],
    "lc_numeric": ["C", "de_DE.UTF-8"],
    "lc_time": ["C", "de_DE.UTF-8"],
    "default_text_search_config": ["pg_catalog.german"],
    "timezone_abbreviations": ["Australia"],
}
# Settings that keep a session from answering at all, or from saying what it said.
UNWALKED = {"exit_on_error"}


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, f"settings_{uuid4().hex[:10]}") as made:
        yield made


@pytest.fixture(scope="module")
def subject(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresSubject]:
    folder: Path = tmp_path_factory.mktemp("settings")
    opened = PostgresSubject(database, folder)
    columns = ", ".join(f'"{name}" {type_}' for name, (type_, _) in VALUES.items())
    database.run(
        'create table shop."Odd Name" (id int primary key)',
        "create table shop.plain (id int primary key)",
        "create type shop.pair as (at timestamptz, span interval)",
        f"create table shop.printed (id int primary key, {columns})",
    )
    try:
        yield opened
    finally:
        opened.close()
        with suppress(psycopg.Error):
            database.run(f"select pg_drop_replication_slot('{opened.slot}')")


def hostile_values(connection: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """Every setting that a role or a database may have, with every other value worth trying."""
    rows = connection.execute(
        "select name, setting, vartype, enumvals from pg_settings "
        "where context in ('user', 'superuser') order by name"
    ).fetchall()
    for name, setting, kind, values in rows:
        if name in UNWALKED:
            continue
        if name in HOSTILE:
            yield from ((name, value) for value in HOSTILE[name])
        elif kind == "bool":
            yield name, "off" if setting == "on" else "on"
        elif kind == "enum":
            yield from ((name, each) for each in values if each != setting)


def printed(connection: psycopg.Connection) -> object:
    # As bytes: what they mean depends on the encoding, which is a setting, too.
    cursor = connection.cursor(binary=False)
    result = cursor.execute(f"select {SELECT}".encode()).pgresult
    assert result is not None
    return [result.get_value(0, at) for at in range(result.nfields)]


def test_every_setting_that_changes_what_is_printed_is_pinned(
    database: Database, subject: PostgresSubject
) -> None:
    assert subject.slot
    tried, changing = 0, set()
    with psycopg.connect(database.dsn.value, autocommit=True) as connection:
        for name, value in SESSION_SETTINGS.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
        expected = printed(connection)
        for name, value in list(hostile_values(connection)):
            before = connection.execute("select current_setting(%s)", (name,)).fetchone()
            assert before is not None
            # A locale that is not installed, a flag that this build does not have, or one that a
            # transaction must begin with.
            with suppress(psycopg.Error):
                connection.execute("select set_config(%s, %s, false)", (name, value))
            tried += 1
            if printed(connection) != expected:
                changing.add(name.lower())
            with suppress(psycopg.Error):
                connection.execute("select set_config(%s, %s, false)", (name, before[0]))
    assert tried > 100
    assert changing >= {"datestyle", "timezone", "quote_all_identifiers", "search_path"}
    assert changing <= set(SESSION_SETTINGS)


def test_hostile_settings_of_a_database_change_no_copied_and_no_streamed_value(
    database: Database, subject: PostgresSubject
) -> None:
    values = ", ".join(f"{expression}::{type_}" for type_, expression in VALUES.values())
    database.run(f"insert into shop.printed select 1, {values}")
    with connect(database.dsn, purpose="test") as session:
        columns = ", ".join(f'"{name}"::text' for name in VALUES)
        (expected,) = session.load(Texts, f"select {columns} from shop.printed", doing="testing")
    for name, value in hostile_settings(database):
        database.run(f"alter database {database.name} set {name} to '{value}'")
    capture = CaptureUnderTest(subject)
    capture.begin("shop.printed")
    names = ", ".join(f'"{name}"' for name in VALUES)
    database.run(f"insert into shop.printed select 2, {names} from shop.printed")
    capture.catch_up()
    copied, streamed = capture.received("shop.printed")
    assert (copied["operation"], streamed["operation"]) == ("READ", "INSERT")
    tables = {each.name: each for each in capture.source.discover()}
    columns_by_number = {str(each.number): each.name for each in tables["shop.printed"].columns}
    del columns_by_number["1"]
    for number, name in columns_by_number.items():
        assert copied[number] == streamed[number], name
        if isinstance(copied[number], str):
            assert copied[number] == expected.text(name), name
    pinned = {**SESSION_SETTINGS, "transform_null_equals": "off", "idle_session_timeout": "0"}
    for opened in (
        connect(database.dsn, purpose="test"),
        connect_replication(database.dsn, purpose="test"),
    ):
        with opened:
            # Both print with the settings of their own session.
            raw = opened._connection
            for name, value in pinned.items():
                (found,) = raw.execute(f"show {name}".encode()).fetchone() or ("",)
                assert found.replace(" ", "").strip('"') == value.replace(" ", ""), name


class Texts:
    """A row of ``VALUES`` as text."""

    def __init__(self, *values: str) -> None:
        self._values = dict(zip(VALUES, values, strict=True))

    def text(self, name: str) -> str:
        return self._values[name]


def hostile_settings(database: Database) -> Iterator[tuple[str, str]]:
    """One hostile value for each that is pinned."""
    others = {
        "bytea_output": "escape",
        "quote_all_identifiers": "on",
        "xmlbinary": "hex",
        "xmloption": "document",
        "array_nulls": "off",
        "transform_null_equals": "on",
        "gin_fuzzy_search_limit": "1",
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
        "standard_conforming_strings": "off",
        "statement_timeout": "10min",
        "idle_session_timeout": "10min",
    }
    with psycopg.connect(database.dsn.value, autocommit=True) as connection:
        for name, values in HOSTILE.items():
            if name.lower() not in SESSION_SETTINGS:
                continue
            for value in reversed(values):
                with suppress(psycopg.errors.InvalidParameterValue):
                    connection.execute("select set_config(%s, %s, false)", (name, value))
                    yield name, value
                    break
    yield from others.items()
