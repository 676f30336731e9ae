"""Where segments of the spool lie: a folder, or a prefix of an object store on a cluster.

Nothing here is meant to survive the machine. What is lost is sent again, because a slot is
confirmed only when tables have committed; so no file is forced to the disk.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import pyarrow.fs as pf

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles, plan_store
from frazil.clients.private_folder import ForeignFolderError, private_folder
from frazil.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

SUFFIX = ".segment"

_UNFINISHED = ".part"
# They hold rows: only this user may read them.
_FILE_MODE = 0o600
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FREE_SPACE = "free space where source.spool.dir points to, or point it elsewhere"
_OWN_FOLDER = "point source.spool.dir at a folder that only this user may write to"
_CHECK_FOLDER = "check that source.spool.dir can be written to"


class SegmentFile(Protocol):
    """A file that is being written; it cannot be loaded before it is finished."""

    def write(self, data: bytes) -> None:
        """Add to its end; raises StorageError."""

    def finish(self) -> None:
        """Complete it and give it its name; raises StorageError."""

    def abandon(self) -> None:
        """Discard it; raises nothing."""


class NewFiles(Protocol):
    """Creates files."""

    def write(self, name: str) -> SegmentFile:
        """Create a new file; raises StorageError."""


@dataclass(frozen=True, slots=True)
class SpoolFiles:
    """Files of one spool, used by one process; crosses to tasks, where they are loaded.

    A relative folder is made absolute, because tasks run elsewhere.
    """

    location: str
    io_properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        folder = self._folder
        absolute = self.location.rstrip("/") if folder is None else str(folder)
        object.__setattr__(self, "location", absolute)

    def write(self, name: str) -> SegmentFile:
        """Create a new file; raises StorageError."""
        folder = self._folder
        if folder is None:
            return _StoredFile(self._path(name), self.io_properties)
        with _storing(self.location):
            # Tasks load by the location: a folder within it would not be found.
            if private_folder(folder) != folder.resolve():
                message = f"all users may write to {folder}"
                raise ForeignFolderError(message)
            return _LocalFile(folder / name)

    def load(self, name: str) -> bytes:
        """All bytes of a finished file; raises StorageError."""
        return _opened(self.io_properties).read(self._path(name))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already are no error. Raises StorageError."""
        for name in names:
            _created(self.io_properties).remove(self._path(name))

    def clear(self) -> None:
        """Remove every file of a spool from the location, and no other; raises StorageError."""
        found = _opened(self.io_properties).sizes(self.location)
        self.remove(name for name in found if name.endswith((SUFFIX, SUFFIX + _UNFINISHED)))

    @property
    def _folder(self) -> Path | None:
        store = plan_store(self.location, dict(self.io_properties))
        return Path(store.path).absolute() if store.kind is pf.LocalFileSystem else None

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"


class _LocalFile:
    """Written next to its name and renamed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + _UNFINISHED)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file: BinaryIO = os.fdopen(os.open(self._part, flags, _FILE_MODE), "wb")

    def write(self, data: bytes) -> None:
        with _storing(str(self._path)):
            self._file.write(data)

    def finish(self) -> None:
        with _storing(str(self._path)):
            self._file.close()
            self._part.rename(self._path)

    def abandon(self) -> None:
        # Closing writes what is buffered, and a disk that is full refuses that once more.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


class _StoredFile:
    """An object: there is nothing under its name before it is complete."""

    def __init__(self, location: str, io_properties: tuple[tuple[str, str], ...]) -> None:
        self._location = location
        self._files = _created(io_properties)
        self._stream: pa.NativeFile = self._files.create(location)

    def write(self, data: bytes) -> None:
        with _storing(self._location):
            self._stream.write(data)

    def finish(self) -> None:
        with _storing(self._location):
            self._stream.close()

    def abandon(self) -> None:
        # Arrow cannot abort an upload; a segment without its end is refused by all readers.
        with suppress(OSError):
            self._stream.close()
        with suppress(StorageError):
            self._files.remove(self._location)


# A connection to a store is expensive, and neither of these can cross to a task.
@lru_cache(maxsize=4)
def _created(io_properties: tuple[tuple[str, str], ...]) -> OutputFiles:
    return OutputFiles(dict(io_properties))


@lru_cache(maxsize=4)
def _opened(io_properties: tuple[tuple[str, str], ...]) -> InputFiles:
    return InputFiles(dict(io_properties))


@contextmanager
def _storing(location: str) -> Iterator[None]:
    try:
        yield
    except ForeignFolderError as error:
        message = f"the spool is not private: {error}"
        raise StorageError(message, next_step=_OWN_FOLDER) from error
    except OSError as error:
        if error.errno in _FULL:
            message = f"the spool has no space for {location}"
            raise StorageError(message, next_step=_FREE_SPACE) from error
        message = f"the spool cannot be written at {location}"
        raise StorageError(message, next_step=_CHECK_FOLDER) from error
