"""A value copied is the value streamed is the value Postgres prints, for every type it has.

All types share one table, a column each: its rows are the extremes of every type and values at
random. The same values come by copy, by INSERT and by UPDATE, and are read back from changelog and
mirror by two readers. Postgres is the judge: it is given what was read, and must print what it
printed before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from frazil.errors import UnrepresentableValueError
from frazil.ledger.table_state import Copying, Paused, Streaming
from frazil.model.postgres.types import ArrayForm, Form, plan_column
from frazil.pipeline.tables.merge_settings import load_merges
from frazil.pipeline.verification import build_source_verifier
from tests.support.ingest.captured import captured_database
from tests.support.lake.other_readers import rows_by_pyiceberg
from tests.support.postgres.catalog import column_type, copied_text, pinned
from tests.support.postgres.drawing import draw_values
from tests.support.postgres.values import EXTENSIONS, MATRIX, SETUP, printed
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.errors import FrazilError
    from frazil.ledger.table_state import State
    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.table_name import TableName
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services]

# What the packages of these servers come without. Elsewhere it is text, like every other type.
LACKING = {"postgres": {"xml"}, "postgres_16": {"xml", "citext", "citext[]", "hstore", "ltree"}}
OPTIONAL = {**EXTENSIONS, "xml": ["<a>&lt;</a>", "text <b/>"]}
SEED = int(os.environ.get("FRAZIL_VALUES_SEED", "20240229"))
VALUES_OF_EACH_TYPE = 200
# One value comes by copy, by INSERT and by UPDATE, in rows whose numbers are this far apart.
COPIED, INSERTED, UPDATED = 0, 100_000, 200_000
WAYS = (COPIED, INSERTED, UPDATED)

# Columns of one table that have values which do not fit, by what is to become of those.
MISFITS = [(type_, fitting, misfits) for type_, fitting, misfits in MATRIX if misfits]
NULLED = {f"n{at}": row for at, row in enumerate(MISFITS)}
SPELLED = {f"s{at}": row for at, row in enumerate(MISFITS)}
# Type at the source, declared type, value at the source, value read.
DECLARED: dict[str, tuple[str, str, str, object]] = {
    "d_price": ("numeric", "decimal(20,6)", "-12345678901234.5", "-12345678901234.500000"),
    "d_wide": ("int4", "long", "-2147483648", -2147483648),
    "d_double": ("float4", "double", "0.1", 0.10000000149011612),
    "d_zone": ("timestamp", "timestamptz", "2020-02-29 12:00", "2020-02-29 12:00:00+00:00"),
    "d_text": ("uuid", "string", str(UUID(int=7)), str(UUID(int=7))),
    "d_array": ("int4[]", "string", "[0:1][1:2]={{1,2},{3,NULL}}", "[0:1][1:2]={{1,2},{3,NULL}}"),
    "d_digits": ("numeric(10,2)", "string", "NaN", "NaN"),
}  # fmt: skip
# Tables that are refused, each for one value of its column ``v``.
REFUSED_IN_COPY = {"copy_date": ("date", "5874897-12-31"), "copy_bounds": ("int4[]", "[7:7]={77}")}
REFUSED_IN_STREAM = {
    "late": ("timestamptz", "294276-12-31 23:59:59.999999"),
    "before": ("timestamp", "0044-03-15 BC"),
    "no_number": ("numeric(10,2)", "NaN"),
    "endless": ("date", "-infinity"),
    "square": ("text[]", "{{secret}}"),
    "too_wide": ("numeric", "123456789012345678901.5"),
}


@cache
def drawn() -> Mapping[str, Sequence[str]]:
    return draw_values(VALUES_OF_EACH_TYPE, number=SEED)


@dataclass(frozen=True)
class Values:
    """A database of values that was captured."""

    world: CapturedDatabase
    columns: Mapping[str, str]
    lacking: frozenset[str]
    count: int
    after_copy: Mapping[str, State]
    refused_in_copy: Mapping[str, FrazilError]
    after_stream: Mapping[str, State]
    refused_in_stream: Mapping[str, FrazilError]

    def by_pyiceberg(self, name: TableName) -> pa.Table:
        return rows_by_pyiceberg(self.world.lake.open(name).load_metadata_location())

    def by_spark(self, name: TableName) -> pa.Table:
        return self.world.lake.open(name).read().toArrow()


def optional_types(world: CapturedDatabase) -> dict[str, list[str]]:
    """Those that the server has."""
    found = {}
    for type_, literals in OPTIONAL.items():
        name = type_.removesuffix("[]")
        try:
            if type_ in EXTENSIONS:
                world.run(f"create extension if not exists {name}")
            else:
                world.run(f"select '<a/>'::{name}")
        except psycopg.errors.FeatureNotSupported:
            continue
        found[type_] = literals
    return found


def fill(world: CapturedDatabase, table: str, rows: Sequence[Sequence[object]]) -> None:
    parameters = ", ".join(["%s"] * len(rows[0]))
    with psycopg.connect(world.database.dsn.value) as connection, connection.cursor() as cursor:
        cursor.executemany(f"insert into {table} values ({parameters})".encode(), rows)


def make_wide(
    world: CapturedDatabase, columns: Mapping[str, str], values: Sequence[list[str]]
) -> int:
    """Every type a column; the rows that an UPDATE will fill are there, and empty."""
    fields = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    world.run(f"create table wide (id int primary key, {fields})")
    rows = [(at, *row) for at, row in enumerate(zip_longest(*values))]
    # A row of nulls.
    rows.append((len(rows), *[None] * len(columns)))
    fill(world, "wide", rows)
    world.run(f"insert into wide (id) select id + {UPDATED} from wide")
    return len(rows)


def stream_wide(world: CapturedDatabase, columns: Mapping[str, str]) -> None:
    names = ", ".join(columns)
    world.run(
        f"insert into wide select id + {INSERTED}, {names} from wide where id < {INSERTED}",
        f"""
        update wide as late set ({names}) = (
            select {names} from wide as early where early.id = late.id - {UPDATED}
        )
        where id >= {UPDATED}
        """,
    )


def make_lenient(world: CapturedDatabase) -> None:
    types = {name: row[0] for name, row in {**NULLED, **SPELLED}.items()}
    types |= {name: row[0] for name, row in DECLARED.items()}
    fields = ", ".join(f"{name} {type_}" for name, type_ in types.items())
    world.run(f"create table lenient (id int primary key, {fields})")
    values = [[*misfits, *fitting] for _, fitting, misfits in MISFITS]
    declared = [[row[2]] for row in DECLARED.values()]
    rows = [(at, *row) for at, row in enumerate(zip_longest(*values, *values, *declared))]
    fill(world, "lenient", rows)


def stream_lenient(world: CapturedDatabase) -> None:
    names = ", ".join([*NULLED, *SPELLED, *DECLARED])
    world.run(f"insert into lenient select id + {INSERTED}, {names} from lenient")


LENIENT: dict[str, Any] = {
    "mirror": "public.lenient",
    "columns": {
        **{name: {"on_unrepresentable": "null"} for name in NULLED},
        **{name: {"on_unrepresentable": "string"} for name in SPELLED},
        **{name: row[1] for name, row in DECLARED.items()},
    },
}
TOO_WIDE = {"mirror": "public.too_wide", "columns": {"v": "decimal(20,6)"}}


@pytest.fixture(scope="module", params=sampled(["postgres", "postgres_16"], ci={"postgres"}))
def values(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Values]:
    server: Postgres = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("values")
    with captured_database(spark, server, folder, tables=[LENIENT, TOO_WIDE]) as world:
        world.run(SETUP)
        there = optional_types(world)
        matrix = [*((row[0], row[1]) for row in MATRIX), *there.items()]
        columns = {f"c{at}": type_ for at, (type_, _) in enumerate(matrix)}
        count = make_wide(
            world, columns, [[*each, *drawn().get(type_, [])] for type_, each in matrix]
        )
        make_lenient(world)
        world.run("create table moods (id int primary key, m mood)")
        for table, (type_, value) in {**REFUSED_IN_COPY, **REFUSED_IN_STREAM}.items():
            world.run(f"create table {table} (id int primary key, v {type_})")
            if table in REFUSED_IN_COPY:
                fill(world, table, [(1, value)])
        world.ingest()
        after_copy, refused_in_copy = world.states(), world.table_failures()
        stream_wide(world, columns)
        stream_lenient(world)
        world.run(
            "alter type mood add value 'new, and \"odd\"'",
            "insert into moods values (1, 'new, and \"odd\"')",
        )
        for table, (_, value) in REFUSED_IN_STREAM.items():
            fill(world, table, [(1, value)])
        world.ingest()
        after_stream, refused_in_stream = world.states(), world.table_failures()
        world.merge("wide", "lenient", "moods")
        yield Values(
            world=world,
            columns=columns,
            lacking=frozenset(OPTIONAL.keys() - there.keys()),
            count=count,
            after_copy=after_copy,
            refused_in_copy=refused_in_copy,
            after_stream=after_stream,
            refused_in_stream=refused_in_stream,
        )


def rows_from(table: pa.Table, first: int) -> pa.Table:
    """The rows that came one way, in order."""
    numbers = table["id"]
    chosen = table.filter(
        pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, first + INSERTED))
    )
    return chosen.sort_by("id")


def as_read(column: pa.ChunkedArray, plan: ColumnPlan) -> list[object]:
    """As Python says it; a uuid as text, for that is how Spark reads it."""
    form = plan.form.element if isinstance(plan.form, ArrayForm) else plan.form
    found = column.to_pylist()
    return [_with_uuids_as_text(each) for each in found] if form is Form.UUID else found


def _with_uuids_as_text(value: object) -> object:
    match value:
        case list():
            return [_with_uuids_as_text(each) for each in value]
        case bytes():
            return str(UUID(bytes=value))
        case None:
            return None
        case _:
            return str(value)


@pytest.fixture(scope="module")
def session(values: Values) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A session as frazil's own are."""
    with pinned(values.world.database.dsn.value) as connection:
        yield connection


@pytest.fixture(scope="module")
def plans(values: Values, session: psycopg.Connection[tuple[Any, ...]]) -> Mapping[str, ColumnPlan]:
    return {
        name: plan_column(name, column_type(session, "public.wide", name))
        for name in values.columns
    }


@pytest.fixture(scope="module")
def mirrored(values: Values, plans: Mapping[str, ColumnPlan]) -> Mapping[str, list[object]]:
    """What the mirror has in rows that were copied, by column."""
    rows = rows_from(values.by_pyiceberg(values.world.names("wide").mirror), COPIED)
    return {name: as_read(rows[name], plan) for name, plan in plans.items()}


def test_everything_was_captured_but_what_is_refused(values: Values) -> None:
    refused = {*REFUSED_IN_COPY, *REFUSED_IN_STREAM}
    live = {name for name, state in values.after_stream.items() if isinstance(state, Streaming)}
    assert values.after_stream.keys() - live == refused
    assert live == {"wide", "lenient", "moods"}


def test_the_types_that_were_not_tried_are_known(
    values: Values, request: pytest.FixtureRequest
) -> None:
    assert values.lacking == LACKING[request.node.callspec.params["values"]]


def test_postgres_prints_the_values_read_as_it_printed_those_copied(
    values: Values,
    session: psycopg.Connection[tuple[Any, ...]],
    plans: Mapping[str, ColumnPlan],
    mirrored: Mapping[str, list[object]],
) -> None:
    returned = [
        [None if each is None else printed(each, plans[name]) for each in found]
        for name, found in mirrored.items()
    ]
    session.execute("create schema judged")
    session.execute("create table judged.wide (like public.wide)")
    rows = [(at, *row) for at, row in enumerate(zip(*returned, strict=True))]
    fill(values.world, "judged.wide", rows)
    wrong = {}
    for name, type_ in values.columns.items():
        query = f"select {name} from {{}} where id < {INSERTED} order by id"
        before = copied_text(session, query.format("public.wide"))
        after = copied_text(session, query.format("judged.wide"))
        if before != after:
            wrong[type_] = before.diff(after)
    assert not wrong, f"seed {SEED}: {wrong}"


def test_text_is_what_postgres_prints(
    values: Values,
    session: psycopg.Connection[tuple[Any, ...]],
    plans: Mapping[str, ColumnPlan],
    mirrored: Mapping[str, list[object]],
) -> None:
    texts = [name for name, plan in plans.items() if plan.form is Form.AS_PRINTED]
    assert len(texts) > 30
    for name in texts:
        query = f"select {name} from public.wide where id < {INSERTED} order by id"
        assert mirrored[name] == copied_text(session, query).to_pylist(), values.columns[name]


@pytest.mark.fault("T6")
@pytest.mark.parametrize("table", ["changelog", "mirror"])
@pytest.mark.parametrize("reader", ["by_pyiceberg", "by_spark"])
def test_a_value_is_the_same_by_every_path_and_in_every_engine(
    values: Values,
    plans: Mapping[str, ColumnPlan],
    mirrored: Mapping[str, list[object]],
    table: str,
    reader: str,
) -> None:
    rows: pa.Table = getattr(values, reader)(getattr(values.world.names("wide"), table))
    if table == "changelog":
        # Rows that an UPDATE fills were copied empty.
        is_empty = pc.and_(
            pc.equal(rows["cdc_operation"], "READ"), pc.greater_equal(rows["id"], UPDATED)
        )
        rows = rows.filter(pc.invert(is_empty))
    wrong = {}
    for way in WAYS:
        found = rows_from(rows, way)
        assert found["id"].to_pylist() == list(range(way, way + values.count))
        for name, plan in plans.items():
            # Numbers as text distinguish zeros, and make NaNs alike.
            if repr(as_read(found[name], plan)) != repr(mirrored[name]):
                wrong[way, values.columns[name]] = name
    assert not wrong, f"seed {SEED}"


@pytest.mark.parametrize("table", ["wide", "lenient"])
def test_verify_finds_every_value_of_the_source_in_the_mirror(values: Values, table: str) -> None:
    world = values.world
    (settings,) = load_merges(world.lake, world.config, [str(world.names(table).mirror)]).values()
    verifier = build_source_verifier(world.spark, world.lake, world.config, wait=timedelta())
    assert verifier is not None
    found = verifier.verify(settings, f"public.{table}")
    assert found.agrees, found
    assert found.rows_found > 0
    assert not found.left_out


def test_a_label_that_was_added_to_an_enum_later_is_streamed(values: Values) -> None:
    assert values.world.mirror_rows("moods") == [{"id": 1, "m": 'new, and "odd"'}]


@pytest.mark.fault("T7")
@pytest.mark.parametrize("way", [COPIED, INSERTED])
def test_what_does_not_fit_is_null_or_text_as_its_column_says(
    values: Values, session: psycopg.Connection[tuple[Any, ...]], way: int
) -> None:
    rows = rows_from(values.by_pyiceberg(values.world.names("lenient").mirror), way)
    for name, (type_, fitting, misfits) in NULLED.items():
        found = rows[name].to_pylist()[: len(misfits) + len(fitting)]
        nulls = [each is None for each in found]
        assert nulls == [True] * len(misfits) + [False] * len(fitting), type_
    for name, (type_, *_) in SPELLED.items():
        query = f"select {name} from public.lenient where id < {INSERTED} order by id"
        assert rows[name].to_pylist() == copied_text(session, query).to_pylist(), type_


@pytest.mark.parametrize("way", [COPIED, INSERTED])
def test_a_declared_type_holds_the_value(values: Values, way: int) -> None:
    rows = rows_from(values.by_pyiceberg(values.world.names("lenient").mirror), way)
    for name, (_, _, _, expected) in DECLARED.items():
        found = rows[name][0].as_py()
        assert (found if isinstance(expected, int | float) else str(found)) == expected, name


def test_declared_types_are_those_of_the_tables(values: Values) -> None:
    names = values.world.names("lenient")
    for table in (names.changelog, names.mirror):
        schema = values.world.lake.open(table).load_schema()
        types = {each.name: str(each.type) for each in schema.fields}
        assert {name: types[name] for name in DECLARED} == {
            name: row[1].replace(",", ", ") for name, row in DECLARED.items()
        }


@pytest.mark.fault("T7")
@pytest.mark.parametrize("table", REFUSED_IN_COPY)
def test_a_copy_refuses_what_does_not_fit(values: Values, table: str) -> None:
    _, value = REFUSED_IN_COPY[table]
    state = values.after_copy[table]
    assert isinstance(state, Copying)
    assert_refused(values.refused_in_copy[table], value, str(state.cause))
    assert not values.world.changelog_rows(table)


@pytest.mark.fault("T7")
@pytest.mark.parametrize("table", REFUSED_IN_STREAM)
def test_a_stream_refuses_what_does_not_fit(values: Values, table: str) -> None:
    _, value = REFUSED_IN_STREAM[table]
    state = values.after_stream[table]
    assert isinstance(state, Paused)
    assert_refused(values.refused_in_stream[table], value, str(state.cause))
    assert not values.world.changelog_rows(table)


def assert_refused(error: FrazilError, value: str, reason: str | None) -> None:
    """It names the column and says nothing of the value."""
    assert isinstance(error, UnrepresentableValueError)
    for text in (str(error), reason or ""):
        assert "column 'v'" in text
        # The sentence itself names what no decimal can be.
        assert value not in text.replace("NaN, infinite, or more digits", "")
        assert "secret" not in text
