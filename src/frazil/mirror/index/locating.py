"""Locates keys in a mirror with the key index, inside a Spark task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Semaphore
from typing import TYPE_CHECKING

import numpy as np

from frazil.clients.iceberg.file_system import InputFiles
from frazil.codec.key_index.entries import (
    Entries,
    bucket_bounds,
    concatenate_sequences,
    in_groups,
    rank_sequences,
    select_sequences,
)
from frazil.codec.key_index.run import ROW_GROUP_ROWS, RunBlobReader, decode_run
from frazil.codec.malformed import MalformedFileError
from frazil.mirror.deleted_rows import LiveRows, reporting_damage
from frazil.mirror.index.run_cache import BlobKey, shared_run_cache
from frazil.mirror.index.run_merging import fetch_blob, rebased_ordinals
from frazil.model.key_index import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from frazil.codec.key_index.entries import Selection
    from frazil.model.key_index import IndexedFile, IndexRun, RunBlob, RunPart

# Concurrent requests to an object store.
_THREADS = 16
# Of these, complete blobs: each takes some seventy megabytes until it is cached.
_FULL_BLOBS = 4
# An uncached blob is fetched completely when its keys may touch more than this fraction of its row
# groups: the rest costs little more, and is cached for the next time.
_FEW_KEYS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIndex:
    """The index in the form that tasks search; picklable. Has credentials, which ``repr`` hides.

    ``young`` is a blob of the head, verified with it. ``cache_dir`` is a directory of the machine
    that runs the task.
    """

    runs: tuple[IndexRun, ...]
    young: bytes | None = field(repr=False)
    files: tuple[IndexedFile, ...]
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)
    cache_dir: str
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The live rows of the given keys, sorted by the number of the key.

    If entries have sequences, ``sequence`` has that of each row, and the tombstones have the newest
    of each key.
    """

    key: NDArray[np.intp]
    file: NDArray[np.int32]
    position: NDArray[np.int64]
    sequence: pa.Array | None = None
    tombstone_key: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    tombstone_sequence: pa.Array | None = None

    def of_keys(self, wanted: NDArray[np.bool_]) -> LocatedRows:
        """The rows of the keys selected by the mask; the keys keep their numbers."""
        rows, tombstones = wanted[self.key], wanted[self.tombstone_key]
        return LocatedRows(
            self.key[rows],
            self.file[rows],
            self.position[rows],
            _selected(self.sequence, rows),
            self.tombstone_key[tombstones],
            _selected(self.tombstone_sequence, tombstones),
        )

    def for_changes(self, owners: NDArray[np.intp]) -> LocatedRows:
        """The rows for each of several changes, given the number of their key, by change.

        A key may have many changes; they are in the order of their keys.
        """
        key, rows = _expanded(self.key, owners)
        tombstone_key, tombstones = _expanded(self.tombstone_key, owners)
        return LocatedRows(
            key,
            self.file[rows],
            self.position[rows],
            _selected(self.sequence, rows),
            tombstone_key,
            _selected(self.tombstone_sequence, tombstones),
        )


def _expanded(
    keys: NDArray[np.intp], owners: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each change the indices of its key's rows; both are sorted."""
    starts = np.searchsorted(keys, owners)
    counts = np.searchsorted(keys, owners, side="right") - starts
    change = np.repeat(np.arange(len(owners)), counts)
    indices = np.arange(len(change)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return change, indices


def _selected(sequence: pa.Array | None, chosen: Selection) -> pa.Array | None:
    return None if sequence is None else select_sequences(sequence, chosen)


@dataclass(frozen=True, slots=True)
class _BlobRef:
    """One blob of one run."""

    run: IndexRun
    part: RunPart
    blob: RunBlob

    @property
    def key(self) -> BlobKey:
        return BlobKey.of(self.part, self.blob)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Entries of the given keys, each with the number of its key."""

    key: NDArray[np.intp]
    file: NDArray[np.int32]
    position: NDArray[np.int64]
    sequence: pa.Array | None

    @classmethod
    def concatenate(cls, parts: list[_Candidates]) -> _Candidates:
        """All of them; raises MalformedFileError when only some carry sequences."""
        filled = [part for part in parts if len(part.key)] or parts[:1]
        sequences = [part.sequence for part in filled if part.sequence is not None]
        if len(sequences) not in {0, len(filled)}:
            raise MalformedFileError("expected sequences in all runs or in none", offset=0)
        return cls(
            np.concatenate([part.key for part in filled]),
            np.concatenate([part.file for part in filled]),
            np.concatenate([part.position for part in filled]),
            concatenate_sequences(sequences) if sequences else None,
        )

    def take(self, indices: NDArray[np.intp]) -> _Candidates:
        """Those at these indices, in their order."""
        return _Candidates(
            self.key[indices],
            self.file[indices],
            self.position[indices],
            _selected(self.sequence, indices),
        )


class KeyLocator:
    """Locates keys in all runs of an index; one per task."""

    def __init__(self, index: TaskIndex) -> None:
        self._index = index
        self._inputs = InputFiles(dict(index.io_properties))
        self._cache = shared_run_cache(index.cache_dir, index.cache_bytes)
        self._live = LiveRows(index.files, self._inputs)
        self._decoding = Semaphore(_FULL_BLOBS)
        with reporting_damage("with the young run"):
            self._young = Entries.empty() if index.young is None else decode_run(index.young)

    def locate(self, hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> LocatedRows:
        """Every live row of these keys, which are unique and sorted as unsigned numbers.

        Raises DamagedIndexError, naming the file, when a part of the index or a delete file is
        missing or damaged.
        """
        if hi.dtype != np.uint64 or lo.dtype != np.uint64:
            raise TypeError("hashes are unsigned: NumPy would compare others as floats")
        with reporting_damage("of one of the runs"):
            found = _Candidates.concatenate(
                [_matches(self._young, hi, lo, 0), *self._in_runs(hi, lo)]
            )
        is_tombstone = found.file == TOMBSTONE
        rows = found.take(np.flatnonzero(~is_tombstone)) if is_tombstone.any() else found
        rows = rows.take(np.flatnonzero(self._live.mask(rows.file, rows.position)))
        rows = rows.take(_distinct(rows))
        dead = _newest(found.take(np.flatnonzero(is_tombstone)))
        return LocatedRows(
            rows.key, rows.file, rows.position, rows.sequence, dead.key, dead.sequence
        )

    def _in_runs(self, hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> list[_Candidates]:
        def search(blob: tuple[_BlobRef, slice]) -> _Candidates:
            ref, keys = blob
            entries = self._load(ref, hi[keys])
            found = _matches(entries, hi[keys], lo[keys], keys.start)
            return replace(found, file=rebased_ordinals(found.file, ref.run.first_ordinal))

        blobs = list(self._blobs_to_search(hi))
        if len(blobs) < 2:  # noqa: PLR2004 - one blob needs no second thread
            return [search(each) for each in blobs]
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(search, blobs))

    def _blobs_to_search(self, hi: NDArray[np.uint64]) -> Iterator[tuple[_BlobRef, slice]]:
        """The blobs whose bucket has keys, each with those keys."""
        for run in self._index.runs:
            starts, ends = bucket_bounds(hi, run.bits)
            for part in run.parts:
                for blob in part.blobs:
                    if not 0 <= blob.bucket < len(starts):
                        raise MalformedFileError("expected a bucket of the run", offset=0)
                    keys = slice(int(starts[blob.bucket]), int(ends[blob.bucket]))
                    if keys.start < keys.stop:
                        yield _BlobRef(run, part, blob), keys

    def _load(self, ref: _BlobRef, hi: NDArray[np.uint64]) -> Entries:
        """At least the entries with these hashes."""
        cached = self._cache.find(ref.key)
        if cached is not None:
            return cached
        if len(hi) * _FEW_KEYS <= ref.blob.entries // ROW_GROUP_ROWS:
            return self._load_few(ref, hi)
        with self._decoding:
            return self._cache.load(
                ref.key, lambda: fetch_blob(ref.run, ref.part, ref.blob, self._inputs)
            )

    def _load_few(self, ref: _BlobRef, hi: NDArray[np.uint64]) -> Entries:
        location, start = ref.part.location, ref.blob.offset
        with reporting_damage(location), self._inputs.ranges(location) as read:
            reader = RunBlobReader(
                lambda offset, length: read(start + offset, length),
                ref.blob,
                bits=ref.run.bits,
            )
            return reader.load(hi)


def _matches(
    entries: Entries, hi: NDArray[np.uint64], lo: NDArray[np.uint64], first: int
) -> _Candidates:
    """The entries that have one of these hashes; ``first`` is the number of the first hash."""
    starts, ends = _ranges(entries, hi, lo)
    counts = ends - starts
    matched = np.flatnonzero(counts)
    if len(matched) == int(counts.sum()):
        key, indices = matched, starts[matched]
    else:
        key = np.repeat(np.arange(len(hi)), counts)
        # The index of each entry: its offset in its range, plus the start of that range.
        indices = np.arange(len(key)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return _Candidates(
        key + first,
        entries.file[indices],
        entries.position[indices],
        _selected(entries.sequence, indices),
    )


def _ranges(
    entries: Entries, hi: NDArray[np.uint64], lo: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each hash where its entries start and end."""
    starts = np.searchsorted(entries.hi, hi)
    ends = starts.copy()
    hits = np.flatnonzero(starts < len(entries))
    hits = hits[entries.hi[starts[hits]] == hi[hits]]
    ends[hits] += 1
    many = hits[ends[hits] < len(entries)]
    many = many[entries.hi[ends[many]] == hi[many]]
    ends[many] = np.searchsorted(entries.hi, hi[many], side="right")
    if entries.lo is None:
        # All lower halves are zero, and so must be those in the index.
        ends[hits] = np.where(lo[hits] == 0, ends[hits], starts[hits])
        return starts, ends
    single = hits[ends[hits] - starts[hits] == 1]
    ends[single] -= entries.lo[starts[single]] != lo[single]
    # Millions of UUIDs may share their upper half.
    within = starts[many], ends[many]
    starts[many] = _bisect(entries.lo, lo[many], *within, right=False)
    ends[many] = _bisect(entries.lo, lo[many], *within, right=True)
    return starts, ends


def _bisect(
    values: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    starts: NDArray[np.intp],
    ends: NDArray[np.intp],
    *,
    right: bool,
) -> NDArray[np.intp]:
    """``searchsorted`` of each number in its own range."""
    starts, ends = starts.copy(), ends.copy()
    while (open_ := np.flatnonzero(starts < ends)).size:
        middle = (starts[open_] + ends[open_]) // 2
        found, sought = values[middle], wanted[open_]
        below = found <= sought if right else found < sought
        starts[open_[below]] = middle[below] + 1
        ends[open_[~below]] = middle[~below]
    return starts


def _distinct(rows: _Candidates) -> NDArray[np.intp]:
    """The indices of the rows by key, each row once, even if several runs have it."""
    order = np.argsort(rows.key, kind="stable")
    key = rows.key[order]
    tied = in_groups(key[1:] == key[:-1])
    if not tied.any():
        return order
    indices = order[tied]
    by = (rows.position[indices], rows.file[indices], rows.key[indices])
    order[tied] = indices[np.lexsort(by)]
    sorted_ = rows.take(order)
    repeated = np.zeros(len(order), np.bool_)
    repeated[1:] = (
        (sorted_.key[1:] == sorted_.key[:-1])
        & (sorted_.file[1:] == sorted_.file[:-1])
        & (sorted_.position[1:] == sorted_.position[:-1])
    )
    return order[~repeated]


def _newest(tombstones: _Candidates) -> _Candidates:
    """The tombstone with the highest sequence of each key."""
    if tombstones.sequence is None or not len(tombstones.key):
        return tombstones
    order = np.lexsort((rank_sequences(tombstones.sequence), tombstones.key))
    key = tombstones.key[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = key[1:] != key[:-1]
    return tombstones.take(order[is_last])
