"""The driver's exceptions become errors of the family, by their SQLSTATE and never by their text.

A message names what was being done, the driver's class and the SQLSTATE. The text of the exception
may quote a row, and the exception holds the connection with its password, so it is left behind.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

import psycopg

from frazil import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.errors import FrazilError

OBJECT_IN_USE = "55006"
NOT_IN_PREREQUISITE_STATE = "55000"
UNDEFINED_OBJECT = "42704"
UNDEFINED_FILE = "58P01"
UNKNOWN_DATABASE = "3D000"
INSUFFICIENT_PRIVILEGE = "42501"
LOCK_NOT_AVAILABLE = "55P03"
INVALID_PARAMETER = "22023"
DUPLICATE_OBJECT = "42710"
UNDEFINED_TABLE = "42P01"
UNDEFINED_COLUMN = "42703"

# By code first, then by the class that is its first two characters.
_REFUSED = frozenset({INSUFFICIENT_PRIVILEGE, "28"})
_PASSING = frozenset(
    {
        "08",  # The connection broke.
        "53",  # The server has no connection, memory or disk to spare.
        "57",  # It shuts down, starts up, or an operator ended our session.
        "58",  # Its operating system failed it.
        "25P03",  # The transaction was idle for too long.
        "25P04",  # The transaction took too long.
        "40",  # Two transactions conflicted.
        LOCK_NOT_AVAILABLE,
    }
)


@contextmanager
def translated(
    doing: str, *, meanings: Mapping[str, type[FrazilError]] = MappingProxyType({})
) -> Iterator[None]:
    """Whatever the driver raises inside the block leaves it as an error of ours.

    ``meanings`` says what an SQLSTATE means for this very command, where that is special.
    """
    failed = None
    try:
        yield
    except psycopg.Error as error:
        failed = translate(error, doing=doing, meanings=meanings)
    if failed is not None:
        # The exception being handled by our caller would be printed along otherwise.
        raise failed from None


def translate(
    error: psycopg.Error, *, doing: str, meanings: Mapping[str, type[FrazilError]] | None = None
) -> FrazilError:
    """The error of ours that says the same."""
    state = error.sqlstate
    if state is None:
        return _without_state(error, doing)
    return translate_state(state, doing=doing, meanings=meanings)


def translate_state(
    state: str,
    *,
    doing: str,
    meanings: Mapping[str, type[FrazilError]] | None = None,
    reason: str = "",
) -> FrazilError:
    """The error of ours for what the server answered, with its own message if it may be shown."""
    said = f": {reason}" if reason else ""
    found = f"{doing} failed: {_name(state)} ({state}){said}."
    if meanings is not None and state in meanings:
        return meanings[state](found)
    if {state, state[:2]} & _REFUSED:
        return errors.PermissionError(found, next_step="frazil check")
    if state == UNKNOWN_DATABASE:
        return errors.ConfigError(found, next_step="correct the database in source.dsn")
    if state == OBJECT_IN_USE:
        return errors.SlotBusyError(found)
    if {state, state[:2]} & _PASSING:
        return errors.SourceUnavailableError(found)
    # The server understood and said no; saying it again changes nothing.
    return errors.PermissionError(found, next_step="frazil check")


def _without_state(error: psycopg.Error, doing: str) -> FrazilError:
    """What libpq found by itself: a connection that broke, or could not be made."""
    return errors.SourceUnavailableError(f"{doing} failed: {type(error).__name__}.")


def _name(state: str) -> str:
    try:
        return psycopg.errors.lookup(state).__name__
    except KeyError:
        return "an error of the server"
