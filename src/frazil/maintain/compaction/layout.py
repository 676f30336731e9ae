"""Where rows are after a rewrite, and the translation of later deletes; pure.

A rewrite writes the rows of some files that lived at its snapshot, in order. So a row's rank among
those rows is known from its file and position, and with the rank the new file and position:

    file F1, dead at S: {1}      rank          new file G, from rank 0 on
    0  live  ──────────────────▶ 0   ────────▶ 0
    1  dead
    2  live  ──────────────────▶ 1   ────────▶ 1
    file F2, nothing dead
    0  live  ──────────────────▶ 2   ────────▶ 2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.deletes.deletion_vector import DeletionVector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class RestoredRowsError(Exception):
    """A file has rows that were deleted when it was rewritten: the new files lack them."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A file that was rewritten: its rows, and which of them were deleted then."""

    location: str
    rows: int
    dead: DeletionVector

    @property
    def moved(self) -> int:
        """How many of its rows are in the new files."""
        return self.rows - self.dead.cardinality


@dataclass(frozen=True, slots=True, eq=False)
class RewriteLayout:
    """Old files in the order in which they were read, and the rows of each new file.

    Ranks fill one new file after the other. Where rows were sorted, or spread over partitions,
    ``new_ranks`` has the rank of each row among those of the new files; otherwise it is its own.
    """

    sources: tuple[SourceRows, ...]
    targets: tuple[int, ...]
    new_ranks: NDArray[np.unsignedinteger] | None = None

    def __post_init__(self) -> None:
        if sum(each.moved for each in self.sources) != sum(self.targets):
            raise ValueError("the new files have all rows that lived, and no others")
        if self.new_ranks is not None and len(self.new_ranks) != sum(self.targets):
            raise ValueError("every row that lived has a new rank")

    def translate(self, now: Sequence[DeletionVector | None]) -> tuple[DeletionVector, ...]:
        """What is deleted in each new file, given what is deleted in each old one now.

        None stands for an old file that the table does not have any more: all of its rows were
        deleted, or are in other files. Raises RestoredRowsError when a row that was deleted at the
        rewrite is not deleted now.
        """
        ends = np.cumsum([each.moved for each in self.sources], dtype=np.int64)
        ranks = [
            int(end) - source.moved + _late_ranks(source, dead)
            for source, dead, end in zip(self.sources, now, ends, strict=True)
        ]
        return self._located(np.concatenate([np.empty(0, np.int64), *ranks]))

    def _located(self, ranks: NDArray[np.int64]) -> tuple[DeletionVector, ...]:
        """The rows with these ascending ranks, by new file."""
        if self.new_ranks is not None:
            ranks = np.sort(self.new_ranks[ranks].astype(np.int64))
        bounds = np.concatenate(([0], np.cumsum(self.targets, dtype=np.int64)))
        cuts = np.searchsorted(ranks, bounds)
        pieces = [ranks[cuts[at] : cuts[at + 1]] - bounds[at] for at in range(len(self.targets))]
        return tuple(DeletionVector.from_positions(piece) for piece in pieces)


def _late_ranks(source: SourceRows, now: DeletionVector | None) -> NDArray[np.int64]:
    """The ranks, within their file, of rows that lived at the rewrite and do not now."""
    if now is None:
        return np.arange(source.moved, dtype=np.int64)
    if not source.dead.bitmap <= now.bitmap:
        raise RestoredRowsError
    late = DeletionVector(now.bitmap - source.dead.bitmap).positions().astype(np.int64)
    if len(late) and late[-1] >= source.rows:
        raise RestoredRowsError
    before = source.dead.positions().astype(np.int64)
    ranks: NDArray[np.int64] = late - np.searchsorted(before, late)
    return ranks
