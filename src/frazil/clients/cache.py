"""Where this machine keeps what was downloaded or built once."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.private_folder import ForeignFolderError
from frazil.errors import RuntimeMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_VARIABLE = "FRAZIL_CACHE"


def cache_directory() -> Path:
    """The machine's cache folder for frazil; not created here."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "frazil"
    return Path.home() / ".cache" / "frazil"


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the file system's refusals into one sentence that names the folder."""
    try:
        yield
    except ForeignFolderError as error:
        message = f"{error}, and frazil would run it."
        raise RuntimeMissingError(
            message, next_step=f"set {CACHE_VARIABLE} to a folder of your own"
        ) from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            problem = "there is no space left"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            problem = "it may not be written"
        else:
            raise
        message = f"cannot write to {folder}: {problem}."
        raise RuntimeMissingError(
            message, next_step=f"free disk space or set {CACHE_VARIABLE} to another folder"
        ) from error
