"""Postgres as the oracle: what it prints becomes values that it takes for the same ones."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from frazil.codec.pgtext.convert import convert
from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import plan_column
from frazil.model.schema.types import Primitive
from tests.support.postgres.catalog import column_type, copied_text, pinned
from tests.support.postgres.values import EXTENSIONS, MATRIX, RANDOM, SETUP, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa

    from frazil.demo.services import Postgres
    from frazil.model.postgres.types import PostgresType

    Connection = psycopg.Connection[tuple[Any, ...]]

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def session(request: pytest.FixtureRequest) -> Iterator[Connection]:
    server: Postgres = request.getfixturevalue(request.param)
    with pinned(server.dsn) as connection:
        connection.execute("create schema values_of_types")
        connection.execute("set search_path = values_of_types, public")
        connection.execute(SETUP)
        yield connection
        connection.execute("drop schema values_of_types cascade")


@contextmanager
def table_of(session: Connection, type_: str, literals: list[str]) -> Iterator[PostgresType]:
    """A table ``sample`` with a column ``v`` of these values and a null."""
    session.execute(f"create table sample (id int, v {type_})")
    try:
        for at, literal in enumerate([*literals, None]):
            session.execute(f"insert into sample select %s, %s::{type_}", (at, literal))
        yield column_type(session, "sample", "v")
    finally:
        session.execute("drop table sample")


def text_of(session: Connection) -> pa.StringArray:
    return copied_text(session, "select v from sample order by id")


@pytest.mark.parametrize("type_", EXTENSIONS)
def test_the_types_of_extensions_are_kept_as_printed(postgres: Postgres, type_: str) -> None:
    with pinned(postgres.dsn) as session:
        session.execute("set search_path = public")
        session.execute(f"create extension if not exists {type_.removesuffix('[]')}")
        assert_round_trip(session, type_, EXTENSIONS[type_])


@pytest.mark.fault("T6")
@pytest.mark.parametrize(("type_", "fitting", "misfits"), MATRIX, ids=[row[0] for row in MATRIX])
def test_a_value_is_the_same_for_postgres_after_its_way_through_arrow(
    session: Connection, type_: str, fitting: list[str], misfits: list[str]
) -> None:
    assert_round_trip(session, type_, fitting)
    assert_policies(session, type_, misfits)


def assert_round_trip(session: Connection, type_: str, literals: list[str]) -> None:
    with table_of(session, type_, literals) as found:
        text = text_of(session)
        assert text.null_count == 1
        plan = plan_column("v", found)
        returned = [
            None if each is None else printed(each, plan)
            for each in convert(text, plan).values.to_pylist()
        ]
        session.execute("truncate sample")
        for at, each in enumerate(returned):
            session.execute(f"insert into sample select %s, %s::{type_}", (at, each))
        assert text_of(session) == text


def assert_policies(session: Connection, type_: str, misfits: list[str]) -> None:
    for literal in misfits:
        with table_of(session, type_, [literal]) as found:
            text = text_of(session)
            with pytest.raises(UnrepresentableValueError, match="'v': 1 of 2"):
                convert(text, plan_column("v", found))
            null = plan_column("v", found, on_unrepresentable=OnUnrepresentable.NULL)
            nulled = convert(text, null)
            assert (nulled.values.null_count, nulled.nulled) == (2, 1)
            string = plan_column("v", found, on_unrepresentable=OnUnrepresentable.STRING)
            assert string.type is Primitive.STRING
            assert convert(text, string).values == text


@pytest.mark.parametrize("type_", RANDOM)
def test_a_thousand_random_values_are_those_of_the_binary_protocol(
    session: Connection, type_: str
) -> None:
    session.execute(f"create table sample (id serial, v {type_})")
    try:
        session.execute(
            f"insert into sample (v) select {RANDOM[type_]} from generate_series(1, 1000)"
        )
        plan = plan_column("v", column_type(session, "sample", "v"))
        found = convert(text_of(session), plan).values.to_pylist()
        with session.cursor(binary=True) as cursor:
            expected = [each for (each,) in cursor.execute("select v from sample order by id")]
    finally:
        session.execute("drop table sample")
    assert found == expected


@pytest.mark.parametrize(
    ("setting", "type_", "literal"),
    [
        ("datestyle = 'SQL, DMY'", "date", "2020-12-31"),
        ("datestyle = 'German'", "timestamp", "2020-12-31 12:00:00"),
        ("datestyle = 'Postgres'", "timestamptz", "2020-12-31 12:00:00"),
        ("timezone = 'Asia/Kolkata'", "timestamptz", "2020-12-31 12:00:00"),
        ("bytea_output = 'escape'", "bytea", "abc"),
        ("bytea_output = 'escape'", "bytea", "\\\\x00"),
    ],
)
def test_a_session_that_is_not_pinned_is_noticed(
    session: Connection, setting: str, type_: str, literal: str
) -> None:
    with table_of(session, type_, [literal]) as found, session.transaction():
        session.execute(f"set local {setting}")
        with pytest.raises(MalformedChangeError, match="'v': 1 values"):
            convert(text_of(session), plan_column("v", found))
