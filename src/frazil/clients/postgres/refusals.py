"""Why a server would not let us in.

libpq gives the reason of a failed connection as a sentence in the server's language, and programs
must not read sentences. So one more attempt is made with libpq's trace switched on, which shows the
code of the answer. The trace is kept in memory and forgotten at once.
"""

from __future__ import annotations

import os
import re
import select
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import pq
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.hooks import Clock

# The server has just answered, so it will again soon.
_SECONDS = 5.0
# The fields of an answer, each a letter and a text in quotes; C is the code.
_CODE = re.compile(rb'\tErrorResponse\t.*? C "([0-9A-Z]{5})" M ')
_GOING_ON = frozenset({pq.PollingStatus.READING, pq.PollingStatus.WRITING})
_NOT_CONNECTED = frozenset({pq.ConnStatus.STARTED, pq.ConnStatus.BAD})

INVALID_PASSWORD = "28P01"  # noqa: S105 - a code, not a password


@dataclass(frozen=True, slots=True)
class Refusal:
    """Whether the server answered at all, and the SQLSTATE of the answer if it had one."""

    was_answered: bool
    state: str | None


def load_refusal(parameters: Mapping[str, str], *, clock: Clock) -> Refusal:
    """Try the connection that failed again, for its reason."""
    with closing(_Attempt(make_conninfo(**parameters).encode())) as attempt:
        attempt.run(clock)
        return Refusal(attempt.was_answered, attempt.state)


class _Attempt:
    """A connection being made; whatever comes of it, it is closed."""

    def __init__(self, conninfo: bytes) -> None:
        self._pgconn = pq.PGconn.connect_start(conninfo)
        self._trace: int | None = None
        self.was_answered = False

    def run(self, clock: Clock) -> None:
        """Go on until it is made or has failed, or the time is up."""
        deadline = clock.monotonic() + _SECONDS
        status: int = pq.PollingStatus.WRITING
        while status in _GOING_ON and self._pgconn.status != pq.ConnStatus.BAD:
            left = deadline - clock.monotonic()
            if left < 0:
                return
            poll = select.poll()
            is_reading = status == pq.PollingStatus.READING
            poll.register(self._pgconn.socket, select.POLLIN if is_reading else select.POLLOUT)
            poll.poll(left * 1000)
            status = self._pgconn.connect_poll()
            self._listen()

    def _listen(self) -> None:
        """Switch the trace on once there is a peer: libpq never frees what it needs for it."""
        if self.was_answered or self._pgconn.status in _NOT_CONNECTED:
            return
        self.was_answered = True
        if hasattr(os, "memfd_create"):
            self._trace = os.memfd_create("frazil-trace")
            self._pgconn.trace(self._trace)

    @property
    def state(self) -> str | None:
        """The code of the answer; of several hosts, the last one's."""
        if self._trace is None:
            # No trace on this system, or no peer. That a password was requested says enough.
            requested = self._pgconn.needs_password or self._pgconn.used_password
            return INVALID_PASSWORD if requested else None
        # This also writes out what libpq still holds back.
        self._pgconn.untrace()
        traced = os.pread(self._trace, os.fstat(self._trace).st_size, 0)
        codes = _CODE.findall(traced)
        return codes[-1].decode() if codes else None

    def close(self) -> None:
        """End it, and forget the trace."""
        self._pgconn.finish()
        if self._trace is not None:
            os.close(self._trace)
