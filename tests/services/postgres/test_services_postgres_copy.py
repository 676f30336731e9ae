"""Tables copied as of one moment: every row once, whatever happens to them meanwhile."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest

from frazil import errors
from frazil.hooks import SystemClock
from frazil.model.change import Operation
from frazil.model.postgres.names import QualifiedName
from frazil.sources.postgres.copy import reader as copy_reading
from frazil.sources.postgres.copy.round import open_copy_snapshot
from frazil.sources.protocol import TableFailure, TableRows
from tests.support.postgres.access import database_on
from tests.support.postgres.copies import copying, ranges_now
from tests.support.sampling import sampled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", params=sampled(["postgres", "postgres_16"], ci={"postgres"}))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "copied") as made:
        yield made


@pytest.fixture
def item(database: Database) -> Iterator[Database]:
    """A table ``item`` with a thousand rows on some pages."""
    database.run(
        "create table item (id int primary key, name text)",
        "insert into item select g, repeat('x', 200) from generate_series(1, 1000) g",
    )
    yield database
    database.run("drop table if exists item cascade")


def test_rows_say_where_they_come_from(item: Database) -> None:
    with copying(item, "item") as copy:
        rows = copy.rows()
        point = copy.snapshot.consistent_point
        assert copy.snapshot.identity.database == item.name
    utc = pa.timestamp("us", tz="UTC")
    assert rows.schema == pa.schema(
        [
            ("1", pa.int32()),
            ("2", pa.string()),
            ("operation", pa.string()),
            ("position", pa.uint64()),
            ("ordinal", pa.uint64()),
            ("committed_at", utc),
            ("origin", pa.string()),
            ("unchanged", pa.list_(pa.int32())),
            ("previous_key", pa.struct([("1", pa.int32())])),
        ]
    )
    (about,) = set(map(str, rows.drop_columns(["1", "2"]).to_pylist()))
    assert about == str(
        {
            "operation": Operation.READ.value,
            "position": point - 1,
            "ordinal": 1,
            "committed_at": None,
            "origin": copy.table.origin,
            "unchanged": None,
            "previous_key": None,
        }
    )


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows.column("1").to_pylist())


def test_every_row_is_in_one_range_also_on_pages_that_came_after_the_plan(item: Database) -> None:
    ranges = ranges_now(item, "item", target_pages=4)
    assert len(ranges) > 3
    item.run("insert into item select g, repeat('y', 200) from generate_series(1001, 3000) g")
    with copying(item, "item") as copy:
        assert ids(copy.rows(ranges)) == list(range(1, 3001))


def test_a_table_that_lost_its_last_pages_is_read_all_the_same(item: Database) -> None:
    ranges = ranges_now(item, "item", target_pages=4)
    item.run("delete from item where id > 300", "vacuum item")
    with copying(item, "item") as copy:
        assert ids(copy.rows(ranges)) == list(range(1, 301))


def test_changes_after_the_snapshot_are_not_seen(item: Database) -> None:
    ranges = ranges_now(item, "item", target_pages=4)
    with copying(item, "item") as copy:
        first = copy.rows(ranges[:1])
        item.run(
            "insert into item values (5000, 'new')",
            "update item set name = 'moved' where id % 2 = 0",
            "delete from item where id % 3 = 0",
            "vacuum item",
        )
        rows = pa.concat_tables([first, copy.rows(ranges[1:])])
    assert ids(rows) == list(range(1, 1001))
    assert set(rows.column("2").to_pylist()) == {"x" * 200}


def test_a_writer_that_never_rests_is_not_seen(item: Database) -> None:
    ranges = ranges_now(item, "item", target_pages=2)
    resting = threading.Event()

    def write() -> None:
        with psycopg.connect(item.dsn.value, autocommit=True) as connection:
            number = 0
            while not resting.is_set():
                number += 1
                connection.execute("insert into item values (%s, 'w')", (10_000 + number,))
                connection.execute("update item set name = 'w' where id = %s", (number % 1000,))

    with copying(item, "item") as copy:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            rows = copy.rows(ranges)
        finally:
            resting.set()
            writer.join()
    assert ids(rows) == list(range(1, 1001))
    assert set(rows.column("2").to_pylist()) == {"x" * 200}


def test_a_partition_is_read_itself_under_the_name_of_the_root(database: Database) -> None:
    database.run(
        "create table tree (id int, kind text) partition by list (kind)",
        # Its columns have other numbers than the root's.
        "create table leaf (gone int, kind text, id int)",
        "alter table leaf drop column gone",
        "alter table tree attach partition leaf for values in ('a')",
        "create table other partition of tree for values in ('b')",
        "insert into tree values (1, 'a'), (2, 'b'), (3, 'a')",
    )
    try:
        with copying(database, "tree") as copy:
            readings = list(copy.read(leaf=QualifiedName("public", "leaf")))
    finally:
        database.run("drop table tree")
    (reading,) = readings
    assert isinstance(reading, TableRows)
    assert reading.table == "public.tree"
    assert reading.rows.select(["1", "2"]).to_pylist() == [
        {"1": 1, "2": "a"},
        {"1": 3, "2": "a"},
    ]


def test_rows_of_tables_that_inherit_are_not_the_parents(item: Database) -> None:
    item.run("create table heir () inherits (item)", "insert into heir values (7777, 'heir')")
    with copying(item, "item") as copy:
        assert ids(copy.rows()) == list(range(1, 1001))


def test_a_row_filter_leaves_rows_out_in_every_range(item: Database) -> None:
    ranges = ranges_now(item, "item", target_pages=4)
    item.run("insert into item values (2000, null)")
    row_filter = "(id < 100) or (name is null)"
    with copying(item, "item", row_filter=row_filter) as copy:
        assert ids(copy.rows(ranges)) == [*range(1, 100), 2000]


def test_only_the_columns_that_were_named_are_read(item: Database) -> None:
    item.run("alter table item add twice int generated always as (id * 2) stored")
    with copying(item, "item", columns=["name"]) as copy:
        assert copy.rows().column_names[:2] == ["2", "operation"]


def test_a_policy_on_rows_is_an_error_and_not_missing_rows(item: Database) -> None:
    item.run(
        "create role watched login password 'watched'",
        "grant select on item to watched",
        "create policy few on item for select using (id < 10)",
        "alter table item enable row level security",
    )
    dsn = item.dsn_of("watched", "watched")
    try:
        with copying(item, "item", dsn=dsn) as copy:
            error = copy.failure()
        assert isinstance(error, errors.PermissionError)
        assert error.next_step == "frazil check"
    finally:
        item.run("drop owned by watched", "drop role watched")


@pytest.mark.parametrize(
    ("columns", "count"), [("", 3), ("id int", 3), ("t time", 3), ("id int", 0), ("", 0)]
)
def test_rows_without_columns_or_values_are_counted(
    database: Database, columns: str, count: int
) -> None:
    database.run("drop table if exists sample", f"create table sample ({columns})")
    for _ in range(count):
        database.run("insert into sample default values")
    with copying(database, "sample") as copy:
        rows = copy.rows()
    assert rows.num_rows == count


def test_a_batch_has_a_bounded_number_of_rows(database: Database) -> None:
    database.run(
        "drop table if exists sample",
        "create table sample (id int)",
        f"insert into sample select generate_series(1, {copy_reading.MOST_ROWS + 10})",
    )
    with copying(database, "sample") as copy:
        sizes = [each.rows.num_rows for each in copy.read() if isinstance(each, TableRows)]
    assert sizes == [copy_reading.MOST_ROWS, 10]


def test_wide_values_come_one_by_one(database: Database) -> None:
    megabytes = 20
    database.run(
        "drop table if exists sample",
        "create table sample (id int, t text, b bytea)",
        *(
            "insert into sample select g, repeat('ż', 500000), null from generate_series(1, 3) g",
            f"insert into sample select g, repeat('x', {megabytes}000000), null "
            "from generate_series(4, 6) g",
            f"insert into sample values (7, null, decode(repeat('ab', {megabytes}000000), 'hex'))",
            "insert into sample values (8, 'last', null)",
        ),
    )
    pa_before = pa.total_allocated_bytes()
    with copying(database, "sample") as copy:
        batches = []
        for each in copy.read():
            assert isinstance(each, TableRows)
            batches.append(each.rows.column("1").to_pylist())
            # A batch is its values, not the bytes that it came in.
            assert each.rows.nbytes < (megabytes + 1) * 1_000_000
            assert pa.total_allocated_bytes() - pa_before < 3 * megabytes * 1_000_000
    assert batches == [[1, 2, 3], [4], [5], [6], [7], [8]]


def test_a_reading_that_is_given_up_ends_its_session(item: Database) -> None:
    item.run("insert into item select g, repeat('z', 500) from generate_series(2000, 90000) g")
    with copying(item, "item") as copy:
        reading = copy.read()
        assert isinstance(next(reading), TableRows)
        assert sessions(item) == 1
        reading.close()  # type: ignore[attr-defined]
        wait_until(lambda: sessions(item) == 0)
        # One that is read to its end leaves none, either.
        assert copy.rows().num_rows == 89001
        wait_until(lambda: sessions(item) == 0)


def sessions(database: Database) -> object:
    return database.ask(
        "select count(*) from pg_stat_activity where application_name = 'frazil copy' "
        "and datname = current_database()"
    )


def test_a_session_that_breaks_is_tried_again_with_the_same_snapshot(item: Database) -> None:
    item.run("insert into item select g, repeat('z', 500) from generate_series(2000, 90000) g")
    with copying(item, "item") as copy:
        reading = copy.read()
        next(reading)
        item.run(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where application_name = 'frazil copy' and datname = current_database()"
        )
        with pytest.raises(errors.SourceUnavailableError):
            list(reading)
        item.run("delete from item")
        assert copy.snapshot.is_alive()
        assert copy.rows().num_rows == 89001


def test_without_its_snapshot_the_copy_starts_again(item: Database) -> None:
    with copying(item, "item") as copy:
        assert copy.snapshot.is_alive()
        item.run(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where application_name = 'frazil copy snapshot' and datname = current_database()"
        )
        wait_until(lambda: not copy.snapshot.is_alive())
        with pytest.raises(errors.SourceUnavailableError, match="the copy starts again"):
            list(copy.read())
    assert not copy.snapshot.is_alive()
    with pytest.raises(errors.SourceUnavailableError, match="the copy starts again"):
        list(copy.read())


def test_a_snapshot_outlives_a_change_of_the_servers_settings(item: Database) -> None:
    with copying(item, "item") as copy:
        # The server informs every session of this one, also those that wait.
        item.run("alter system set datestyle = 'German'", "select pg_reload_conf()")
        try:
            SystemClock().sleep(0.2)
            assert copy.snapshot.is_alive()
            assert copy.rows().num_rows == 1000
        finally:
            item.run("alter system reset datestyle", "select pg_reload_conf()")


@pytest.mark.fault("N22")
def test_a_snapshot_does_not_wait_for_ever_for_an_open_transaction(item: Database) -> None:
    with psycopg.connect(item.dsn.value) as writer:
        writer.execute("insert into item values (5000, 'open')")
        with pytest.raises(errors.SourceUnavailableError, match="has stayed open") as caught:
            open_copy_snapshot(item.dsn, slot="copying", slot_patience=timedelta(milliseconds=200))
        writer.rollback()
    assert "pg_stat_activity" in str(caught.value)
    slots = "select count(*) from pg_replication_slots where slot_name = 'copying'"
    wait_until(lambda: item.ask(slots) == 0)


def test_a_snapshot_waits_until_another_one_has_given_up_the_name(item: Database) -> None:
    short = timedelta(milliseconds=200)
    with copying(item, "item") as copy:
        with pytest.raises(errors.SlotBusyError):
            open_copy_snapshot(item.dsn, slot="copying", slot_patience=short)
        closing = threading.Timer(0.2, copy.snapshot.close)
        closing.start()
        with open_copy_snapshot(item.dsn, slot="copying") as another:
            assert another.consistent_point >= copy.snapshot.consistent_point
        closing.join()


CHANGES = [
    "truncate item",
    "alter table item alter name type varchar using upper(name)",
    "alter table item add stamp uuid default gen_random_uuid()",
    "alter table item drop column name",
    "alter table item rename name to title",
    "alter table item rename name to title; alter table item add name text",
    "drop table item",
    "alter table item rename to item_before; create table item (id int, name text)",
    "create table item_next (id int, name text); drop table item; "
    "alter table item_next rename to item",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changed_since_the_snapshot_is_copied_again(
    item: Database, change: str
) -> None:
    try:
        with copying(item, "item") as copy:
            item.run(change)
            error = copy.failure()
        assert isinstance(error, errors.SourceUnavailableError)
        assert "its copy starts again" in str(error)
    finally:
        item.run("drop table if exists item_before")


def test_a_change_that_no_row_shows_is_no_failure(item: Database) -> None:
    with copying(item, "item") as copy:
        item.run(
            "alter table item add later int",
            "alter table item alter name set not null",
            "create index on item (name)",
            "vacuum item",
        )
        assert copy.rows().num_rows == 1000


def test_a_query_that_the_server_cancels_is_a_failure_of_its_table(item: Database) -> None:
    with copying(item, "item", row_filter="1 / (id - 990) < 5") as copy:
        error = copy.failure()
    assert isinstance(error, errors.PermissionError)
    assert "22012" in str(error)


def test_a_misfit_in_the_midst_ends_the_split_and_its_session(database: Database) -> None:
    last = 3 * copy_reading.MOST_ROWS
    database.run(
        "drop table if exists sample",
        "create table sample (id int, day date)",
        f"insert into sample select g, case g when {last // 2} then 'infinity' else '2020-01-01' "
        f"end::date from generate_series(1, {last}) g",
    )
    with copying(database, "sample") as copy:
        *before, failure = copy.read()
        wait_until(lambda: sessions(database) == 0)
    assert [type(each) for each in before] == [TableRows]
    assert isinstance(failure, TableFailure)
    assert isinstance(failure.error, errors.UnrepresentableValueError)
    assert "1 of 65536" in str(failure.error)
