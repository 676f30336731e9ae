"""Where a copy ends and the stream begins: at a position, and not a transaction off (N1)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import psycopg
import pytest

from frazil.clients.postgres.replication import connect_replication
from frazil.codec.pgoutput.messages import Begin, Insert
from frazil.sources.postgres.copy.round import open_copy_snapshot
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.replication_stream import ReplicationStream
    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

# One of seven, under load: that none of so many meets a commit does not happen.
MOST_SNAPSHOTS = 150
ENOUGH_MEETINGS = 2
WRITERS = 3


@pytest.fixture(params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "boundary") as made:
        made.run("create table item (id text primary key)", "create publication p for table item")
        yield made


@dataclass
class Load:
    """Transactions that overlap: at every moment one is open, and about to commit."""

    database: Database
    threads: list[threading.Thread] = field(default_factory=list)
    end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.threads += [
            threading.Thread(target=self._write, args=(each,)) for each in range(WRITERS)
        ]
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        for each in self.threads:
            each.join()

    def _write(self, writer: int) -> None:
        number = 0
        with psycopg.connect(self.database.dsn.value, autocommit=True) as connection:
            while not self.end.is_set():
                number += 1
                with connection.transaction():
                    connection.execute("insert into item values (%s)", (f"{writer}-{number}",))
                    connection.execute("select pg_sleep(0.005)")


@pytest.mark.fault("N1")
def test_a_snapshot_has_what_committed_before_its_point_and_not_what_begins_there(
    database: Database,
) -> None:
    with connect_replication(database.dsn, purpose="test") as connection:
        connection.create_slot("boundary")
    committed: dict[int, str] = {}
    copies: dict[int, set[str]] = {}
    with database.streaming("boundary", "p") as stream, Load(database) as load:
        while len(copies) < MOST_SNAPSHOTS and not enough_meetings(copies, committed):
            for _ in range(15):
                point, rows = snapshot_rows(database, len(copies))
                copies[point] = rows
            committed |= committed_rows(database, stream)
        load.end.set()
        committed |= committed_rows(database, stream)
    assert enough_meetings(copies, committed)
    for point, rows in copies.items():
        assert rows == {row for final_lsn, row in committed.items() if final_lsn < point}


def enough_meetings(copies: dict[int, set[str]], committed: dict[int, str]) -> bool:
    return len(copies.keys() & committed.keys()) >= ENOUGH_MEETINGS


def snapshot_rows(database: Database, number: int) -> tuple[int, set[str]]:
    with (
        open_copy_snapshot(database.dsn, slot=f"boundary_{number}") as snapshot,
        psycopg.connect(database.dsn.value) as reader,
    ):
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f"set transaction snapshot '{snapshot.snapshot}'".encode())
        rows = reader.execute("select id from item").fetchall()
        return snapshot.consistent_point, {row[0] for row in rows}


def committed_rows(database: Database, stream: ReplicationStream) -> dict[int, str]:
    """By the position of their commit records, what was inserted until now."""
    found: dict[int, str] = {}
    final_lsn = 0
    for message in database.read_to_now(stream):
        if isinstance(message, Begin):
            final_lsn = message.final_lsn
        elif isinstance(message, Insert):
            found[final_lsn] = message.new[0].data.decode()
    return found
