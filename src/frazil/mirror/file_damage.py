"""How a file that the index names and that cannot be used becomes an error of the family."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_system import is_missing
from frazil.codec.malformed import MalformedFileError
from frazil.errors import DamagedIndexError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def telling_damage(location: str) -> Iterator[None]:
    """A file that is gone or does not decode leaves the block as DamagedIndexError.

    A store that does not answer stays what it is: it says nothing of the index.
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
