"""What goes wrong between a database and its changelogs, and what is left of it: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil.clients.postgres.replication import connect_replication
from frazil.errors import (
    PositionLostError,
    SlotBusyError,
)
from frazil.hooks import InjectedFault, SystemClock, armed
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming
from frazil.model.postgres.lsn import parse_lsn
from frazil.pipeline.capture import build_capture
from tests.support.faults.proxy import HttpProxy, LoseReply, is_commit
from tests.support.ingest.captured_shop import TABLES, Running, Shop, open_shop
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres, RestCatalog
    from frazil.ingest.ingester import Ingester

pytestmark = [pytest.mark.spark, pytest.mark.services]

LEFT, RIGHT = TABLES
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """Captured already; every test leaves it in order."""
    with open_shop(spark, postgres, tmp_path_factory.mktemp("shop")) as opened:
        opened.check()
        yield opened
        opened.check_mirrors()


def drop_slot(shop: Shop, *, and_create_it: bool = False) -> None:
    """As an administrator would, with changes that no one keeps."""
    shop.world.run(f"select pg_drop_replication_slot('{shop.slot}')")
    shop.change()
    if and_create_it:
        shop.world.run(f"select pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')")


# --- a process that ends at each step (K3–K6, K11, E1) ---


@pytest.mark.fault("K1", "K3", "K5", "K6", "E1")
def test_a_batch_that_is_cut_at_every_step_in_turn_is_captured_once(shop: Shop) -> None:
    shop.change()
    confirmed = shop.world.confirmed()
    # Files written; the first table landed with an unknown outcome; the second one, but not
    # recorded.
    for point in ("ingest.written", "commit.landed", "ingest.committed"):
        with armed(f"{point}=error@1"), pytest.raises(InjectedFault):
            shop.world.ingest()
        assert shop.world.confirmed() == confirmed, point
    heads = [snapshot_of(shop, name) for name in TABLES]
    # Three times all of it again, for tables that have it, with more behind it.
    shop.change()
    for _ in range(3):
        with armed("ingest.written=error"), pytest.raises(InjectedFault):
            shop.world.ingest()
    assert [snapshot_of(shop, name) for name in TABLES] == heads
    with armed("ingest.recorded=error"), pytest.raises(InjectedFault):
        shop.world.ingest()
    assert shop.world.confirmed() == confirmed
    shop.world.check_confirmed()
    shop.change()
    shop.check()


def snapshot_of(shop: Shop, table: str) -> int | None:
    head = shop.world.lake.open(shop.world.names(table).changelog).load_state().head
    return None if head is None else head.id


@pytest.mark.fault("K11")
def test_a_copy_that_is_cut_at_every_step_begins_again_and_doubles_nothing(shop: Shop) -> None:
    world = shop.world
    world.run("create table late (id int primary key, version int)")
    world.run("insert into late select i, 1 from generate_series(1, 1000) i")
    for version, point in enumerate(
        ("ingest.planned", "ingest.written", "commit.landed", "ingest.committed"), start=2
    ):
        with armed(f"{point}=error@1"), pytest.raises(InjectedFault):
            world.ingest()
        world.run(f"update late set version = {version} where id <= 10")
        shop.change()
    shop.check()
    world.merge("late")
    world.assert_mirrored("late")
    world.run("drop table late")
    world.reconfigure(source={"exclude": ["public.late"]})


@pytest.mark.fault("K4")
def test_a_commit_whose_reply_is_lost_is_found_and_not_repeated(
    spark: SparkSession, postgres: Postgres, file_catalog: RestCatalog, tmp_path: Path
) -> None:
    with HttpProxy(file_catalog.uri) as proxy:
        catalog = {"name": "lossy", "kind": "rest", "uri": proxy.url, "warehouse": "file:///none"}
        with open_shop(spark, postgres, tmp_path, catalog=catalog) as shop:
            shop.check()
            shop.change()
            proxy.script(is_commit, LoseReply(), LoseReply(), LoseReply())
            shop.check()
            assert not shop.world.failures


# --- the hand-over from a copy to the stream ---


@pytest.mark.fault("N1")
def test_a_snapshot_that_is_older_than_the_position_is_not_read_from(shop: Shop) -> None:
    world = shop.world
    world.resync(RIGHT)
    ingester = world.capture().ingester
    try:
        assert ingester.copy_tables() is not None
        # Its snapshot is still open while the position moves on, and a table is to be read again.
        shop.change()
        step_until_recorded(ingester)
        world.resync(LEFT)
        ingester.step()
        assert ingester.copy_tables() is not None
        assert ingester.copy_tables() is None
    finally:
        ingester.close()
    shop.check()


def step_until_recorded(ingester: Ingester) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 60
    while not (report := ingester.step()) or not report.tables:
        assert clock.monotonic() < deadline
        clock.sleep(0.05)


# --- slots (O6, N2) ---


@pytest.mark.fault("O6", "N2")
def test_a_lost_slot_stops_everything_until_all_is_read_again(shop: Shop) -> None:
    world = shop.world
    for and_create_it in (False, True):
        drop_slot(shop, and_create_it=and_create_it)
        with pytest.raises(PositionLostError, match=r"resync --all"):
            world.ingest()
        world.resync()
        shop.check()
    shop.change()
    shop.check()


@pytest.mark.fault("O6")
def test_a_lost_slot_is_repaired_where_that_is_configured(shop: Shop) -> None:
    shop.world.reconfigure(source={"on_slot_lost": "resync"})
    drop_slot(shop, and_create_it=True)
    shop.check()
    assert {row["cdc_operation"] for row in shop.world.changelog_rows(LEFT)} >= {"TRUNCATE"}
    shop.world.reconfigure(source={"on_slot_lost": "stop"})
    shop.change()
    shop.check()


@pytest.mark.fault("O6")
def test_a_slot_that_another_process_reads_is_waited_for(shop: Shop) -> None:
    world = shop.world
    shop.change()
    connection = connect_replication(world.database.dsn, purpose="rival")
    with connection.stream(shop.slot, after=0, publications=[shop.slot]):
        with pytest.raises(SlotBusyError):
            world.ingest()
        with shop.running() as run:
            run.wait_for(lambda: any(isinstance(each, SlotBusyError) for each in run.failures))
            connection.close()
            run.wait_until_recorded()
    shop.check()


@pytest.mark.fault("O6")
def test_a_slot_that_is_dropped_while_it_is_read_ends_the_loop(shop: Shop) -> None:
    world = shop.world
    with shop.running() as run:
        shop.change()
        run.wait_until_recorded()
        shop.end_sessions()
        drop = f"select pg_drop_replication_slot('{shop.slot}')"
        run.wait_for(lambda: has_run(shop, drop) or run.ended_with is not None)
        assert isinstance(run.wait_for_the_end(), PositionLostError)
    world.resync()
    shop.check()


def has_run(shop: Shop, statement: str) -> bool:
    try:
        shop.world.run(statement)
    except psycopg.errors.ObjectInUse:
        shop.end_sessions()
        return False
    return True


class HurriedClock(SystemClock):
    """An hour passes in seconds."""

    TIMES = 900.0

    def monotonic(self) -> float:
        return super().monotonic() * self.TIMES

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self.TIMES)


@pytest.mark.fault("N2")
def test_an_idle_hour_pins_no_log_and_raises_no_alarm(shop: Shop) -> None:
    world = shop.world
    shop.check()
    world.run("create schema elsewhere", "create table elsewhere.noise (body text)")
    clock = HurriedClock()
    ingester = build_capture(world.spark, world.config, clock=clock).ingester
    before = world.confirmed() or 0
    end = clock.monotonic() + 3600
    written = 0
    try:
        while clock.monotonic() < end:
            world.run(
                "insert into elsewhere.noise select repeat('x', 100) from generate_series(1, 1000)"
            )
            written += 1
            ingester.step()
            world.check_confirmed()
        after = world.confirmed() or 0
    finally:
        ingester.close()
    # What was written in the last minutes may be pinned, and no more.
    kept = int(str(world.ask("select pg_current_wal_lsn() - '0/0'::pg_lsn"))) - after
    assert after > before
    assert kept < (after - before), (kept, after - before)
    shop.change()
    shop.check()
    assert not world.failures


# --- tables that are paused, excluded or included again (N3) ---


def test_a_paused_table_keeps_its_changes_and_the_others_go_on(shop: Shop) -> None:
    world = shop.world
    world.run(
        "create table dated (id int primary key, day date)", "insert into dated values (1, now())"
    )
    shop.check()
    world.run("insert into dated values (2, 'infinity')", "insert into dated values (3, now())")
    shop.change()
    confirmed = world.confirmed()
    world.ingest()
    assert isinstance(world.states()["dated"], Paused)
    assert "UnrepresentableValue" in type(world.table_failures()["dated"]).__name__
    shop.change()
    world.ingest()
    # The slot stays where the paused table needs it.
    assert world.confirmed() == confirmed
    world.run("delete from dated where id = 2")
    mirror = str(world.names("dated").mirror)
    world.reconfigure(tables=[{"mirror": mirror, "on_unrepresentable": "null"}])
    world.ingest()
    assert world.states()["dated"] == Streaming()
    assert len(world.changelog_rows("dated")) == 4
    assert (world.confirmed() or 0) > (confirmed or 0)
    world.reconfigure(tables=[], source={"exclude": ["public.dated"]})
    world.ingest()
    assert "dated" not in world.states()
    # Out of the configuration and in again: what happened meanwhile is read, not guessed.
    world.run("update dated set day = '2020-02-02'", "insert into dated values (9, now())")
    world.reconfigure(source={"exclude": []})
    world.ingest()
    world.merge("dated")
    world.assert_mirrored("dated")
    assert world.changelog_rows("dated")[4]["cdc_operation"] == "TRUNCATE"
    world.run("drop table dated")
    world.reconfigure(source={"exclude": ["public.dated"]})
    shop.check()


@pytest.mark.fault("N3")
def test_past_its_bound_a_paused_table_requires_a_resync_and_nothing_less(shop: Shop) -> None:
    world = shop.world
    # Far above what a server writes by itself meanwhile: its log is everyone's.
    bound = 16 << 20
    world.reconfigure(source={"exclude": [], "on_stopped_table": {"hold": "16MiB"}})
    world.run("create table dated (id int primary key, day date)")
    shop.check()
    confirmed = world.confirmed() or 0
    world.run("insert into dated values (1, 'infinity')")
    world.ingest()
    assert isinstance(world.states()["dated"], Paused)
    world.run(f"select pg_logical_emit_message(false, 'noise', repeat('x', {bound + (1 << 20)}))")
    shop.change()
    world.ingest()
    world.check_confirmed()
    found = world.states()["dated"]
    assert isinstance(found, ResyncRequired)
    # Reported from the position on from which changes are missing.
    assert parse_lsn(found.position) <= confirmed + bound
    assert found.reason.startswith(
        "it was paused for longer than source.on_stopped_table allows, by FRZ-SCH-02 "
    )
    world.run("delete from dated")
    shop.change()
    world.ingest()
    assert isinstance(world.states()["dated"], ResyncRequired)
    assert (world.confirmed() or 0) > confirmed
    world.resync("dated")
    assert world.states()["dated"] == Copying()
    world.ingest()
    world.merge("dated")
    assert world.states()["dated"] == Streaming()
    world.assert_mirrored("dated")
    world.run("drop table dated")
    world.reconfigure(source={"exclude": ["public.dated"], "on_stopped_table": {"hold": "10GiB"}})
    shop.check()


# --- the publication (N9) ---


@pytest.mark.fault("N9")
@pytest.mark.parametrize("version", sampled(["postgres", "postgres_16"], ci={"postgres"}))
def test_a_publication_that_is_dropped_is_found_before_the_slot_moves(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, version: str
) -> None:
    server: Postgres = request.getfixturevalue(version)
    with open_shop(spark, server, tmp_path) as shop:
        world = shop.world
        shop.check()
        with shop.running() as run:
            shop.change()
            run.wait_until_recorded()
            world.run(f"drop publication {shop.slot}")
            shop.change()
            run.wait_for(lambda: run.ended_with is not None or is_resync_needed(run))
            world.check_confirmed()
        if run.ended_with is None:
            assert {type(each) for each in world.states().values()} == {ResyncRequired}
        else:
            assert isinstance(run.ended_with, PositionLostError)
        world.resync()
        shop.check()
        shop.change()
        shop.check()


def is_resync_needed(run: Running) -> bool:
    states = [each.state for each in run.capture.ingester.table_states.values()]
    return any(isinstance(each, ResyncRequired) for each in states)
