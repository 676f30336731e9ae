"""A standby: new slots wait for its primary within bounds, and one that is behind is waited for."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil.clients.postgres.catalog_facts import load_slot
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.errors import ShutdownRequested, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.model.marker import Marker
from frazil.sources.postgres.settings import PostgresSettings
from frazil.sources.postgres.source import PostgresSource
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.tables.description import TableOptions
from tests.support.postgres.access import Secret
from tests.support.postgres.standby import let_it_follow, logging_transactions, primary_and_standby
from tests.support.services import open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.services, pytest.mark.fault("N41")]

SLOT = "waiting"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    with open_folder() as folder, primary_and_standby(folder) as both:
        run(
            both[0], "create table item (id int primary key)", "create publication p for table item"
        )
        yield both


def run(server: Postgres, *statements: str) -> object:
    """The first value of the last statement, if it has one."""
    found = None
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            found = cursor.fetchone() if cursor.description else None
    return None if found is None else found[0]


def position(primary: Postgres) -> str:
    return str(run(primary, "select pg_current_wal_flush_lsn()::text"))


@pytest.fixture
def paused(pair: tuple[Postgres, Postgres]) -> Iterator[Postgres]:
    """Replays nothing, so that no slot can be made."""
    primary, standby = pair
    let_it_follow(standby, position(primary))
    run(standby, "select pg_wal_replay_pause()")
    clock = SystemClock()
    while run(standby, "select pg_get_wal_replay_pause_state()") != "paused":
        run(primary, "select pg_log_standby_snapshot()")
        clock.sleep(0.05)
    try:
        yield standby
    finally:
        run(standby, "select pg_wal_replay_resume()")


def no_slot(standby: Postgres) -> bool:
    with connect(Secret(standby.dsn), purpose="test") as session:
        return load_slot(session, SLOT) is None


@pytest.mark.parametrize("temporary", [True, False])
def test_a_slot_that_waits_for_the_primary_gives_up_and_names_the_remedy(
    paused: Postgres, *, temporary: bool
) -> None:
    with connect_replication(
        Secret(paused.dsn), purpose="test", slot_patience=timedelta(milliseconds=300)
    ) as connection:
        for _ in range(2):
            with pytest.raises(
                SourceUnavailableError, match=r"on the primary: select pg_log_standby_snapshot\(\)"
            ):
                connection.create_slot(SLOT, temporary=temporary)
    assert no_slot(paused)


def test_whoever_stops_need_not_wait_for_the_primary(paused: Postgres) -> None:
    stopping, clock = threading.Event(), SystemClock()

    def stop_when_it_waits() -> None:
        while not run(
            paused, "select count(*) from pg_stat_activity where query ilike 'create_replication%'"
        ):
            clock.sleep(0.05)
        stopping.set()

    asking = threading.Thread(target=stop_when_it_waits, daemon=True)
    with connect_replication(
        Secret(paused.dsn), purpose="test", is_stopping=stopping.is_set
    ) as connection:
        asking.start()
        with pytest.raises(ShutdownRequested):
            connection.create_slot(SLOT)
    asking.join()
    assert no_slot(paused)


def test_a_standby_that_is_behind_is_waited_for(
    pair: tuple[Postgres, Postgres], tmp_path: Path
) -> None:
    """It may have started again, and replays what was captured from it before."""
    primary, standby = pair
    source = PostgresSource(
        PostgresSettings(
            dsn=Secret(standby.dsn),
            slot=SLOT,
            publication="p",
            creates_publication=False,
            include=("public.*",),
            exclude=(),
            spool=SpoolFiles(str(tmp_path)),
            spool_bytes=1 << 30,
            heartbeat_seconds=10,
            copy_connections=1,
            options=lambda _table: TableOptions(),
        )
    )
    let_it_follow(standby, position(primary))
    with logging_transactions(primary):
        begun = source.prepare(["public.item"], None)
    since = Marker(
        pipeline="p",
        source=source.identity,
        position=begun,
        batch="b",
        epoch=source.generation,
    )
    source.prepare(["public.item"], since)
    run(standby, "select pg_wal_replay_pause()")
    run(primary, "insert into item values (1)")
    ahead = replace(since, position=position(primary))
    source.discover()
    with pytest.raises(SourceUnavailableError, match="the standby has replayed up to"):
        source.prepare(["public.item"], ahead)
    # What was seen of the tables is as old as it was, though it has come there meanwhile.
    run(standby, "select pg_wal_replay_resume()")
    let_it_follow(standby, position(primary))
    with pytest.raises(SourceUnavailableError, match="the standby has replayed up to"):
        source.prepare(["public.item"], ahead)
    source.discover()
    assert source.prepare(["public.item"], ahead) == ahead.position
    source.close()
    run(standby, f"select pg_drop_replication_slot('{SLOT}')")
