"""Capture from a physical standby: slot, copy and stream there, the publication on the primary."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil.demo.services import embedded_postgres
from frazil.errors import PermissionError  # noqa: A004 - the published name of this error
from frazil.hooks import SystemClock
from frazil.ledger.table_state import Copying, Streaming
from tests.support.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N41")]

_PATIENCE_SECONDS = 120.0


@contextmanager
def _primary_and_standby(folder: Path) -> Iterator[tuple[Postgres, Postgres]]:
    with embedded_postgres(version=18, folder=folder / "primary") as primary:
        primary.stop()
        # A copy of a server that is stopped, owners included, is one that can follow it.
        subprocess.run(["cp", "-a", folder / "primary", folder / "standby"], check=True)
        primary.restart()
        (folder / "standby" / "data" / "standby.signal").touch()
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            connection.execute("select pg_create_physical_replication_slot('standby')")
        settings = {
            "primary_conninfo": (
                f"host={primary.host} port={primary.port} user={primary.user} "
                f"password={primary.password}"
            ),
            "primary_slot_name": "standby",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
        }
        with embedded_postgres(version=18, folder=folder / "standby", settings=settings) as standby:
            yield primary, standby


@contextmanager
def _logging_transactions(primary: Postgres) -> Iterator[None]:
    """A new slot on a standby waits for this; a busy primary does it by itself now and then."""
    ended = threading.Event()

    def log() -> None:
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            while not ended.wait(0.2):
                connection.execute("select pg_log_standby_snapshot()")

    thread = threading.Thread(target=log, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _let_it_follow(db: CapturedDatabase, standby: Postgres) -> None:
    """Wait until the standby has what the primary has."""
    goal = str(db.ask("select pg_current_wal_flush_lsn()::text"))
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        while clock.monotonic() < deadline:
            row = connection.execute(
                "select pg_last_wal_replay_lsn() >= %s::pg_lsn", [goal]
            ).fetchone()
            if row == (True,):
                return
            clock.sleep(0.1)
    raise AssertionError("the standby does not follow")


def test_a_standby_is_captured_like_any_server(spark: SparkSession, shared_folder: Path) -> None:
    with (
        _primary_and_standby(shared_folder) as (primary, standby),
        captured_database(spark, primary, shared_folder) as db,
        _logging_transactions(primary),
    ):
        publication = f"{db.config.pipeline}_frazil"
        dsn = db.database.dsn_of(primary.user, primary.password, port=standby.port).value
        db.reconfigure(source={"dsn": dsn})
        db.run(
            "create table users (id int primary key, name text)",
            "create table late (id int primary key)",
            "insert into users values (1, 'x'), (2, 'y')",
        )
        _let_it_follow(db, standby)
        with pytest.raises(PermissionError, match="does not exist, and the server is a standby"):
            db.ingest()
        db.run(
            f"create publication {publication} for table only users"
            " with (publish_via_partition_root = true)"
        )
        _let_it_follow(db, standby)
        db.ingest()
        states = db.states()
        assert states["users"] == Streaming()
        assert isinstance(states["late"], Copying)
        assert "add it on the primary" in str(states["late"].cause)
        db.run(
            "insert into users values (3, 'z')",
            "update users set name = 'changed' where id = 1",
            "delete from users where id = 2",
            f"alter publication {publication} add table only late",
            "insert into late values (1)",
        )
        _let_it_follow(db, standby)
        db.catch_up()
        db.assert_mirrored("users", "late")
        with psycopg.connect(standby.dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            )
