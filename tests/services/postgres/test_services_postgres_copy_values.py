"""Values that were copied are those that their text becomes, for every type and extreme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil import errors
from frazil.codec.pgtext.convert import convert
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.names import quote_identifier
from tests.support.postgres.access import database_on
from tests.support.postgres.catalog import copied_text
from tests.support.postgres.copies import copying, pinned_to
from tests.support.postgres.values import EXTENSIONS, MATRIX, RANDOM, SETUP
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database
    from tests.support.postgres.copies import Copying

pytestmark = pytest.mark.services

POLICIES = list(OnUnrepresentable)
MISFITS = [(type_, misfits) for type_, _, misfits in MATRIX if misfits]
SERVERS = ("postgres", "postgres_16")


@pytest.fixture(scope="module", params=sampled(SERVERS, ci={"postgres"}))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "copied_values") as made:
        made.run(SETUP)
        yield made


def sample(database: Database, *columns: tuple[str, str, list[str | None]]) -> None:
    """A new table ``sample`` whose columns have these names, types and values."""
    names = ", ".join(f"{quote_identifier(name)} {type_}" for name, type_, _ in columns)
    longest = max(len(values) for *_, values in columns)
    with psycopg.connect(database.dsn.value, autocommit=True) as connection:
        connection.execute("drop table if exists sample")
        connection.execute(f"create table sample (id int, {names})".encode())
        casts = ", ".join(f"%s::text::{type_}" for _, type_, _ in columns)
        for at in range(longest):
            row = [values[at] if at < len(values) else None for *_, values in columns]
            connection.execute(f"insert into sample select %s, {casts}".encode(), (at, *row))


def as_text(copy: Copying) -> dict[str, pa.StringArray]:
    """Every column of the table as COPY prints it in its text form."""
    with pinned_to(copy.database) as connection:
        return {
            str(each.number): copied_text(
                connection,
                f"select {quote_identifier(each.name)} from {copy.relation.quoted} order by ctid",
            )
            for each in copy.table.columns
        }


def assert_as_converted(copy: Copying) -> None:
    """The copy has what the text of every column becomes."""
    rows = copy.rows()
    for each, text in zip(copy.table.columns, as_text(copy).values(), strict=True):
        expected = convert(text, each.plan).values
        found = rows.column(str(each.number)).combine_chunks()
        found.validate(full=True)
        # Arrow takes no NaN for equal, and 0 for −0.
        assert found.type == expected.type, each
        assert [str(value) for value in found.to_pylist()] == [
            str(value) for value in expected.to_pylist()
        ], each


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_values_of_every_type_are_those_of_their_text(database: Database) -> None:
    types = [
        *((type_, fitting) for type_, fitting, _ in MATRIX),
        *(EXTENSIONS.items() if database.server.version == 18 else ()),
    ]
    if database.server.version == 18:
        for name in ("citext", "hstore", "ltree"):
            database.run(f"create extension if not exists {name}")
    sample(database, *((f"c{at}", type_, [None, *v]) for at, (type_, v) in enumerate(types)))
    with copying(database, "sample") as copy:
        assert len(copy.table.columns) == len(types) + 1
        assert_as_converted(copy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("type_", "misfits"), MISFITS, ids=[each[0] for each in MISFITS])
def test_what_does_not_fit_follows_the_policy(
    database: Database, type_: str, misfits: list[str], policy: OnUnrepresentable
) -> None:
    sample(database, ("v", type_, [*misfits, None]))
    with copying(database, "sample", policy=policy) as copy:
        if policy is OnUnrepresentable.FAIL:
            assert isinstance(copy.failure(), errors.UnrepresentableValueError)
        else:
            assert_as_converted(copy)


def test_thousands_of_random_values_are_those_of_their_text(database: Database) -> None:
    columns = ", ".join(f"c{at} {type_}" for at, type_ in enumerate(RANDOM))
    values = ", ".join(
        f"case when random() < 0.1 then null else {value} end" for value in RANDOM.values()
    )
    database.run(
        "drop table if exists sample",
        f"create table sample ({columns})",
        f"insert into sample select {values} from generate_series(1, 5000)",
    )
    with copying(database, "sample") as copy:
        assert_as_converted(copy)


NUMERICS = ["numeric(1)", "numeric(4,4)", "numeric(9,3)", "numeric(16,8)", "numeric(18,5)",
            "numeric(18,18)", "numeric(19,2)", "numeric(38,10)"]  # fmt: skip


def test_random_numbers_of_all_widths_are_those_of_their_text(database: Database) -> None:
    columns = ", ".join(f"c{at} {type_}" for at, type_ in enumerate(NUMERICS))
    values = ", ".join(
        f"trunc((random() - 0.5)::numeric * 10::numeric ^ (random() * {digits})::int, {scale})"
        for digits, scale in map(digits_of, NUMERICS)
    )
    database.run(
        "drop table if exists sample",
        f"create table sample ({columns})",
        f"insert into sample select {values} from generate_series(1, 3000)",
    )
    with copying(database, "sample") as copy:
        assert_as_converted(copy)


def digits_of(type_: str) -> tuple[int, int]:
    """Digits before the point, and behind it."""
    precision, _, scale = type_.removeprefix("numeric(").removesuffix(")").partition(",")
    return int(precision) - int(scale or 0), int(scale or 0)


texts = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    rows=st.lists(
        st.tuples(texts, st.none() | st.binary(max_size=40), st.none() | st.lists(texts)),
        max_size=20,
    )
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_text_bytes_and_list_come_as_they_are(
    database: Database,
    rows: list[tuple[str | None, bytes | None, list[str | None] | None]],
) -> None:
    database.run("drop table if exists sample", "create table sample (t text, b bytea, a text[])")
    with psycopg.connect(database.dsn.value, autocommit=True) as connection:
        connection.cursor().executemany("insert into sample values (%s, %s, %s)", rows)
    with copying(database, "sample") as copy:
        found = copy.rows()
    columns = found.select(["1", "2", "3"]).to_pylist() if rows else []
    assert [tuple(row.values()) for row in columns] == rows


ODD_NAMES = ["Id", "select", 'a "quoted" one', "dots.in.it", "🐢", "%s", "{}", "back\\slash", "'"]


def test_names_may_hold_anything(database: Database) -> None:
    odd = 'Odd."🐢".%s'
    quoted = quote_identifier(odd)
    columns = ", ".join(f"{quote_identifier(each)} text" for each in ODD_NAMES)
    times = ", ".join(f"{quote_identifier('t' + each)} time" for each in ODD_NAMES)
    database.run(f"create table {quoted} ({columns}, {times})")
    try:
        database.run(f"insert into {quoted} select 'a', 'b'")
        with copying(database, odd) as copy:
            (row,) = copy.rows().select(["1", "2", "3"]).to_pylist()
            assert list(row.values()) == ["a", "b", None]
            assert_as_converted(copy)
    finally:
        database.run(f"drop table {quoted}")
