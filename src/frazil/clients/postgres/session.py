"""A session at the server: statements, snapshots and bulk reading, with errors of our family."""

from __future__ import annotations

import select
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import psycopg
from psycopg import IsolationLevel, pq
from psycopg.rows import args_row

from frazil import errors
from frazil.clients.postgres.translation import (
    INVALID_PARAMETER,
    NOT_IN_PREREQUISITE_STATE,
    UNDEFINED_OBJECT,
    translated,
)
from frazil.codec.pgoutput.frames import Frames
from frazil.model.postgres.names import quote_literal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from frazil.errors import FrazilError

Row = TypeVar("Row")

# What servers say of a snapshot whose exporter has ended; newer ones have a better code for it.
_SNAPSHOT_GONE = frozenset({INVALID_PARAMETER, UNDEFINED_OBJECT, NOT_IN_PREREQUISITE_STATE})
# What libpq says instead of a size.
_NOTHING_YET = 0
_ENDED = -1


class ResultColumn(NamedTuple):
    """A column of an answer.

    ``type_oid`` is a domain's base. ``number`` is that of the table's column, 0 for anything else.
    """

    name: str
    type_oid: int
    number: int


class Session:
    """An ordinary connection. Every statement is a transaction of its own unless said otherwise.

    One thread uses it at a time; ``cancel`` may be called from any.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server_version(self) -> int:
        """The server's version as it counts: 160004 for 16.4."""
        return self._connection.info.server_version

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self._connection.pgconn.ssl_in_use

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or broke."""
        return self._connection.closed

    @property
    def backend(self) -> int:
        """The number of the server's process for this session."""
        return self._connection.info.backend_pid

    def load(
        self,
        kind: type[Row],
        query: str,
        parameters: Mapping[str, object] | None = None,
        *,
        doing: str,
    ) -> list[Row]:
        """The rows of a query, each given to ``kind`` column by column."""
        with translated(doing), self._connection.cursor(row_factory=args_row(kind)) as cursor:
            return cursor.execute(query.encode(), parameters).fetchall()

    def describe(
        self, query: str, *, doing: str, meanings: Mapping[str, type[FrazilError]] | None = None
    ) -> list[ResultColumn]:
        """The columns of a query's answer, whose rows are discarded; select none."""
        with translated(doing, meanings=meanings or {}):
            result = self._connection.execute(query.encode()).pgresult
        if result is None:
            return []
        return [
            ResultColumn((result.fname(at) or b"").decode(), result.ftype(at), result.ftablecol(at))
            for at in range(result.nfields)
        ]

    def execute(
        self,
        statement: str,
        parameters: Mapping[str, object] | None = None,
        *,
        doing: str,
        meanings: Mapping[str, type[FrazilError]] | None = None,
    ) -> int:
        """Run a statement; how many rows it touched, -1 where that means nothing."""
        with translated(doing, meanings=meanings or {}):
            return self._connection.execute(statement.encode(), parameters).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What happens inside the block is done together, or not at all."""
        with translated("a transaction"), self._connection.transaction():
            yield

    @contextmanager
    def one_view(self, *, snapshot: str | None = None) -> Iterator[None]:
        """All queries inside the block see one state: the exported one, or that of the first.

        An exported snapshot can be adopted while the connection that exported it waits, and is
        SourceUnavailableError afterwards.
        """
        with translated("reading in one snapshot"):
            self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
            try:
                with self._connection.transaction():
                    if snapshot is not None:
                        self._adopt(snapshot)
                    yield
            finally:
                self._connection.isolation_level = None

    def _adopt(self, snapshot: str) -> None:
        is_gone = False
        try:
            self._connection.execute(f"set transaction snapshot {quote_literal(snapshot)}".encode())
        except psycopg.Error as error:
            is_gone = error.sqlstate in _SNAPSHOT_GONE
            if not is_gone:
                raise
        if is_gone:
            message = (
                "the snapshot is gone, for the connection that exported it has ended; the copy "
                "starts again with a new one."
            )
            raise errors.SourceUnavailableError(message)

    def copy_out_rows(
        self, query: str, *, doing: str, most_rows: int, most_bytes: int
    ) -> Generator[Frames]:
        """The messages of ``copy (…) to stdout``, one for each row, many at a time.

        There are never more than so many at once, or more bytes unless it is one message. The
        driver's own way costs several times as much for each row. To close this early ends the
        statement at the server; before it is closed or at its end, the session takes no other.
        """
        with (
            translated(doing),
            self._connection.cursor() as cursor,
            cursor.copy(query.encode()),
        ):
            yield from self._messages(most_rows, most_bytes)

    def _messages(self, most_rows: int, most_bytes: int) -> Iterator[Frames]:
        """Every message of the copy that has begun."""
        pgconn = self._connection.pgconn
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        take = pgconn.get_copy_data
        data, sizes, total = BytesIO(), list[int](), 0
        while (found := take(1))[0] != _ENDED:
            size, message = found
            if size == _NOTHING_YET:
                poll.poll()
                pgconn.consume_input()
                continue
            if sizes and (total + size > most_bytes or len(sizes) >= most_rows):
                yield Frames.written(data, sizes)
                data, sizes, total = BytesIO(), [], 0
            sizes.append(data.write(message))
            total += size
        # Before the last ones are given: a caller that closes this then leaves an idle session.
        self._finish()
        if sizes:
            yield Frames.written(data, sizes)

    def _finish(self) -> None:
        """Take what the server says after the last message; psycopg.Error if it failed."""
        failed = None
        while (result := self._connection.pgconn.get_result()) is not None:
            if result.status != pq.ExecStatus.COMMAND_OK:
                failed = psycopg.errors.error_from_result(result)
        if failed is not None:
            raise failed

    def cancel(self) -> None:
        """Ask the server to end the statement that is running; from any thread."""
        with translated("cancelling a statement"):
            self._connection.cancel_safe()

    def close(self) -> None:
        """End the session; a second time does nothing."""
        self._connection.close()
