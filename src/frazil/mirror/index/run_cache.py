"""Runs decoded to flat arrays in a local directory, which all tasks of a machine share.

A cached file is Arrow's IPC format without compression, mapped into memory, and a trailer with a
CRC-32 of the file's name and content. It can be lost at any time and is not used before this
process has verified its checksum. Only this user can access the directory.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zlib
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.private_folder import private_folder
from frazil.codec.key_index.entries import Entries
from frazil.hooks import SystemClock
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.hooks import Clock
    from frazil.model.key_index import RunBlob, RunPart

_log = get_logger(__name__)

# Versioned: another format gets another ending.
_ENDING = ".entries1"
_UNFINISHED = ".unfinished"
# A file that is unfinished for this long was left by a process that died.
_LONGEST_WRITE_SECONDS = 3600
# What was used this recently is used again by the next merge: evicting it for another part of the
# same index would make each merge fetch everything.
_IN_USE_SECONDS = 600
# The time of last use is updated at most this often.
_TOUCH_SECONDS = 60
_TRAILER = struct.Struct("<8sI")
_MAGIC = b"frazil01"
# Each is a mapping of some megabytes; the kernel allows 65,530 of them.
_MOST_OPEN = 4096


@dataclass(frozen=True, slots=True)
class BlobKey:
    """The identity of a decoded blob: its location in the store and its checksum."""

    location: str
    offset: int
    length: int
    checksum: int
    entries: int

    @classmethod
    def of(cls, part: RunPart, blob: RunBlob) -> BlobKey:
        """A blob of a run's file."""
        return cls(part.location, blob.offset, blob.length, blob.checksum, blob.entries)

    @property
    def file_name(self) -> str:
        """A name that no other blob has."""
        identity = f"{self.offset}/{self.length}/{self.checksum}/{self.entries}/{self.location}"
        return hashlib.sha256(identity.encode()).hexdigest()[:40] + _ENDING


@cache
def shared_run_cache(directory: str, max_bytes: int) -> RunCache:
    """The one cache of this process for a directory; tasks share its mapped files."""
    return RunCache(Path(directory), max_bytes)


class RunCache:
    """A directory of decoded blobs, kept below ``max_bytes`` by removing the least recently used.

    It never fails: without a writable directory, or without space besides the files in use, blobs
    are decoded each time.
    """

    def __init__(self, directory: Path, max_bytes: int, *, clock: Clock | None = None) -> None:
        self._wanted = directory
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._open: OrderedDict[BlobKey, _Open] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def _directory(self) -> Path | None:
        """A private directory, because a checksum does not prove who wrote a file; else None."""
        try:
            return private_folder(self._wanted)
        except OSError as error:
            _log.warning("index cache is not used", folder=str(self._wanted), reason=str(error))
            return None

    def load(self, key: BlobKey, fetch: Callable[[], Entries]) -> Entries:
        """The entries of the blob, from the cache or else fetched, and then kept there."""
        found = self.find(key)
        if found is not None:
            return found
        fetched = fetch()
        try:
            self._write(key, fetched)
        except OSError:
            return fetched
        # Mapped, so that the kernel can reclaim the memory.
        mapped = self.find(key)
        return fetched if mapped is None else mapped

    def keep(self, key: BlobKey, entries: Entries) -> None:
        """Put the entries of a blob there, which was just written; without space, nothing."""
        with suppress(OSError):
            self._write(key, entries)

    def find(self, key: BlobKey) -> Entries | None:
        """The entries of the blob, if they are cached and undamaged."""
        folder = self._directory
        if folder is None:
            return None
        with self._lock:
            found = self._open.get(key)
        if found is None:
            mapped = _load_mapped(folder / key.file_name, key)
            if mapped is None:
                return None
            found = _Open(mapped, 0.0)
        now = self._clock.now().timestamp()
        if found.used < now - _TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(folder / key.file_name, (now, now))
            found = _Open(found.entries, now)
        with self._lock:
            self._open[key] = found
            self._open.move_to_end(key)
            self._close_unused(now)
        return found.entries

    def _close_unused(self, now: float) -> None:
        """Close unused mappings: a removed file takes its space until then."""
        while self._open:
            oldest, open_ = next(iter(self._open.items()))
            if len(self._open) <= _MOST_OPEN and open_.used >= now - _IN_USE_SECONDS:
                return
            del self._open[oldest]

    def _write(self, key: BlobKey, entries: Entries) -> None:
        content = _as_ipc(entries)
        name, folder = key.file_name, self._directory
        if folder is None or not self._make_space(folder, content.size + _TRAILER.size):
            return
        # Under a temporary name until it is complete: others may be writing the same.
        number, unfinished = tempfile.mkstemp(suffix=_UNFINISHED, dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.write(_TRAILER.pack(_MAGIC, _checksum(name, content)))
            Path(unfinished).replace(folder / name)
        except OSError:
            Path(unfinished).unlink(missing_ok=True)
            raise

    def _make_space(self, folder: Path, size: int) -> bool:
        """Remove the least recently used files until there is space, but none in use."""
        now = self._clock.now().timestamp()
        files = sorted(_files_in(folder))
        total = sum(each.size for each in files) + size
        if size > self._max_bytes:
            return False
        for each in files:
            is_left_over = each.path.endswith(_UNFINISHED)
            spared = _LONGEST_WRITE_SECONDS if is_left_over else _IN_USE_SECONDS
            if (total > self._max_bytes or is_left_over) and each.used < now - spared:
                with suppress(OSError):
                    Path(each.path).unlink()
                    total -= each.size
        return total <= self._max_bytes


@dataclass(frozen=True, slots=True)
class _Open:
    """Entries that are mapped, and when the file was last marked as used."""

    entries: Entries
    used: float


@dataclass(frozen=True, slots=True, order=True)
class _CachedFile:
    """A file of the directory, least recently used first."""

    used: float
    size: int
    path: str


def _files_in(folder: Path) -> Iterator[_CachedFile]:
    with os.scandir(folder) as listed:
        for each in listed:
            # Other processes remove files concurrently.
            with suppress(OSError):
                if each.name.endswith((_ENDING, _UNFINISHED)):
                    facts = each.stat()
                    yield _CachedFile(facts.st_mtime, facts.st_size, each.path)


def _load_mapped(path: Path, key: BlobKey) -> Entries | None:
    try:
        return _mapped(path, key)
    except OSError:
        # Missing, or not readable now.
        return None
    except (KeyError, TypeError, ValueError, pa.ArrowException):
        with suppress(OSError):
            path.unlink()
        return None


def _mapped(path: Path, key: BlobKey) -> Entries:
    with pa.memory_map(str(path)) as file:
        data = file.read_buffer()
    content = data.slice(0, max(data.size - _TRAILER.size, 0))
    expected = _TRAILER.pack(_MAGIC, _checksum(path.name, content))
    if data.slice(content.size).to_pybytes() != expected:
        raise ValueError("the cached file is damaged")
    batch = pa.ipc.open_file(pa.BufferReader(content)).get_batch(0)
    if batch.num_rows != key.entries:
        raise ValueError("the cached file is of another blob")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    sequence = columns.pop("sequence", None)
    arrays = {name: column.to_numpy(zero_copy_only=True) for name, column in columns.items()}
    return Entries(
        arrays["hi"],
        arrays.get("lo"),
        arrays["file"],
        arrays["position"],
        sequence,
        arrays.get("recorded"),
    )


def _as_ipc(entries: Entries) -> pa.Buffer:
    columns = {
        "hi": entries.hi,
        "lo": entries.lo,
        "file": entries.file,
        "position": entries.position,
        "sequence": entries.sequence,
        "recorded": entries.recorded,
    }
    batch = pa.RecordBatch.from_pydict(
        {name: pa.array(column) for name, column in columns.items() if column is not None}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _checksum(name: str, content: pa.Buffer) -> int:
    # Includes the name, so that a renamed file is invalid.
    return zlib.crc32(content, zlib.crc32(name.encode()))
