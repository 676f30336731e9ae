"""The spool of real servers: large transactions, pauses, cuts, idleness, and an object store."""

from __future__ import annotations

import pickle
import threading
import time
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil import errors
from frazil.clients.postgres.replication import connect_replication
from frazil.clients.postgres.translation import translate_state
from frazil.model.postgres.lsn import parse_lsn
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.stream.spool import StreamSpool
from frazil.sources.protocol import Limit
from tests.support.postgres.access import PATIENCE_SECONDS, Database, Secret, database_on
from tests.support.postgres.spooled import rows_of
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import ObjectStore, Postgres
    from frazil.sources.postgres.stream.segment import Segment

pytestmark = pytest.mark.services

ALL = Limit(rows=1 << 40, bytes=1 << 40)
ANY = Limit(rows=1, bytes=1)
LARGE = 1 << 30
SLOT = "spooled"


@pytest.fixture(scope="module", params=sampled(["postgres", "postgres_16"], ci={"postgres"}))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "spool") as made:
        made.run(
            "create table item (id int primary key, word text)",
            "create table other (id int)",
            "create publication spooled for table item",
        )
        yield made


@pytest.fixture
def slot(database: Database) -> Iterator[str]:
    database.run("truncate item")
    with connect_replication(database.dsn, purpose="test") as connection:
        connection.create_slot(SLOT)
    yield SLOT
    with connect_replication(database.dsn, purpose="test") as connection:
        connection.drop_slot(SLOT, wait=True)


@contextmanager
def spooling(
    dsn: Secret,
    files: SpoolFiles,
    *,
    max_bytes: int = LARGE,
    segment_bytes: int = 1 << 20,
    large_bytes: int = 1 << 20,
) -> Iterator[StreamSpool]:
    connection = connect_replication(dsn, purpose="test")
    stream = connection.stream(SLOT, after=0, publications=["spooled"])
    with StreamSpool(
        stream, files, max_bytes=max_bytes, segment_bytes=segment_bytes, large_bytes=large_bytes
    ) as spool:
        yield spool


def numbers(files: SpoolFiles, segments: tuple[Segment, ...]) -> list[int]:
    """The ids of the rows in these segments, each read alone."""
    return [
        int(str(row.new[0]))
        for segment in segments
        for row in rows_of(segment, files.load(segment.name))
        if row.new is not None
    ]


def take_until(spool: StreamSpool, files: SpoolFiles, count: int) -> list[int]:
    """Take and release until there were so many rows."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        spool.wait(1.0, ANY)
        taken = spool.take(Limit(rows=1000, bytes=1 << 20))
        found += numbers(files, taken.segments)
        spool.release(taken.segments)
    return found


def end_of_log(database: Database) -> int:
    return parse_lsn(str(database.ask("select pg_current_wal_lsn()::text")))


@pytest.mark.fault("E7")
@pytest.mark.usefixtures("slot")
def test_a_large_transaction_passes_with_bounded_memory(database: Database, tmp_path: Path) -> None:
    files = SpoolFiles(str(tmp_path))
    count, mebibyte = 200_000, 1 << 20
    tracemalloc.start()
    try:
        with spooling(database.dsn, files, segment_bytes=4 * mebibyte) as spool:
            database.run(
                "insert into item values (-1, 'before')",
                f"insert into item select n, repeat('x', 150) from generate_series(1, {count}) n",
                "insert into item values (-2, 'after')",
            )
            deadline = time.monotonic() + PATIENCE_SECONDS
            while spool.pending_rows < count + 2 and time.monotonic() < deadline:
                spool.wait(1.0, Limit(rows=count + 2, bytes=1 << 40))
            _, peak = tracemalloc.get_traced_memory()
            assert peak < 12 * mebibyte, "a tenth of it would be more"
            taken = spool.take(ALL)
            before, *parts, after = taken.segments
            assert sum(each.size for each in parts) > 30 * mebibyte
            assert all(each.size < 6 * mebibyte for each in parts)
            assert {each.last_final_lsn for each in parts} == {parts[0].first_final_lsn}
            assert before.rows == after.rows == 1
            assert sum(each.rows for each in parts) == count
            tracemalloc.stop()
            assert sum(numbers(files, tuple(parts))) == count * (count + 1) // 2
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("slot")
def test_a_paused_reader_keeps_an_impatient_server(database: Database, tmp_path: Path) -> None:
    files = SpoolFiles(str(tmp_path))
    impatient = Secret(f"{database.dsn.value}?options=-c%20wal_sender_timeout%3D4000")
    with spooling(impatient, files, max_bytes=10_000, segment_bytes=1_000) as spool:
        # Far more than fits into the spool and the buffers of the connection together.
        statement = "insert into item select n, repeat('x', 1000) from generate_series({}, {}) n"
        database.run(*(statement.format(n, n + 99) for n in range(1, 20_000, 100)))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not spool.is_paused and time.monotonic() < deadline:
            time.sleep(0.05)
        # Longer than the server waits for a status update.
        time.sleep(9)
        assert spool.is_paused
        assert spool.used_bytes < 2_000_000
        assert take_until(spool, files, 20_000) == list(range(1, 20_001))


@pytest.mark.usefixtures("slot")
def test_what_is_written_meanwhile_arrives_once_and_in_order(
    database: Database, tmp_path: Path
) -> None:
    files = SpoolFiles(str(tmp_path))
    count = 3_000
    with spooling(
        database.dsn, files, max_bytes=60_000, segment_bytes=5_000, large_bytes=10_000
    ) as spool:

        def write() -> None:
            with psycopg.connect(database.dsn.value, autocommit=True) as connection:
                at = 0
                while at < count:
                    # Now and then one that is large for this spool.
                    size = 500 if at % 7 == 0 else 3
                    connection.execute(
                        b"insert into item select n, 'word' from generate_series(%d, %d) n"
                        % (at + 1, min(at + size, count))
                    )
                    at += size

        writer = threading.Thread(target=write)
        writer.start()
        found = take_until(spool, files, count)
        writer.join()
        assert found == list(range(1, count + 1))
        assert spool.used_bytes == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("slot")
def test_a_terminated_reader_is_reported_to_the_driver(database: Database, tmp_path: Path) -> None:
    with spooling(database.dsn, SpoolFiles(str(tmp_path))) as spool:
        database.run("insert into item values (1, 'pending')")
        assert spool.wait(PATIENCE_SECONDS, ANY)
        before = spool.position
        database.run(
            "select pg_terminate_backend(active_pid) from pg_replication_slots "
            f"where slot_name = '{SLOT}'"
        )
        with pytest.raises(errors.SourceUnavailableError) as caught:
            spool.wait(PATIENCE_SECONDS, ALL)
        assert str(translate_state("57P01", doing=f"reading the slot {SLOT}")) == str(caught.value)
        with pytest.raises(errors.SourceUnavailableError):
            spool.take(ALL)
        assert spool.position == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("slot")
def test_an_idle_publication_advances_with_the_log_of_others(
    database: Database, tmp_path: Path
) -> None:
    with spooling(database.dsn, SpoolFiles(str(tmp_path))) as spool:
        for number in range(3):
            database.run(f"insert into other values ({number})")
            end = end_of_log(database)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while spool.position < end and time.monotonic() < deadline:
                spool.wait(0.05, ANY)
            assert spool.position >= end
            assert spool.pending_rows == 0
        database.run("insert into item values (1, 'published')")
        assert spool.wait(PATIENCE_SECONDS, ANY)
        published = end_of_log(database)
        for number in range(20):
            database.run(f"insert into other values ({number})")
        (segment,) = spool.take(ALL).segments
        # What is before a position that was given out has all been taken.
        assert end <= segment.first_final_lsn < published


@pytest.mark.usefixtures("slot")
def test_an_object_store_holds_the_segments(database: Database, object_store: ObjectStore) -> None:
    properties = tuple(object_store.io_properties().items())
    files = SpoolFiles(f"s3://{object_store.bucket}/spool", properties)
    with spooling(database.dsn, files, segment_bytes=20_000, large_bytes=10_000) as spool:
        database.run(
            "insert into item select n, 'word' from generate_series(1, 3000) n",
            "insert into item values (3001, 'small')",
        )
        assert spool.wait(PATIENCE_SECONDS, Limit(rows=3_001, bytes=1 << 40))
        segments = spool.take(ALL).segments
        assert len(segments) > 3
        elsewhere = pickle.loads(pickle.dumps(files))
        assert numbers(elsewhere, segments) == list(range(1, 3_002))
        spool.release(segments[:2])
        with pytest.raises(errors.StorageError):
            files.load(segments[0].name)
        abandoned = files.write("never-1.segment")
        abandoned.write(b"content")
        abandoned.abandon()
        with pytest.raises(errors.StorageError):
            files.load("never-1.segment")
        left = files.write("left-1.segment")
        left.finish()
    with pytest.raises(errors.StorageError):
        files.load(segments[-1].name)
    assert files.load("left-1.segment") == b""
    files.clear()
    with pytest.raises(errors.StorageError):
        files.load("left-1.segment")
