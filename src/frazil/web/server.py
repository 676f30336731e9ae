"""Serving beside the loop, in a thread that never holds up the work or the exit."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

import uvicorn

from frazil.web.listen import bound_address, open_socket, parse_address

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from starlette.applications import Starlette

    from frazil.web.listen import Address

# Requests are probes and scrapes: what has not ended by then is not worth waiting for.
GRACE_SECONDS: Final = 2

# A few scrapers and probes at once are normal, a hundred are not.
CONNECTIONS: Final = 100


@contextlib.contextmanager
def serving(app: Starlette, listen: str) -> Iterator[Address]:
    """Serve while the block runs; gives the address with the port that was taken.

    Raises ConfigError if the address is malformed or cannot be had.
    """
    listening = open_socket(parse_address(listen))
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


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # What it says goes to the process's own logs.
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
