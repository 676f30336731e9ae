"""Connections to PostgreSQL, all made in the same way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

from frazil import errors
from frazil.clients.postgres.dsn import SessionAccess, replication_parameters, session_parameters
from frazil.clients.postgres.refusals import address_of, load_refusal, plain_text, unknown_hosts
from frazil.clients.postgres.session import Session
from frazil.clients.postgres.translation import translate_state, translated
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.postgres.dsn import SecretText
    from frazil.errors import FrazilError
    from frazil.hooks import Clock

# Longer than most changes of a table take; a lock that is held longer is waited for with back-off.
LOCK_PATIENCE = timedelta(seconds=30)

# The version from which on a role or a database can bound the time of a transaction.
_TIMED_TRANSACTIONS = 170000
_CLOCK = SystemClock()
_ADDRESS = "check host and port in source.dsn, and whether the server runs"
_TLS = "if it has no trusted certificate, set sslrootcert, or sslmode=disable, in source.dsn"


def connect(
    dsn: SecretText,
    *,
    purpose: str,
    access: SessionAccess = SessionAccess.READ_ONLY,
    lock_patience: timedelta = LOCK_PATIENCE,
    clock: Clock = _CLOCK,
) -> Session:
    """A session with pinned settings; ``purpose`` is what administrators see it is for.

    Raises SourceUnavailableError, PermissionError, or ConfigError for a string or a database that
    cannot be right; no message holds the string.
    """
    parameters = session_parameters(
        dsn, purpose=purpose, access=access, lock_patience=lock_patience
    )
    return Session(open_connection(parameters, clock=clock))


def open_replication(
    dsn: SecretText, *, purpose: str, lock_patience: timedelta, clock: Clock = _CLOCK
) -> psycopg.Connection:
    """A raw connection for replication commands; ``replication`` makes something of it."""
    parameters = replication_parameters(dsn, purpose=purpose, lock_patience=lock_patience)
    return open_connection(parameters, clock=clock)


def open_connection(parameters: Mapping[str, str], *, clock: Clock) -> psycopg.Connection:
    """Connect with exactly these parameters."""
    # Statements prepared on the server get lost behind a pooler.
    connection, timed_out, reason = None, False, ""
    try:
        connection = psycopg.connect(
            make_conninfo(**parameters), autocommit=True, prepare_threshold=None
        )
    except psycopg.Error as error:
        timed_out = isinstance(error, psycopg.errors.ConnectionTimeout)
        reason = plain_text(str(error), parameters)
    # Outside the block, because that error holds the password.
    if connection is None:
        raise _refusal(parameters, timed_out=timed_out, reason=reason, clock=clock)
    if connection.info.server_version >= _TIMED_TRANSACTIONS:
        _lift_timeout(connection)
    return connection


def _lift_timeout(connection: psycopg.Connection) -> None:
    """Let a copy take its time; older servers would refuse the setting among the parameters."""
    try:
        with translated("connecting to Postgres"):
            connection.execute("set transaction_timeout to 0")
    except BaseException:
        connection.close()
        raise


def _refusal(
    parameters: Mapping[str, str], *, timed_out: bool, reason: str, clock: Clock
) -> FrazilError:
    """Why no connection came about, with the address and what the other side said about it."""
    doing = f"connecting to Postgres at {address_of(parameters)}"
    if timed_out:
        message = f"{doing} failed: the server does not answer in time."
        return errors.SourceUnavailableError(message, next_step=_ADDRESS)
    unknown = unknown_hosts(parameters)
    if unknown:
        message = f"{doing} failed: the host {', '.join(unknown)} is unknown{_quoted(reason)}."
        return errors.SourceUnavailableError(message, next_step="correct the host in source.dsn")
    refusal = load_refusal(parameters, clock=clock)
    if refusal.state is not None:
        return translate_state(refusal.state, doing=doing, reason=reason)
    if not refusal.was_answered:
        message = f"{doing} failed: the server does not answer{_quoted(reason)}."
        return errors.SourceUnavailableError(message, next_step=_ADDRESS)
    if parameters.get("sslmode") == "disable":
        message = f"{doing} failed: the server answers and refuses{_quoted(reason)}."
        return errors.SourceUnavailableError(message, next_step=_ADDRESS)
    message = f"{doing} failed: the server answers, but not with TLS as it should{_quoted(reason)}."
    return errors.SourceUnavailableError(message, next_step=_TLS)


def _quoted(reason: str) -> str:
    return f" ({reason})" if reason else ""
