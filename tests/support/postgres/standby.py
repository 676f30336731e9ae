"""A primary and a physical standby of it."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from frazil.demo.services import embedded_postgres
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres

_PATIENCE_SECONDS = 120.0


@contextmanager
def primary_and_standby(folder: Path) -> Iterator[tuple[Postgres, Postgres]]:
    """A server, and another one that follows it."""
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
def logging_transactions(primary: Postgres) -> Iterator[None]:
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


def let_it_follow(standby: Postgres, goal: str) -> None:
    """Wait until the standby has replayed what the primary had at this position."""
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
