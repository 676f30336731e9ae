"""Servers, connections and disks that fail under a capture, and histories that are not ours."""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil.demo.services import embedded_postgres
from frazil.errors import (
    PositionLostError,
    SourceReplacedError,
    SourceUnavailableError,
    StorageError,
)
from frazil.hooks import SystemClock, armed
from frazil.ledger.table_state import Copying, Streaming
from frazil.pipeline.offline_status import load_offline_status
from tests.support.faults.proxy import TcpProxy
from tests.support.ingest.captured_shop import TABLES, Shop, open_shop
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from frazil.ingest.ingester import Ingester

pytestmark = [pytest.mark.spark, pytest.mark.services]

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """With a small spool, at a server that disconnects silent readers."""
    folder = tmp_path_factory.mktemp("shop")
    source = {"spool": {"dir": str(folder / "spool"), "max_bytes": "1MiB"}}
    with open_shop(spark, postgres, folder, source=source) as opened:
        world = opened.world
        world.run(f"alter database {world.database.name} set wal_sender_timeout to '2s'")
        world.run("create table bulk (id int primary key, body text)")
        opened.check()
        yield opened


# --- large transactions, and no space for them (E7, N22, O2) ---


# The larger one is what the promise says; the smaller one shows the same in seconds.
@pytest.mark.fault("E7", "O3")
@pytest.mark.parametrize(
    "rows", [200_000, pytest.param(5_000_000, marks=[pytest.mark.deep, pytest.mark.timeout(1200)])]
)
def test_a_transaction_larger_than_the_spool_passes_with_bounded_memory(
    shop: Shop, rows: int
) -> None:
    world = shop.world
    world.run("truncate bulk")
    world.ingest()
    before = counted(shop, "bulk").get("INSERT", 0)
    half, total = rows // 2, rows
    world.in_transaction(
        f"insert into bulk select i, repeat('a', 60) from generate_series(1, {half}) i",
        "savepoint part",
        f"insert into bulk select -i, repeat('b', 60) from generate_series(1, {half // 2}) i",
        "update bulk set body = 'gone' where id <= 10",
        "rollback to savepoint part",
        f"insert into bulk select i, repeat('c', 60) from generate_series({half + 1}, {total}) i",
    )
    with memory_watch() as grown:
        world.ingest()
    assert not world.failures
    found = counted(shop, "bulk")
    assert found.get("INSERT", 0) - before == rows
    assert found.keys() <= {"INSERT", "TRUNCATE"}
    assert grown[-1] < 300 * MEGABYTE
    shop.change()
    shop.check()


@contextmanager
def memory_watch() -> Iterator[list[int]]:
    """How much more memory than at the beginning was in use at most; known at the end."""
    Path("/proc/self/clear_refs").write_text("5")
    before, grown = peak_memory(), list[int]()
    yield grown
    grown.append(peak_memory() - before)


def peak_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmHWM:"))
    return int(found.split()[1]) << 10


def counted(shop: Shop, table: str) -> dict[str, int]:
    """The rows of a changelog by operation; a key is not there twice since the last truncation."""
    name = shop.world.names(table).changelog
    rows = shop.world.spark.sql(
        f"select cdc_operation, count(*), count(distinct cdc_sequence_number) "
        f"from {name.quoted} group by 1"
    ).collect()
    assert all(row[1] == row[2] for row in rows if row[0] != "READ")
    return {row[0]: row[1] for row in rows}


@pytest.mark.fault("O2")
def test_a_full_disk_confirms_nothing_and_ingest_continues_later(shop: Shop) -> None:
    world = shop.world
    world.run("create table wide (id int primary key, body text)")
    shop.check()
    world.run("insert into wide select i, repeat('w', 1000) from generate_series(1, 8000) i")
    shop.change()
    confirmed = world.confirmed()
    with no_file_beyond(MEGABYTE):
        with pytest.raises(StorageError, match=r"spool"):
            world.ingest()
        assert world.confirmed() == confirmed
    shop.check()
    assert counted(shop, "wide") == {"INSERT": 8000}


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """The system refuses to write more into any one file of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- connections and servers (O5, N21, N22) ---


@pytest.mark.fault("O5")
def test_a_cut_network_a_crowd_and_ended_sessions_are_outlived(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    with (
        TcpProxy("127.0.0.1", postgres.port) as proxy,
        open_shop(spark, postgres, tmp_path) as shop,
    ):
        world, database = shop.world, shop.world.database
        # Bounds on connections are not for superusers.
        guest = f"guest_{database.name}"
        world.run(
            f"create role {guest} login replication password 'guest'",
            f"alter database {database.name} owner to {guest}",
            *(f"alter table {name} owner to {guest}" for name in TABLES),
        )
        world.reconfigure(source={"dsn": database.dsn_of(guest, "guest", port=proxy.port).value})
        with shop.running() as run:
            run.wait_until_recorded()
            shop.end_sessions()
            shop.change()
            run.wait_until_recorded()
            failed = len(run.failures)
            proxy.refuse_all()
            shop.change()
            run.wait_for(lambda: len(run.failures) > failed)
            proxy.allow_all()
            run.wait_until_recorded()
            failed = len(run.failures)
            world.run(f"alter role {guest} connection limit 0")
            shop.change()
            run.wait_for(lambda: len(run.failures) > failed)
            world.run(f"alter role {guest} connection limit -1")
            run.wait_until_recorded()
        assert all(isinstance(each, SourceUnavailableError) for each in run.failures), run.failures
        shop.check()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server that may be stopped, set back and configured to keep little."""
    with embedded_postgres(version=18) as server:
        yield server


@pytest.mark.fault("O5")
def test_a_server_that_starts_again_is_gone_on_with(
    spark: SparkSession, own_server: Postgres, tmp_path: Path
) -> None:
    with open_shop(spark, own_server, tmp_path) as shop:
        with shop.running() as run:
            shop.change()
            run.wait_until_recorded()
            own_server.kill()
            run.wait_for(lambda: bool(run.failures))
            own_server.restart()
            shop.change()
            run.wait_until_recorded()
            own_server.stop()
            own_server.restart()
            shop.change()
            run.wait_until_recorded()
        assert all(isinstance(each, SourceUnavailableError) for each in run.failures), run.failures
        shop.check()


@pytest.mark.fault("O6")
def test_an_invalidated_slot_stops_everything_or_is_created_again(
    spark: SparkSession, own_server: Postgres, tmp_path: Path
) -> None:
    with open_shop(spark, own_server, tmp_path) as shop:
        world = shop.world
        shop.check()
        well = load_offline_status(world.lake, world.config)
        assert not well.action_required
        assert well.source is not None
        assert well.source.health is not None
        world.run("alter system set max_slot_wal_keep_size to '1MB'", "select pg_reload_conf()")
        try:
            shop.change()
            give_up_slots(shop)
            with pytest.raises(PositionLostError, match=r"invalidated the slot.*resync --all"):
                world.ingest()
            # No process is left that could say so.
            lost = load_offline_status(world.lake, world.config)
            assert lost.action_required
            assert lost.source is not None
            assert lost.source.trouble is not None
            assert "invalidated the slot" in lost.source.trouble.reason
            world.reconfigure(source={"on_slot_lost": "resync"})
            assert not load_offline_status(world.lake, world.config).action_required
            shop.check()
            # While a table is being read: what it was read from is not enough any more.
            world.resync(TABLES[0])
            ingester = world.capture().ingester
            with armed(f"ingest.written=hold({tmp_path / 'gate'})@1"):
                read_while_the_slot_is_lost(shop, ingester, tmp_path / "gate")
            shop.check()
        finally:
            world.run("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


def read_while_the_slot_is_lost(shop: Shop, ingester: Ingester, gate: Path) -> None:
    """A copy has read its rows; before they are committed, the slot is lost and made again."""
    gate.touch()
    failed: list[Exception] = []

    def read() -> None:
        try:
            ingester.copy_tables()
        except SourceUnavailableError as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        while not gate.with_name(f"{gate.name}.reached").exists():
            SystemClock().sleep(0.05)
        shop.change()
        give_up_slots(shop)
        ingester.stop()
        with suppress(SourceUnavailableError):
            ingester.step()
    finally:
        gate.unlink()
        reader.join(60)
        ingester.close()
    assert len(failed) == 1
    assert {type(each) for each in shop.world.states().values()} == {Copying}


def give_up_slots(shop: Shop) -> None:
    """More log than the server keeps, and a checkpoint that notices."""
    for _ in range(3):
        shop.world.run(
            "select pg_logical_emit_message(false, 'noise', repeat('x', 100000))",
            "select pg_switch_wal()",
        )
    shop.world.run("checkpoint")


@pytest.mark.fault("N21")
def test_another_server_and_another_history_are_refused(
    spark: SparkSession, postgres: Postgres, own_server: Postgres, tmp_path: Path
) -> None:
    with open_shop(spark, own_server, tmp_path) as shop:
        world = shop.world
        shop.check()
        with database_on(postgres, world.database.name) as other:
            other.run(
                *(
                    f"create table {name} (id int primary key, version int, body text)"
                    for name in TABLES
                )
            )
            world.reconfigure(source={"dsn": other.dsn.value})
            with pytest.raises(SourceReplacedError, match=r"resync --all"):
                world.ingest()
            assert other.ask("select count(*) from pg_publication") == 0
        world.reconfigure(source={"dsn": world.database.dsn.value})
        shop.change()
        shop.check()
        # A fail-over that lost nothing goes on.
        world.run("alter system set restore_command to 'false'")
        backup = tmp_path / "backup"
        own_server.stop()
        subprocess.run(["cp", "-a", own_server.data, backup], check=True)
        begin_timeline(own_server)
        shop.change()
        world.run("select pg_logical_emit_message(false, 'noise', repeat('x', 100000))")
        shop.change()
        shop.check()
        # One that lost what was captured does not; what it calls its timeline means nothing.
        own_server.stop()
        shutil.rmtree(own_server.data)
        subprocess.run(["cp", "-a", backup, own_server.data], check=True)
        begin_timeline(own_server)
        with pytest.raises(SourceReplacedError, match="it was restored"):
            world.ingest()
        own_server.stop()
        begin_timeline(own_server)
        # In a transaction, whose commit brings it to the disk: a log ends where it was flushed.
        world.run("select pg_logical_emit_message(true, 'noise', repeat('x', 300000))")
        with pytest.raises(SourceReplacedError, match="another history"):
            world.ingest()
        assert all(isinstance(each, Streaming) for each in world.states().values())
        world.resync()
        world.catch_up()
        world.assert_mirrored(*TABLES)


def begin_timeline(server: Postgres) -> None:
    """Start as a server that took over, or was restored."""
    (server.data / "recovery.signal").touch()
    server.restart()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        # It answers questions before it is done.
        connection.execute(
            "do $$ begin while pg_is_in_recovery() loop perform pg_sleep(0.02); end loop; end $$"
        )
