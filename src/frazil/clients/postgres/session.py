"""A session at the server: statements, snapshots and bulk reading, with errors of our family."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from psycopg import IsolationLevel
from psycopg.rows import args_row

from frazil.clients.postgres.translation import translated
from frazil.model.postgres_names import quote_literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from frazil.errors import FrazilError

Row = TypeVar("Row")


class Session:
    """An ordinary connection. Every statement is a transaction of its own unless told otherwise.

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

        An exported snapshot can be adopted while the connection that exported it waits.
        """
        with translated("reading in one snapshot"):
            self._connection.isolation_level = IsolationLevel.REPEATABLE_READ
            try:
                with self._connection.transaction():
                    if snapshot is not None:
                        adopt = f"set transaction snapshot {quote_literal(snapshot)}"
                        self._connection.execute(adopt.encode())
                    yield
            finally:
                self._connection.isolation_level = None

    def copy_out(self, query: str, *, doing: str) -> Iterator[bytes | bytearray | memoryview]:
        """The bytes of ``copy (…) to stdout``, as they come, in pieces that are whole rows.

        A piece is valid until the next one is asked for.
        """
        with (
            translated(doing),
            self._connection.cursor() as cursor,
            cursor.copy(query.encode()) as copy,
        ):
            yield from copy

    def cancel(self) -> None:
        """Ask the server to end the statement that is running; from any thread."""
        with translated("cancelling a statement"):
            self._connection.cancel_safe()

    def close(self) -> None:
        """End the session; a second time does nothing."""
        self._connection.close()
