"""Loopback ports that are free, also a moment later, and one request to what listens there."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from random import SystemRandom
from typing import TYPE_CHECKING

from frazil.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.demo.services.process import Service

LOOPBACK = "127.0.0.1"

# Below every system's range for outgoing connections (Linux 32768, macOS 49152), even with 10000
# added as SeaweedFS does. A port of that range could be taken by any client while a killed
# service is down, and a client that retries such a port may even connect to itself.
_LOWEST, _HIGHEST = 12_000, 22_000

# A port may be taken between our check and the service's bind; three times in a row is not chance.
_ATTEMPTS = 3

# With a thousand services on one machine, still fewer than one in 10^20 searches fails.
_TRIES_PER_PORT = 20

# A service that needs longer is probed again. Not longer, because another process may listen on
# our port and never answer, while our own service has long ended.
_TIMEOUT_SECONDS = 2.0

_OK, _REDIRECT = 200, 300


def is_taken(port: int) -> bool:
    """Whether a process listens on this loopback port, or holds it otherwise."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of a server that has just ended do not count: servers bind over them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def free_ports(count: int, *, offsets: tuple[int, ...] = (0,)) -> tuple[int, ...]:
    """Different ports that are free now, each with all its ``offsets`` added."""
    candidates = SystemRandom().sample(range(_LOWEST, _HIGHEST), count * _TRIES_PER_PORT)
    free = (port for port in candidates if not any(is_taken(port + offset) for offset in offsets))
    found = tuple(port for port, _ in zip(free, range(count), strict=False))
    if len(found) < count:
        message = f"no {count} free ports between {_LOWEST} and {_HIGHEST} on {LOOPBACK}."
        raise ServiceError(message)
    return found


def start_on_free_ports(
    build: Callable[[tuple[int, ...]], Service], *, count: int, offsets: tuple[int, ...] = (0,)
) -> tuple[Service, tuple[int, ...]]:
    """Start a service on ports of its own; if one was taken meanwhile, try others."""
    for attempt in range(1, _ATTEMPTS + 1):
        ports = free_ports(count, offsets=offsets)
        service = build(ports)
        try:
            service.start()
        except ServiceError:
            lost = any(is_taken(port + offset) for port in ports for offset in offsets)
            if attempt == _ATTEMPTS or not lost:
                raise
        else:
            return service, ports
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``status`` is 0 without an answer."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return _OK <= self.status < _REDIRECT

    def field(self, name: str) -> object:
        """One field of a JSON object, or None if there is none."""
        try:
            document = json.loads(self.body)
        except ValueError:
            return None
        return document.get(name) if isinstance(document, dict) else None


def request(
    port: int,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request; a service that is not there yet is an answer, not an error."""
    # Not urllib: it would send loopback requests through a proxy named in the environment.
    connection = HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, HTTPException):
        return Answer(0, b"")
    finally:
        connection.close()


def request_json(port: int, path: str, document: Mapping[str, object]) -> Answer:
    """Send one JSON object."""
    return request(
        port,
        "POST",
        path,
        body=json.dumps(document).encode(),
        headers={"Content-Type": "application/json"},
    )
