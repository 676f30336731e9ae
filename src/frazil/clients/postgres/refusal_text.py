"""Where a connection was to go, and what was said when it did not come about; pure but for DNS.

The message of a refused connection names users, databases and addresses. No row was read yet, so it
holds none; the password is removed wherever it occurs.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PORT = "5432"
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
# Shown once, by us, for all of several addresses.
_WHERE = re.compile(r"(?:connection failed: )?connection to server (?:at|on) .*? failed: ")
# Messages that come from elsewhere stay short.
_LONGEST = 400


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
