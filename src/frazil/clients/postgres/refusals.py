"""Why a server would not let us in.

libpq tells the reason of a failed connection as a sentence in the server's language, and programs
must not read sentences. So one more attempt is made with libpq's trace switched on, which shows the
code of the answer. The trace is kept in memory and forgotten at once.
"""

from __future__ import annotations

import os
import re
import select
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.seams import Clock

# The server has just answered, so it will again soon.
_SECONDS = 5.0
# The fields of an answer, each a letter and a text in quotes; C is the code.
_CODE = re.compile(rb'\tErrorResponse\t.*? C "([0-9A-Z]{5})" M ')

INVALID_PASSWORD = "28P01"  # noqa: S105 - a code, not a password


def answers(conninfo: bytes) -> bool:
    """Whether there is a server that takes connections, ours or others."""
    return pq.PGconn.ping(conninfo) == pq.Ping.OK


def refusal_code(conninfo: bytes, *, clock: Clock) -> str | None:
    """The SQLSTATE with which the server refuses this connection; None if it gives none."""
    with closing(_Attempt(conninfo)) as attempt:
        if not hasattr(os, "memfd_create"):
            # There is no trace on this system. That a password was asked for says enough.
            attempt.run(clock)
            return INVALID_PASSWORD if attempt.asked_for_password else None
        with _traced(attempt.pgconn) as trace:
            attempt.run(clock)
    codes = _CODE.findall(trace[0])
    # Of several hosts, the last.
    return codes[-1].decode() if codes else None


class _Attempt:
    """A connection being made; whatever comes of it, it is closed."""

    def __init__(self, conninfo: bytes) -> None:
        self.pgconn = pq.PGconn.connect_start(conninfo)

    @property
    def asked_for_password(self) -> bool:
        return self.pgconn.needs_password or self.pgconn.used_password

    def run(self, clock: Clock) -> None:
        deadline = clock.monotonic() + _SECONDS
        status: int = pq.PollingStatus.WRITING
        while status in {pq.PollingStatus.READING, pq.PollingStatus.WRITING}:
            if (
                self.pgconn.status == pq.ConnStatus.BAD
                or (left := deadline - clock.monotonic()) < 0
            ):
                return
            poll = select.poll()
            is_reading = status == pq.PollingStatus.READING
            poll.register(self.pgconn.socket, select.POLLIN if is_reading else select.POLLOUT)
            poll.poll(left * 1000)
            status = self.pgconn.connect_poll()

    def close(self) -> None:
        self.pgconn.finish()


@contextmanager
def _traced(pgconn: pq.abc.PGconn) -> Iterator[list[bytes]]:
    """What goes over the connection inside the block, in the list's only place after it."""
    trace = [b""]
    file = os.memfd_create("frazil-trace")
    pgconn.trace(file)
    try:
        yield trace
    finally:
        pgconn.untrace()
        os.lseek(file, 0, os.SEEK_SET)
        trace[0] = os.read(file, os.fstat(file).st_size)
        os.close(file)
