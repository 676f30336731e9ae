"""Merges the entries of several runs into those of one, without dead ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.key_index.entries import Entries, rank_sequences
from frazil.mirror.deleted_rows import LiveRows
from frazil.model.key_index import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.model.key_index import IndexedFile


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
