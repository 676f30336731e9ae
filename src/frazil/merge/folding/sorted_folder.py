"""The fold inside a Spark task: a stream of sorted Arrow batches, split anywhere.

Equivalent to ``fold.py``, without a loop over rows, for rows that keep no columns of another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.merge.folding.change_rows import (
    ChangeRows,
    FoldedKeys,
    FoldLayout,
    Origins,
    build_folded_keys,
    without_deletes,
)
from frazil.merge.folding.fold import missing_images
from frazil.model.policy import Deletes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LinkedRowsError(Exception):
    """Some rows keep columns of the row that another key had; ``linked_fold`` folds those."""


class SortedFolder:
    """Folds batches sorted by key and sequence; of a key that may continue it keeps few rows.

    At most one row for each column and two more, however many changes the key has.
    """

    def __init__(self, layout: FoldLayout) -> None:
        self._layout = layout
        self._carried: pa.RecordBatch | None = None
        self._rows_read = 0
        self._repeats = 0

    def push(self, batch: pa.RecordBatch) -> FoldedKeys | None:
        """The keys that are complete now, if any.

        Raises LinkedRowsError, DuplicateKeyError or MissingImageError, and is of no use after that.
        """
        if not batch.num_rows:
            return None
        self._rows_read += batch.num_rows
        if self._layout.deletes is Deletes.IGNORE:
            batch = without_deletes(batch)
            if not batch.num_rows:
                return None
        if self._carried is not None:
            batch = pa.concat_batches([self._carried, batch])
        given = ChangeRows(batch, self._layout)
        _refuse_linked(given)
        rows, repeats = given.without_repeats()
        self._repeats += repeats
        _refuse_orphans(rows)
        picks = _Picks(rows)
        self._carried = rows.batch.take(picks.of_last_key())
        origins = picks.origins(keys=len(rows.first) - 1)
        return self._hand_out(rows, origins) if len(origins.latest) else None

    def finish(self) -> FoldedKeys | None:
        """The last key, if any."""
        carried, self._carried = self._carried, None
        if carried is None:
            return None
        rows = ChangeRows(carried, self._layout)
        return self._hand_out(rows, _Picks(rows).origins(keys=1))

    def _hand_out(self, rows: ChangeRows, origins: Origins) -> FoldedKeys:
        folded = build_folded_keys(rows, origins, rows_read=self._rows_read, repeats=self._repeats)
        self._rows_read = self._repeats = 0
        return folded


class _Picks:
    """For each key, the row numbers of the parts of its outcome; negative where there is none."""

    def __init__(self, rows: ChangeRows) -> None:
        self._rows = rows
        upserts = ~rows.deleted
        # Only a soft delete needs the row it keeps; it may have sent nothing but the key.
        soft = rows.layout.deletes is Deletes.SOFT
        self._kept = rows.last_where(upserts) if soft else rows.last
        self._by_column = {id_: rows.last_where(~unsent) for id_, unsent in rows.unsent.items()}

    def origins(self, *, keys: int) -> Origins:
        """The parts for the first so many keys, without those that have no outcome."""
        chosen = np.flatnonzero(~self._rows.merged[self._rows.last[:keys]])
        by_column = {id_: row_numbers[chosen] for id_, row_numbers in self._by_column.items()}
        needs_mirror = self._kept[chosen] < 0
        for row_numbers in by_column.values():
            needs_mirror |= row_numbers < 0
        soft = self._rows.layout.deletes is Deletes.SOFT
        return Origins(
            latest=self._rows.last[chosen],
            by_column=by_column,
            needs_mirror=needs_mirror,
            kept=self._kept[chosen] if soft else None,
        )

    def of_last_key(self) -> NDArray[np.int64]:
        """The rows of the last key that its outcome, or the check of the next, depends on."""
        parts = [self._rows.last, self._kept, *self._by_column.values()]
        row_numbers = np.unique([part[-1] for part in parts])
        return row_numbers[row_numbers >= 0]


def _refuse_linked(rows: ChangeRows) -> None:
    linked = int(np.count_nonzero(rows.linked))
    if linked:
        message = f"{linked} rows keep columns of a row under another key"
        raise LinkedRowsError(message)


def _refuse_orphans(rows: ChangeRows) -> None:
    orphans = int(np.count_nonzero(rows.orphaned))
    if orphans:
        raise missing_images(orphans)
