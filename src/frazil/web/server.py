"""The HTTP server in a thread that never delays the work or the exit."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from frazil.config.models.observability import split_listen
from frazil.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from starlette.applications import Starlette

# Requests are probes and scrapes: what has not ended by then is not worth waiting for.
GRACE_SECONDS: Final = 2

# A few scrapers, probes and browsers at once are normal, a hundred are not.
CONNECTIONS: Final = 100
# From the moment a request may come to the last byte of its answer.
REQUEST_SECONDS: Final = 20

_WHY: Final = {
    errno.EADDRINUSE: "it is already in use",
    errno.EACCES: "this user may not use it",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; an empty host means every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def open_socket(address: Address) -> socket.socket:
    """A listening socket. Raises ConfigError, in one sentence, if it cannot be had."""
    try:
        if not address.host:
            return _on_every_interface(address.port)
        family, _, _, _, resolved = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(resolved, family=family)
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror or type(error).__name__)
        message = f"cannot listen on {address}: {why}."
        raise ConfigError(
            message, next_step="choose another address in telemetry.listen."
        ) from error


def bound_address(listening: socket.socket) -> Address:
    """Where a socket really listens, with the port it was given."""
    host, port = listening.getsockname()[:2]
    return Address(host, port)


def _on_every_interface(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


@contextlib.contextmanager
def serving(app: Starlette, listen: str) -> Iterator[Address]:
    """Serve while the block runs; gives the address with the port that was taken.

    Raises ConfigError if the address cannot be had.
    """
    listening = open_socket(Address(*split_listen(listen)))
    server = uvicorn.Server(_config(app))
    thread = threading.Thread(
        target=_serve, args=(server, listening), name="frazil web", daemon=True
    )
    thread.start()
    try:
        # Connections queue at the socket from here on; there is nothing to wait for.
        yield bound_address(listening)
    finally:
        server.should_exit = True
        thread.join(GRACE_SECONDS + 1)
        server.force_exit = True


def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    # Closed here as well, for the case that the server fails before it takes over.
    with listening:
        server.run(sockets=[listening])


class BoundedConnection(H11Protocol):
    """A connection that ends when it is slow, or when it is the oldest of too many.

    A limit that refuses the newest would let a hundred idle connections shut out the
    probes, and Kubernetes would then end a process that works.
    """

    _deadline: asyncio.TimerHandle | None = None
    _accepted_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, and let the oldest go if that is one too many."""
        super().connection_made(transport)
        self._accepted_at = self.loop.time()
        self._expect_request()
        if len(self.connections) > CONNECTIONS:
            # Never this one: while all others are answered it may be a probe whose request comes.
            others = (each for each in self.connections if isinstance(each, BoundedConnection))
            min((each for each in others if each is not self), key=BoundedConnection.worth).end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time that is left."""
        self._forget_deadline()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The time of the next request begins."""
        self._expect_request()
        super().on_response_complete()

    def worth(self) -> tuple[bool, bool, float]:
        """What is closed first: connections without a request, then idle ones, oldest first."""
        has_asked = self.cycle is not None
        is_answering = has_asked and not self.cycle.response_complete
        return is_answering, has_asked, self._accepted_at

    def end(self) -> None:
        """Close it without a response."""
        # No longer counted at once: the event loop reports the loss later.
        self.connections.discard(self)
        self.transport.abort()

    def _expect_request(self) -> None:
        self._forget_deadline()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.end)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Its messages go to the logs of the process.
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=BoundedConnection,
        loop="asyncio",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
