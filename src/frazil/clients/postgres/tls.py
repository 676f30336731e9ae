"""When a connection to Postgres uses TLS: one rule for the source and for a catalog in Postgres.

TLS is either off or verified in full. It is on for ``require`` and everything stricter, and for
every server elsewhere unless it is said to be off: ``prefer`` would let an attacker in between
choose to have none. A server on this machine is used without it unless it is requested.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OFF = "disable"
VERIFIED = "verify-full"
_LENIENT_MODES = frozenset({"allow", "prefer"})
_USERS_ROOTS = Path(".postgresql") / "root.crt"


def sslmode(requested: str | None, hosts: Iterable[str]) -> str:
    """The mode to connect with, by the requested mode, if any, and the hosts."""
    if requested == OFF:
        return OFF
    is_lenient = requested is None or requested in _LENIENT_MODES
    return OFF if is_lenient and all(map(is_local, hosts)) else VERIFIED


def is_local(host: str) -> bool:
    """Whether a host is this machine; without one, or with a path, it is a socket."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def has_users_roots() -> bool:
    """Whether the user keeps the authorities to trust where libpq and pgjdbc expect them."""
    try:
        return (Path.home() / _USERS_ROOTS).is_file()
    except RuntimeError:
        # A random user without a home, as in a locked-down container.
        return False
