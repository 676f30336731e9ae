"""Which runs of an index are merged and how they are split; fetching and merging their entries."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.key_index.entries import Entries, bucket_bounds, rank_sequences
from frazil.codec.key_index.run import decode_run
from frazil.mirror.deleted_rows import LiveRows, reporting_damage
from frazil.model.key_index import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.model.key_index import IndexedFile, IndexRun, RunBlob, RunPart

# Ten to twenty megabytes in the store: worth a request, small enough to decode in one step.
_BUCKET_ENTRIES = 1 << 20
# Parts are listed in the head; this is enough for any realistic number of entries.
_MOST_BITS = 16
# Times ``max_runs``: with more runs than that, lookups cost more than merging them.
_MOST_RUNS = 8
# A run joins smaller ones that have at least a quarter of its entries together.
_WORTHWHILE = 4


def merge_entries(
    parts: Sequence[Entries],
    *,
    files: Sequence[IndexedFile],
    inputs: InputFiles,
    tombstones_before: int | None = None,
) -> Entries:
    """The entries that are still needed, sorted; a row that several parts have is kept once.

    Dropped are entries of files that are not among ``files``, of rows that are deleted there,
    tombstones recorded before the time given, and tombstones of keys that have a newer entry
    among these. Raises DamagedIndexError when a delete file cannot be used.
    """
    entries = Entries.concatenate(parts)
    is_tombstone = _tombstones(entries)
    kept = is_tombstone.copy()
    if tombstones_before is not None and entries.recorded is not None:
        kept &= entries.recorded >= tombstones_before
    rows = np.flatnonzero(~is_tombstone)
    kept[rows] = LiveRows(files, inputs).mask(entries.file[rows], entries.position[rows])
    entries = entries.take(kept).sorted()
    return entries.take(~_superfluous(entries))


def _tombstones(entries: Entries) -> NDArray[np.bool_]:
    if entries.sequence is None:
        # A tombstone without a sequence cannot be compared.
        return np.zeros(len(entries), np.bool_)
    is_tombstone: NDArray[np.bool_] = entries.file == TOMBSTONE
    return is_tombstone


def _superfluous(entries: Entries) -> NDArray[np.bool_]:
    """Repeated rows, and tombstones that are not the newest of their key."""
    drop = np.zeros(len(entries), np.bool_)
    same = entries.same_key()
    drop[1:] = (
        same
        & (entries.file[1:] == entries.file[:-1])
        & (entries.position[1:] == entries.position[:-1])
    )
    is_tombstone = _tombstones(entries)
    if entries.sequence is None or entries.recorded is None or not is_tombstone.any():
        return drop
    # Tombstones have no position and differ only by their sequence.
    drop &= ~is_tombstone
    group = np.concatenate(([0], np.cumsum(~same)))
    ranks = rank_sequences(entries.sequence)
    order = np.lexsort((entries.recorded, ~is_tombstone, ranks, group))
    newest = np.empty(group[-1] + 1, np.intp)
    # Keep the last one: the highest sequence, and among equal ones a row, or else the tombstone
    # that expires last.
    newest[group[order]] = order
    drop |= is_tombstone & (newest[group] != np.arange(len(entries)))
    return drop


def fetch_bucket(run: IndexRun, number: int, bits: int, inputs: InputFiles) -> Iterator[Entries]:
    """The run's entries of a bucket; the run may be split finer or coarser.

    Raises DamagedIndexError for a file that is missing or not what the manifest says.
    """
    shared = min(bits, run.bits)
    for part in run.parts:
        for blob in part.blobs:
            if blob.bucket >> (run.bits - shared) == number >> (bits - shared):
                entries = rebased(fetch_blob(run, part, blob, inputs), run.first_ordinal)
                yield of_bucket(entries, number, bits) if bits > run.bits else entries


def fetch_blob(run: IndexRun, part: RunPart, blob: RunBlob, inputs: InputFiles) -> Entries:
    """All entries of one blob, as stored: ``rebased`` gives them the ordinals of the file table."""
    with reporting_damage(part.location):
        data = inputs.read_range(part.location, blob.offset, blob.length)
        return decode_run(
            data,
            entries=blob.entries,
            checksum=blob.checksum,
            bits=run.bits,
            bucket=blob.bucket,
        )


def rebased(entries: Entries, first_ordinal: int) -> Entries:
    """Entries of a run whose files are numbered from this ordinal on; tombstones lie in no file."""
    if not first_ordinal:
        return entries
    return replace(entries, file=rebased_ordinals(entries.file, first_ordinal))


def rebased_ordinals(file: NDArray[np.int32], first_ordinal: int) -> NDArray[np.int32]:
    """The ordinals that files of such a run have in the file table."""
    moved: NDArray[np.int32] = np.where(file == TOMBSTONE, file, file + np.int32(first_ordinal))
    return moved


def of_bucket(entries: Entries, number: int, bits: int) -> Entries:
    """The part of sorted entries that is in a bucket."""
    starts, ends = bucket_bounds(entries.hi, bits)
    return entries.take(slice(int(starts[number]), int(ends[number])))


def plan_run_merge(sizes: Sequence[int], max_runs: int) -> tuple[int, ...]:
    """The indices of the runs to merge so that at most ``max_runs`` are left; or none.

    Small runs are merged with each other, and a larger one joins only when the merged ones have
    grown to a good part of its size. With eight runs an entry is rewritten fewer than log2(S) times
    while the index grows to S times the smallest run; with fewer runs it is more often.
    """
    if len(sizes) <= max_runs:
        return ()
    order = sorted(range(len(sizes)), key=lambda run: sizes[run])
    # Sizes of neighbouring tiers differ by this factor.
    tier = (sum(sizes) / max(sizes[order[0]], 1)) ** (1 / max(max_runs, 1))
    # With a smaller reach, large runs would rarely join, and small ones be rewritten repeatedly.
    reach = max(tier / 2, 1.0)
    count = max(len(sizes) - max(max_runs, 1) + 1, 2)
    merged = sum(sizes[run] for run in order[:count])
    while count < len(order) and sizes[order[count]] <= reach * merged:
        merged += sizes[order[count]]
        count += 1
    return tuple(sorted(order[:count]))


def plan_bounded_merge(sizes: Sequence[int], max_runs: int, most_entries: int) -> tuple[int, ...]:
    """The same for work that a commit waits for: at most so many entries, if possible.

    Where ``plan_run_merge`` would merge more, the smallest runs are merged with each other, and
    more runs stay than should; only far beyond that all that is due is merged.
    """
    due = plan_run_merge(sizes, max_runs)
    if sum(sizes[run] for run in due) <= most_entries or len(sizes) > _MOST_RUNS * max_runs:
        return due
    order = sorted(range(len(sizes)), key=lambda run: sizes[run])
    totals = list(accumulate(sizes[run] for run in order))
    count = sum(total <= most_entries for total in totals)
    # A single one, or a small one with one many times as large, would be rewritten for nothing.
    while count > 1 and totals[count - 2] * _WORTHWHILE < sizes[order[count - 1]]:
        count -= 1
    return tuple(sorted(order[:count])) if count > 1 else ()


def plan_bits(entries: int) -> int:
    """How many bits of the hash number the buckets: none below a million entries."""
    return min(max((entries - 1) // _BUCKET_ENTRIES, 0).bit_length(), _MOST_BITS)
