"""Access to Postgres for tests: secrets, writers, and a stream that is read to a mark."""

from __future__ import annotations

from collections import deque
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import psycopg

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import LogicalMessage
from frazil.codec.pgoutput.replication_frames import LogData
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.replication_stream import ReplicationStream
    from frazil.clients.postgres.session import Session
    from frazil.codec.pgoutput.messages import Message
    from frazil.demo.services import Postgres

# Far above what a busy machine needs, far below pytest's own limit.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Secret:
    """A secret as the configuration has it."""

    value: str = field(repr=False)

    def get_secret_value(self) -> str:
        return self.value


@dataclass(frozen=True)
class Database:
    """A database of its own on a shared server, so that tests do not meet."""

    server: Postgres
    name: str

    @property
    def dsn(self) -> Secret:
        return self.dsn_of(self.server.user, self.server.password)

    def dsn_of(self, user: str, password: str, *, port: int | None = None) -> Secret:
        host = urlsplit(self.server.dsn).hostname
        address = f"{host}:{port or self.server.port}"
        return Secret(f"postgresql://{user}:{password}@{address}/{self.name}")

    def run(self, *statements: str) -> None:
        """Each is a transaction of its own."""
        with psycopg.connect(self.dsn.value, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def ask(self, query: str) -> object:
        """The only value of the answer."""
        with psycopg.connect(self.dsn.value, autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

    def session(self) -> Session:
        return connect(self.dsn, purpose="test")

    @contextmanager
    def streaming(
        self, slot: str, *publications: str, after: int = 0
    ) -> Iterator[ReplicationStream]:
        connection = connect_replication(self.dsn, purpose="test")
        with (
            closing(connection),
            connection.stream(slot, after=after, publications=publications) as stream,
        ):
            yield stream

    def read_to_now(self, stream: ReplicationStream) -> list[Message]:
        """The messages before a mark that is set now."""
        mark = str(self.ask("select gen_random_uuid()"))
        self.run(f"select pg_logical_emit_message(true, 'mark', '{mark}')")
        messages: list[Message] = []
        for frame in frames(stream):
            if isinstance(frame, LogData):
                message = decode_message(frame.payload, in_stream=False)
                if isinstance(message, LogicalMessage) and message.content == mark.encode():
                    # The transaction of the mark has begun before it.
                    return messages[:-1]
                messages.append(message)
        raise AssertionError


# Frames come several at a time: what one call did not use is for the next.
_NOT_SEEN: WeakKeyDictionary[ReplicationStream, deque[object]] = WeakKeyDictionary()


def frames(stream: ReplicationStream) -> Iterator[object]:
    """All frames, one by one, for as long as a test may take."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    waiting = _NOT_SEEN.setdefault(stream, deque())
    while clock.monotonic() < deadline:
        while waiting:
            yield waiting.popleft()
        waiting.extend(stream.receive(0.2))
    message = "the stream did not say it in time"
    raise AssertionError(message)


@contextmanager
def database_on(server: Postgres, name: str) -> Iterator[Database]:
    """Make a database; afterwards it goes with its slots and connections."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f'create database "{name}"'.encode())
    try:
        yield Database(server, name)
    finally:
        # Another connection: the server may have started again.
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                b"""
                do $$
                declare
                    reader record;
                begin
                    for reader in
                        select slot_name, active_pid from pg_replication_slots
                        where database = current_setting('test.doomed')
                    loop
                        perform pg_terminate_backend(reader.active_pid, 5000)
                        where reader.active_pid is not null;
                        perform pg_drop_replication_slot(slot_name)
                        from pg_replication_slots
                        where slot_name = reader.slot_name;
                    end loop;
                end $$
                """.replace(b"current_setting('test.doomed')", f"'{name}'".encode())
            )
            connection.execute(f'drop database "{name}" with (force)'.encode())
