"""Errors for a file of the index that cannot be used."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_system import is_missing
from frazil.codec.malformed import MalformedFileError
from frazil.errors import DamagedIndexError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def reporting_damage(location: str) -> Iterator[None]:
    """Raise DamagedIndexError for a file that is missing or does not decode.

    An unavailable store stays a StorageError: the index may be fine.
    """
    try:
        yield
    except MalformedFileError as error:
        raise damaged(location, error.what) from error
    except StorageError as error:
        if is_missing(error):
            raise damaged(location, "expected a file, found none") from error
        raise


def damaged(location: str, what: str) -> DamagedIndexError:
    """The error that names the file and what is wrong with it."""
    message = f"the file {location} cannot be used: {what}."
    return DamagedIndexError(message, next_step="frazil index rebuild")
