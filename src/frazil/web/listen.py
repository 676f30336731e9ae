"""The address to listen on: parsed, and bound."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from typing import Final

from frazil.errors import ConfigError

HIGHEST_PORT: Final = 65535

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:\s]*)):(?P<port>\d{1,5})")
_WHAT_IS_ALLOWED: Final = (
    "set telemetry.listen to host:port, [ipv6]:port or :port; port 0 takes a free one."
)
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


def parse_address(text: str) -> Address:
    """Read ``127.0.0.1:9093``, ``[::1]:9093``, ``name:9093`` or ``:9093``."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > HIGHEST_PORT:
        message = f"{text!r} is not an address to listen on."
        raise ConfigError(message, next_step=_WHAT_IS_ALLOWED)
    return Address(match["v6"] or match["host"] or "", int(match["port"]))


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
