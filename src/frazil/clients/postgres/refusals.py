"""Why a server would not let us in.

libpq gives the reason of a failed connection as a sentence in the server's language, and programs
must not read sentences. So one more attempt is made with libpq's trace switched on, which shows the
code of the answer. The trace is kept in memory and forgotten at once. The sentence is shown to
people: it names users, databases and addresses. No row was read yet, so it holds none; the password
is removed wherever it occurs.
"""

from __future__ import annotations

import os
import re
import select
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import pq
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.hooks import Clock

# The server has just answered, so it will again soon.
_SECONDS = 5.0
# The fields of an answer, each a letter and a text in quotes; C is the code.
_CODE = re.compile(rb'\tErrorResponse\t.*? C "([0-9A-Z]{5})" M ')
_GOING_ON = frozenset({pq.PollingStatus.READING, pq.PollingStatus.WRITING})
_NOT_CONNECTED = frozenset({pq.ConnStatus.STARTED, pq.ConnStatus.BAD})

INVALID_PASSWORD = "28P01"  # noqa: S105 - a code, not a password
_PORT = "5432"
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
# Shown once, by us, for all of several addresses.
_WHERE = re.compile(r"(?:connection failed: )?connection to server (?:at|on) .*? failed: ")
# Messages that come from elsewhere stay short.
_LONGEST = 400


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


def address_of(parameters: Mapping[str, str]) -> str:
    """Host and port, each of them where there are several."""
    return ", ".join(
        f"{host or 'the local socket'}:{port}" for host, port in _addresses(parameters)
    )


def unknown_hosts(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts if none of them has an address; none if any has one."""
    hosts = [host for host, _ in _addresses(parameters)]
    if any(map(_has_address, hosts)):
        return ()
    return tuple(hosts)


def plain_text(text: str, parameters: Mapping[str, str]) -> str:
    """What was said, on one line, without secrets."""
    lines = [_WHERE.sub("", line.strip()) for line in text.splitlines()]
    said = "; ".join(dict.fromkeys(line for line in lines if line)).rstrip(".")
    for name in _SECRETS:
        if parameters.get(name):
            said = said.replace(parameters[name], "***")
    printable = "".join(each if each.isprintable() else " " for each in said)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}…"


def _addresses(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    defaults = pq.Conninfo.get_defaults()
    known = {each.keyword.decode(): each.val.decode() for each in defaults if each.val}
    known |= parameters
    hosts = (known.get("host") or known.get("hostaddr") or "").split(",")
    ports = (known.get("port") or _PORT).split(",")
    for at, host in enumerate(hosts):
        # One port is that of all hosts.
        yield host, (ports[at] if len(ports) > 1 and at < len(ports) else ports[0]) or _PORT


def _has_address(host: str) -> bool:
    if not host or host.startswith(("/", "@")):
        return True
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True
