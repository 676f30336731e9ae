"""The deleted rows of a mirror's data files: deletion vectors and position deletes, as sets."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from frazil.clients.iceberg.file_system import is_missing
from frazil.codec.deletes.deletion_vector import DeletionVector, decode_deletion_vector
from frazil.codec.deletes.position_deletes import decode_position_deletes
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import TailTooShortError, read_footer
from frazil.errors import DamagedIndexError, StorageError
from frazil.model.key_index import DeleteKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.codec.puffin import Footer
    from frazil.model.key_index import DeletePointer, IndexedFile

# Concurrent requests to an object store.
_THREADS = 16
# Vectors this near each other are read together: a request costs as much as that many bytes.
_NEAR = 1 << 18
# The footer of a Puffin file with some thirty vectors; more is read when needed.
_TAIL = 1 << 13
_REFERENCED = "referenced-data-file"
# At most this much per request, so that several threads read one large file.
_LONGEST_STRETCH = 8 << 20
# Cached vectors per process, as stored; decoded they take about the same.
_REMEMBERED_BYTES = 256 << 20


@dataclass(frozen=True)
class _Wanted:
    """The deletes of one data file in one delete file."""

    data_file: str
    pointer: DeletePointer

    @property
    def start(self) -> int:
        """Where its bytes begin; position deletes are entire files."""
        return self.pointer.offset or 0

    @property
    def end(self) -> int:
        """Where they end."""
        return self.start + (self.pointer.length or self.pointer.file_size)


class _Remembered:
    """A cache of decoded sets of this process, least recently used first; files never change."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._vectors: OrderedDict[_Wanted, DeletionVector] = OrderedDict()
        self._lock = Lock()

    def find(self, wanted: _Wanted) -> DeletionVector | None:
        """The set, if it is cached."""
        with self._lock:
            if wanted in self._vectors:
                self._vectors.move_to_end(wanted)
            return self._vectors.get(wanted)

    def keep(self, wanted: _Wanted, vector: DeletionVector) -> None:
        """Cache the set and evict the least recently used ones."""
        with self._lock:
            if wanted not in self._vectors:
                self._vectors[wanted] = vector
                self._bytes += wanted.end - wanted.start
            while self._bytes > self._most_bytes:
                forgotten, _ = self._vectors.popitem(last=False)
                self._bytes -= forgotten.end - forgotten.start


_remembered = _Remembered(_REMEMBERED_BYTES)


def load_deleted(file: IndexedFile, inputs: InputFiles) -> DeletionVector:
    """Everything that is deleted in a data file.

    Raises DamagedIndexError, naming the delete file, when one is missing or does not match the
    index.
    """
    return load_many([file], inputs)[0]


def load_many(files: Sequence[IndexedFile], inputs: InputFiles) -> list[DeletionVector]:
    """Everything that is deleted in each of these data files, in their order.

    Raises DamagedIndexError as ``load_deleted`` does.
    """
    wanted = [_Wanted(file.location, pointer) for file in files for pointer in file.deletes]
    found = {each: vector for each in wanted if (vector := _remembered.find(each)) is not None}
    stretches = list(_stretches([each for each in wanted if each not in found]))
    load = partial(_load_stretch, inputs=inputs)
    if len(stretches) > 1:
        with ThreadPoolExecutor(_THREADS) as pool:
            loaded = list(pool.map(load, stretches))
    else:
        loaded = [load(stretch) for stretch in stretches]
    for vectors in loaded:
        for each, vector in vectors.items():
            _remembered.keep(each, vector)
            found[each] = vector
    return [
        _united([found[_Wanted(file.location, pointer)] for pointer in file.deletes])
        for file in files
    ]


def _united(vectors: list[DeletionVector]) -> DeletionVector:
    return reduce(DeletionVector.union, vectors) if vectors else DeletionVector()


def _stretches(wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    """Group what is read together: neighbours in a Puffin file, everything in another file."""
    files: defaultdict[str, list[_Wanted]] = defaultdict(list)
    for each in dict.fromkeys(wanted):
        files[each.pointer.location].append(each)
    for in_file in files.values():
        stretch: list[_Wanted] = []
        for each in sorted(in_file, key=lambda each: each.start):
            if stretch and not _is_near(stretch, each):
                yield stretch
                stretch = []
            stretch.append(each)
        yield stretch


def _is_near(stretch: list[_Wanted], following: _Wanted) -> bool:
    length = following.end - stretch[0].start
    return following.start - stretch[-1].end <= _NEAR and (
        length <= _LONGEST_STRETCH or following.start == stretch[0].start
    )


def _load_stretch(stretch: list[_Wanted], inputs: InputFiles) -> dict[_Wanted, DeletionVector]:
    pointer = stretch[0].pointer
    with reporting_damage(pointer.location):
        if pointer.kind is DeleteKind.POSITIONS:
            data = inputs.read(pointer.location)
            by_file = decode_position_deletes(data, record_count=pointer.rows)
            return {each: _of_data_file(by_file, each) for each in stretch}
        return _load_vectors(stretch, inputs)


def _load_vectors(stretch: list[_Wanted], inputs: InputFiles) -> dict[_Wanted, DeletionVector]:
    """The vectors of a Puffin file, each only if the file says that it is of that data file.

    A pointer to the vector of another file would decode as well, and could have the same count.
    """
    pointer = stretch[0].pointer
    with inputs.ranges(pointer.location) as read:
        size = pointer.file_size
        # A small file is read completely; of a large one the vectors and the footer.
        content = read(0, size) if size <= _NEAR else b""
        footer = _footer(read, content, size)
        owners = {
            (blob.offset, blob.length): blob.properties.get(_REFERENCED) for blob in footer.blobs
        }
        start, end = stretch[0].start, stretch[-1].end
        data = content[start:end] if content else read(start, end - start)
    for each in stretch:
        if owners.get((each.start, each.end - each.start)) != each.data_file:
            what = "expected a deletion vector of the data file, found none"
            raise MalformedFileError(what, offset=each.start)
    return {
        each: decode_deletion_vector(
            data[each.start - start : each.end - start], cardinality=each.pointer.rows
        )
        for each in stretch
    }


def _footer(read: Callable[[int, int], bytes], content: bytes, size: int) -> Footer:
    tail = content or read(max(size - _TAIL, 0), _TAIL)
    try:
        return read_footer(tail, file_size=size)
    except TailTooShortError as short:
        longer = read(max(size - short.needed, 0), short.needed)
        if len(longer) < short.needed:
            what = f"expected a Puffin file of {size} bytes, found fewer"
            raise MalformedFileError(what, offset=len(longer)) from short
        return read_footer(longer, file_size=size)


def _of_data_file(by_file: dict[str, DeletionVector], wanted: _Wanted) -> DeletionVector:
    vector = by_file.get(wanted.data_file)
    if vector is not None:
        return vector
    # Deletes of a partition need not concern each of its files.
    if wanted.pointer.data_file is None:
        return DeletionVector()
    raise MalformedFileError("expected position deletes of the data file", offset=0)


class LiveRows:
    """Separates live rows from deleted ones; loads the deletes of the files involved."""

    def __init__(self, files: Sequence[IndexedFile], inputs: InputFiles) -> None:
        self._files = sorted(files, key=lambda file: file.ordinal)
        self._ordinals = np.array([file.ordinal for file in self._files], np.int32)
        self._rows = np.array([file.rows for file in self._files], np.int64)
        self._has_deletes = np.array([bool(file.deletes) for file in self._files], np.bool_)
        self._inputs = inputs

    def mask(self, file: NDArray[np.int32], position: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each position whether the table has that file and the row is not deleted.

        Raises DamagedIndexError for a row that its file cannot have.
        """
        if not len(self._files):
            return np.zeros(len(file), np.bool_)
        at = np.searchsorted(self._ordinals, file).clip(max=len(self._ordinals) - 1)
        live: NDArray[np.bool_] = self._ordinals[at] == file
        beyond = live & ((position < 0) | (position >= self._rows[at]))
        if beyond.any():
            location = self._files[int(at[beyond][0])].location
            raise damaged(location, "expected fewer rows than the index names")
        in_question = np.flatnonzero(live & self._has_deletes[at])
        if len(in_question):
            live[in_question] = self._undeleted(at[in_question], position[in_question])
        return live

    def _undeleted(self, at: NDArray[np.intp], position: NDArray[np.int64]) -> NDArray[np.bool_]:
        order = np.argsort(at, kind="stable")
        named, starts = np.unique(at[order], return_index=True)
        vectors = load_many([self._files[each] for each in named.tolist()], self._inputs)
        live = np.ones(len(at), np.bool_)
        for vector, indices in zip(vectors, np.split(order, starts[1:]), strict=True):
            live[indices] = ~is_deleted(vector, position[indices])
        return live


def is_deleted(vector: DeletionVector, position: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each position whether it is in the set; the cost does not depend on the set's size."""
    given = DeletionVector.from_positions(position)
    dead = DeletionVector(given.bitmap & vector.bitmap).positions().astype(np.int64)
    if not len(dead):
        return np.zeros(len(position), np.bool_)
    at = np.searchsorted(dead, position).clip(max=len(dead) - 1)
    found: NDArray[np.bool_] = dead[at] == position
    return found


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
