"""Random changes with a memory: which rows there are, in which version, and what must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

UPDATE, INSERT, DELETE = "UPDATE", "INSERT", "DELETE"
_SHARE_OF_DELETES = _SHARE_OF_INSERTS = 0.1
# A row that is not there has this version.
_GONE = -1


class ChangeFeed:
    """Four fifths updates, a tenth inserts, a tenth deletes, at uniformly random keys.

    No key comes twice in one batch, which spares MERGE INTO the fold that it would need.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._dice = np.random.default_rng(seed)
        self._versions = np.zeros(rows, np.int16)
        # The first rows were numbered from zero as well.
        self._sequence = rows

    @property
    def live(self) -> int:
        """How many rows there must be."""
        return int(np.count_nonzero(self._versions != _GONE))

    def draw(self, count: int) -> pa.Table:
        """The next changes, with the columns n, v, operation and sequence."""
        deletes = inserts = int(count * _SHARE_OF_DELETES)
        old = self._live_numbers(count - inserts)
        gone, updated = old[:deletes], old[deletes:]
        new = np.arange(len(self._versions), len(self._versions) + inserts)
        self._versions = np.concatenate([self._versions, np.zeros(inserts, np.int16)])
        self._versions[updated] += 1
        numbers = np.concatenate([gone, updated, new])
        versions = self._versions[numbers].astype(np.int64)
        self._versions[gone] = _GONE
        operations = np.repeat([DELETE, UPDATE, INSERT], [len(gone), len(updated), len(new)])
        order = self._dice.permutation(len(numbers))
        sequence = np.arange(self._sequence, self._sequence + len(numbers))
        self._sequence += len(numbers)
        return pa.table(
            {
                "n": numbers[order],
                "v": versions[order],
                "operation": pa.array(operations[order]),
                "sequence": sequence,
            }
        )

    def draw_live(self, count: int) -> NDArray[np.int64]:
        """Numbers of rows that are there, to be read."""
        return self._live_numbers(count)

    def _live_numbers(self, count: int) -> NDArray[np.int64]:
        found = np.empty(0, np.int64)
        while len(found) < count:
            drawn = self._dice.integers(0, len(self._versions), 2 * count)
            drawn = drawn[self._versions[drawn] != _GONE]
            found = np.unique(np.concatenate([found, drawn]))
        return self._dice.permutation(found)[:count]
