"""Errors for changes that cannot be merged, with counts and never with values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.errors import (
    DuplicateKeyError,
    MalformedChangeError,
    MissingImageError,
    NullKeyError,
)
from frazil.model.command import command

if TYPE_CHECKING:
    from collections.abc import Iterator

APPEND_STEP = "set order: append for this table"


@contextmanager
def naming_repairs(table: str) -> Iterator[None]:
    """Add the repair command to a task's error; a task does not know the name of the mirror."""
    try:
        yield
    except MissingImageError as error:
        error.next_step = error.next_step or command("resync", table)
        raise
    except DuplicateKeyError as error:
        repair = (
            f"correct the changes whose key and sequence repeat, then {command('resync', table)}"
        )
        error.next_step = error.next_step or repair
        raise
    except NullKeyError as error:
        repair = f"choose another key, or correct the changes, then {command('resync', table)}"
        error.next_step = error.next_step or repair
        raise


def unknown_operations(count: int) -> MalformedChangeError:
    """The operation column has unknown values."""
    message = f"{count} rows have an operation that is not known."
    return MalformedChangeError(message, next_step="name the right column in tables[].operation")


def missing_sequences(count: int) -> MalformedChangeError:
    """The sequence column has nulls."""
    message = f"{count} rows have no sequence."
    return MalformedChangeError(message, next_step="name the right column in tables[].sequence")


def null_keys(count: int) -> NullKeyError:
    """A key column has nulls."""
    error = NullKeyError(f"{count} changes have a null in a key column.")
    error.in_changes = True
    return error


def partial_rows(count: int) -> MissingImageError:
    """Columns were left out, and with order per_key the previous row is not known."""
    message = f"{count} rows left columns out, which order per_key cannot complete."
    return MissingImageError(message, next_step=APPEND_STEP)
