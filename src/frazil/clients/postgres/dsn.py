"""A connection string becomes libpq's parameters, with everything pinned that must not vary.

Whether TLS is used is decided in ``tls``.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict

from frazil.clients.postgres import tls
from frazil.codec.pgtext.convert import SESSION_SETTINGS
from frazil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

# A server that has not answered by then is away; the recovery tries again.
CONNECT_SECONDS = 10
# A peer that vanished silently is noticed after a minute, not after the system's two hours.
_NETWORK = MappingProxyType(
    {
        "keepalives": "1",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
        "connect_timeout": str(CONNECT_SECONDS),
    }
)
# What a role or a database may set otherwise: the text of values, whose form the codec knows, and
# what would change which rows come, or whether they do. The empty path among the first also keeps a
# user's function from hiding the server's own.
_PINNED = MappingProxyType(
    {
        **SESSION_SETTINGS,
        "standard_conforming_strings": "on",
        # A policy is then an error and not a row that is missing.
        "row_security": "off",
        # A row filter is written into queries: what it means is not up to the session.
        "transform_null_equals": "off",
        "gin_fuzzy_search_limit": "0",
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "exit_on_error": "off",
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
)


class SecretText(Protocol):
    """A secret that is shown only on request."""

    def get_secret_value(self) -> str:
        """The secret."""


class SessionAccess(Enum):
    """What a session may do."""

    READ_ONLY = "on"
    READ_WRITE = "off"


def session_parameters(
    dsn: SecretText, *, purpose: str, access: SessionAccess, lock_patience: timedelta
) -> dict[str, str]:
    """The parameters of an ordinary session. Raises ConfigError, without showing the string."""
    settings = {"default_transaction_read_only": access.value}
    return _parameters(dsn, purpose=purpose, lock_patience=lock_patience, settings=settings)


def replication_parameters(
    dsn: SecretText, *, purpose: str, lock_patience: timedelta
) -> dict[str, str]:
    """The parameters of a connection for replication commands. Raises as above."""
    common = _parameters(dsn, purpose=purpose, lock_patience=lock_patience, settings={})
    return {**common, "replication": "database"}


def _parameters(
    dsn: SecretText, *, purpose: str, lock_patience: timedelta, settings: Mapping[str, str]
) -> dict[str, str]:
    given = _parse(dsn)
    milliseconds = int(lock_patience / timedelta(milliseconds=1))
    pinned = {**_PINNED, "lock_timeout": str(milliseconds), **settings}
    # The last value of a setting counts.
    options = [given.get("options", ""), *(_option(name, pinned[name]) for name in pinned)]
    return {
        **_NETWORK,
        "fallback_application_name": f"frazil {purpose}",
        **given,
        **tls_parameters(given),
        # The driver goes by the parameter, whatever the options say.
        "client_encoding": SESSION_SETTINGS["client_encoding"],
        "options": " ".join(filter(None, options)),
    }


def _option(name: str, value: str) -> str:
    # The server takes options apart at spaces.
    return f"-c {name}={value.replace(' ', chr(92) + ' ')}"


def _parse(dsn: SecretText) -> dict[str, str]:
    try:
        parsed = conninfo_to_dict(dsn.get_secret_value())
    except Error:
        parsed = None
    # Outside the block: the driver's message quotes the string, password included.
    if parsed is None:
        raise ConfigError(
            "the connection string of Postgres cannot be read.",
            next_step="write it as postgresql://user:password@host:5432/database",
        )
    return {name: str(value) for name, value in parsed.items() if value is not None}


def tls_parameters(given: Mapping[str, str]) -> dict[str, str]:
    """Whether these parameters, with those of the environment, mean TLS, and then how strictly."""
    known = {**_defaults(), **given}
    hosts = (known.get("hostaddr") or known.get("host", "")).split(",")
    # Where a service leads is its own file's secret: not to be taken for this machine.
    mode = tls.sslmode(known.get("sslmode"), ["service"] if "service" in known else hosts)
    if mode == tls.OFF or "sslrootcert" in known or tls.has_users_roots():
        return {"sslmode": mode}
    return {"sslmode": mode, "sslrootcert": "system"}


def _defaults() -> dict[str, str]:
    """What libpq takes from the environment."""
    defaults = pq.Conninfo.get_defaults()
    return {each.keyword.decode(): each.val.decode() for each in defaults if each.val}
