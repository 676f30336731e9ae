"""Entries of the key index in memory: a hash, and the file and row it was last seen in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Selection = slice | NDArray[np.bool_] | NDArray[np.intp]

# The bits of ``hi``, of which a bucket takes the topmost.
HASH_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Columns of equal length; ``file`` is an ordinal, or TOMBSTONE for a deleted key.

    ``lo`` is None when every lower half is zero. ``sequence`` is None unless entries carry the
    sequence of their change; then ``recorded`` says when a tombstone was made, in seconds since the
    epoch, and is zero for rows.
    """

    hi: NDArray[np.uint64]
    lo: NDArray[np.uint64] | None
    file: NDArray[np.int32]
    position: NDArray[np.int64]
    sequence: pa.Array | None = None
    recorded: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.sequence is not None and self.recorded is None:
            object.__setattr__(self, "recorded", np.zeros(len(self.hi), np.int64))
        if self.sequence is None and self.recorded is not None:
            raise ValueError("tombstones are recorded only where entries carry sequences")
        columns = (self.lo, self.file, self.position, self.sequence, self.recorded)
        if any(len(column) != len(self.hi) for column in columns if column is not None):
            raise ValueError("the columns of entries have one length")

    @classmethod
    def empty(cls) -> Entries:
        """No entries, which go with any others."""
        return cls(np.empty(0, np.uint64), None, np.empty(0, np.int32), np.empty(0, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[Entries]) -> Entries:
        """All entries, part after part; all parts have sequences or none has."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:  # noqa: PLR2004 - one part is what it is
            return filled[0] if filled else next(iter(parts), cls.empty())
        sequences = [part.sequence for part in filled if part.sequence is not None]
        if len(sequences) not in {0, len(filled)}:
            raise ValueError("some entries carry sequences and some do not")
        lower = [part.lo for part in filled]
        recorded = [part.recorded for part in filled if part.recorded is not None]
        return cls(
            np.concatenate([part.hi for part in filled]),
            None if all(lo is None for lo in lower) else np.concatenate([*map(_lower, filled)]),
            np.concatenate([part.file for part in filled]),
            np.concatenate([part.position for part in filled]),
            concatenate_sequences(sequences) if sequences else None,
            np.concatenate(recorded) if sequences else None,
        )

    def __len__(self) -> int:
        return len(self.hi)

    def take(self, selection: Selection) -> Entries:
        """The entries that a mask or slice selects, or those at these positions, in their order."""
        return Entries(
            self.hi[selection],
            None if self.lo is None else self.lo[selection],
            self.file[selection],
            self.position[selection],
            None if self.sequence is None else select_sequences(self.sequence, selection),
            None if self.recorded is None else self.recorded[selection],
        )

    @property
    def is_sorted(self) -> bool:
        """Whether neighbours are in the order of the hash, as unsigned numbers."""
        before, after = self.hi[:-1], self.hi[1:]
        if not bool((before <= after).all()):
            return False
        if self.lo is None:
            return True
        tied = before == after
        return bool((self.lo[:-1][tied] <= self.lo[1:][tied]).all())

    def sorted(self) -> Entries:
        """In the order of the hash; equal hashes by file and row, so that bytes repeat."""
        return self.take(self.order())

    def order(self) -> NDArray[np.intp]:
        """The positions of the entries, in the order of hash, file and row."""
        # Parts that are sorted already, as those of runs are, are only merged by this kind.
        order = np.argsort(self.hi, kind="stable")
        hi = self.hi[order]
        # Ties are few: only they are sorted by the other columns.
        tied = in_groups(hi[1:] == hi[:-1])
        if tied.any():
            positions = order[tied]
            lo = np.zeros(len(positions), np.uint64) if self.lo is None else self.lo[positions]
            by = (self.position[positions], self.file[positions], lo, self.hi[positions])
            order[tied] = positions[np.lexsort(by)]
        return order

    def same_key(self) -> NDArray[np.bool_]:
        """For each pair of neighbours, whether they have one hash."""
        same: NDArray[np.bool_] = self.hi[1:] == self.hi[:-1]
        if self.lo is not None:
            same &= self.lo[1:] == self.lo[:-1]
        return same

    def bucket_slices(self, bits: int) -> Iterator[tuple[int, slice]]:
        """Each bucket that has entries, and where they lie; the entries must be sorted."""
        starts, ends = bucket_bounds(self.hi, bits)
        for bucket in np.flatnonzero(starts < ends).tolist():
            yield bucket, slice(int(starts[bucket]), int(ends[bucket]))


def bucket_bounds(hi: NDArray[np.uint64], bits: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each bucket begins and ends among these sorted hashes."""
    firsts = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64((HASH_BITS - bits) % HASH_BITS)
    inner = np.searchsorted(hi, firsts)
    return np.concatenate(([0], inner)), np.concatenate((inner, [len(hi)]))


def bucket_of(hi: int, bits: int) -> int:
    """The bucket of one hash: its topmost bits."""
    return hi >> (HASH_BITS - bits)


def in_groups(same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which items equal a neighbour, given for each pair of neighbours whether they are equal.

    Without pairs there is one item or none, and the answer for one fits both.
    """
    tied = np.zeros(len(same) + 1, np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    return tied


def concatenate_sequences(parts: Sequence[pa.Array]) -> pa.Array:
    """One array; a type that was widened meanwhile takes the older values along."""
    tables = [pa.table({"sequence": part}) for part in parts]
    return pa.concat_tables(tables, promote_options="permissive").column(0).combine_chunks()


def select_sequences(sequence: pa.Array, selection: Selection) -> pa.Array:
    """Of the sequences what NumPy would take of the other columns."""
    if isinstance(selection, slice):
        start, end, _ = selection.indices(len(sequence))
        return sequence.slice(start, max(end - start, 0))
    if selection.dtype == np.bool_:
        return sequence.filter(pa.array(selection))
    return sequence.take(pa.array(selection))


def rank_sequences(sequence: pa.Array) -> NDArray[np.int64]:
    """Numbers that compare as the sequences do; a missing one is below all others."""
    ranks = pc.rank(sequence, sort_keys="ascending", tiebreaker="dense").to_numpy()
    signed: NDArray[np.int64] = ranks.astype(np.int64)
    if sequence.null_count:
        signed[sequence.is_null().to_numpy(zero_copy_only=False)] = 0
    return signed


def _lower(part: Entries) -> NDArray[np.uint64]:
    return np.zeros(len(part), np.uint64) if part.lo is None else part.lo
