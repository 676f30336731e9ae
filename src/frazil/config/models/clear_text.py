"""Addresses to which a secret must not be sent: what goes there can be read on the way."""

import ipaddress
from urllib.parse import urlsplit


def is_clear_text(address: str | None) -> bool:
    """Whether an address is plain ``http://`` to another machine."""
    try:
        parts = urlsplit(address or "")
        return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")
    except ValueError:
        # Not an address, as the validator of its setting says.
        return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by name or by address."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def has_password(address: str | None) -> bool:
    """Whether an address carries a user's password or a token before its host."""
    try:
        return urlsplit(address or "").username is not None
    except ValueError:
        return False
