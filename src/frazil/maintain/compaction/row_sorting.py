"""Sorts the rows of a rewrite by the table's sort order, inside a task.

Rows are sorted in portions, which go to the local disk; what they are compared by stays in memory,
so the order of all of them is known before the first is written. Then each portion is read from
its beginning to its end. Memory: the sorted columns, about sixteen bytes a row, and one portion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.clients.iceberg.write.local_spill import LocalSpill

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from frazil.clients.iceberg.write.sort_keys import SortKeys

# Arrow memory of one portion: few portions of a large job, little next to what a writer buffers.
PORTION_BYTES = 64 * 2**20
# Rows that are put together at a time, as many as are read at a time, and fewer of wide ones.
_BLOCK_ROWS = 65_536
_FEWEST_ROWS = 64


class RowSorter:
    """Takes rows in any order and gives them back in the table's; rows that are equal keep theirs.

    ``order`` has, for each row that was given back, its number among those taken.
    """

    def __init__(self, keys: SortKeys, *, table: str, portion_bytes: int = PORTION_BYTES) -> None:
        self.order: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._keys = keys
        self._table = table
        self._portion_bytes = portion_bytes
        self._compared: list[pa.RecordBatch] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._bytes = 0
        self._spill: LocalSpill | None = None
        # For each portion, in its order, the numbers of its rows within it.
        self._portions: list[NDArray[np.uint64]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take some rows; raises StorageError when the local disk is full."""
        self._waiting.append(rows)
        self._compared.append(self._keys.of(rows))
        self._waiting_bytes += rows.nbytes
        self._bytes += rows.nbytes
        if self._waiting_bytes >= self._portion_bytes:
            if self._spill is None:
                self._spill = LocalSpill(
                    rows.schema, table=self._table, content="rows that are being sorted"
                )
            self._spill.write(self._next_portion())

    def drain(self) -> Iterator[pa.RecordBatch]:
        """All rows in order; ``order`` is complete from the first of them on."""
        portions: list[pa.RecordBatch] = []
        if self._waiting:
            last = self._next_portion()
            portions = [*(self._spill.load() if self._spill is not None else ()), last]
        elif self._spill is not None:
            portions = self._spill.load()
        if not portions:
            return
        self.order = self._keys.order(pa.Table.from_batches(self._compared))
        self._compared = []
        lengths = [len(each) for each in self._portions]
        starts = np.cumsum([0, *lengths])
        # Where each row is among those of all portions.
        places = np.concatenate([_inverse(each) for each in self._portions])
        places += np.repeat(starts[:-1], lengths).astype(np.uint64)
        fitting = self._portion_bytes * len(self.order) // max(self._bytes, 1)
        step = min(max(fitting, _FEWEST_ROWS), _BLOCK_ROWS)
        for first in range(0, len(self.order), step):
            yield _collected(portions, starts, places[self.order[first : first + step]])

    def discard(self) -> None:
        """Free the disk space; idempotent, and raises nothing."""
        if self._spill is not None:
            self._spill.discard()

    def _next_portion(self) -> pa.RecordBatch:
        count = len(self._waiting)
        order = self._keys.order(pa.Table.from_batches(self._compared[-count:]))
        rows = pa.concat_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._portions.append(order)
        return rows.take(pa.array(order))


def _inverse(order: NDArray[np.uint64]) -> NDArray[np.uint64]:
    inverse = np.empty(len(order), np.uint64)
    inverse[order] = np.arange(len(order), dtype=np.uint64)
    return inverse


def _collected(
    portions: Sequence[pa.RecordBatch],
    starts: NDArray[np.int64],
    places: NDArray[np.uint64],
) -> pa.RecordBatch:
    """These rows; of each portion they are neighbours, since it has the same order."""
    wanted = places.astype(np.int64)
    owners = np.searchsorted(starts, wanted, side="right") - 1
    pieces: list[pa.RecordBatch] = []
    taken = np.empty(len(wanted), np.int64)
    before = 0
    for owner in np.unique(owners):
        chosen = owners == owner
        own = wanted[chosen] - starts[owner]
        first, count = int(own.min()), int(own.max() - own.min()) + 1
        pieces.append(portions[owner].slice(first, count))
        taken[chosen] = own - first + before
        before += count
    # Copied by the take: what is read from the disk is not to be kept.
    return pa.concat_batches(pieces).take(pa.array(taken))
