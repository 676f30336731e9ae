"""The fold inside a Spark task: a stream of sorted Arrow batches, split anywhere.

Equivalent to ``fold.py``. Rows that keep no columns of another key are folded without a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.merge.folding.change_rows import (
    ChangeRows,
    FoldedKeys,
    FoldLayout,
    Origins,
    build_folded_keys,
    without_deletes,
)
from frazil.merge.folding.fold import (
    Change,
    ChangeAction,
    KeyAction,
    KeyOutcome,
    fold,
    missing_images,
)
from frazil.merge.planning.changes import HI, LO, MERGED, PREVIOUS_HI, PREVIOUS_LO, SEQUENCE
from frazil.model.policy import Deletes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Key = tuple[int, int]


class LinkedRowsError(Exception):
    """Some rows keep columns of the row that another key had; ``fold_linked`` folds those."""


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


def fold_linked(changes: pa.Table, layout: FoldLayout) -> FoldedKeys:
    """Fold all changes of keys that rows move between without all their columns, in any order.

    Such a row needs the state of another key, so the specification itself is run, over row numbers
    in place of values: no value leaves Arrow. What a change did that was merged before is in the
    mirror, under the key it moved to.

    The columns are those that ``SortedFolder`` takes; the source of an outcome may be another key.
    Raises DuplicateKeyError or MissingImageError.
    """
    batch = _sorted(changes)
    if layout.deletes is Deletes.IGNORE:
        batch = without_deletes(batch)
    rows, repeats = ChangeRows(batch, layout).without_repeats()
    _refuse_overwritten(rows)
    found = fold(_as_changes(rows), deletes=layout.deletes).by_key
    latest = rows.last[~rows.merged[rows.last]]
    outcomes = [found[key] for key in _keys(rows.hi[latest], rows.lo[latest])]
    origins = Origins(
        latest=latest,
        by_column={id_: _row_numbers(id_, outcomes, latest) for id_ in rows.unsent},
        needs_mirror=np.array([outcome.source is not None for outcome in outcomes], np.bool_),
    )
    sources = _sources(outcomes, rows.hi[latest], rows.lo[latest])
    return build_folded_keys(
        rows, origins, sources=sources, rows_read=changes.num_rows, repeats=repeats
    )


def _sorted(changes: pa.Table) -> pa.RecordBatch:
    none = pa.RecordBatch.from_pylist([], schema=changes.schema)
    batch = pa.concat_batches([none, *changes.to_batches()])
    hi, lo = (batch.column(name).to_numpy().view(np.uint64) for name in (HI, LO))
    order = [_ranks(batch.column(SEQUENCE)), lo, hi]
    if MERGED in batch.schema.names:
        # What was merged before stands for those that say the same.
        order.insert(0, ~batch.column(MERGED).to_numpy(zero_copy_only=False))
    return batch.take(np.lexsort(order))


def _ranks(sequence: pa.Array) -> NDArray[np.uint64]:
    """Ranks in the order of the sequence, equal where that is equal."""
    ranks: NDArray[np.uint64] = pc.rank(sequence, tiebreaker="dense").to_numpy()
    return ranks


def _as_changes(rows: ChangeRows) -> Iterator[Change[Key, int]]:
    """The changes as input of the specification; a value is the number of its row.

    Columns that every change has sent are left out: they come from the last change.
    """
    columns = frozenset(rows.unsent)
    unchanged = _unchanged(rows)
    details = zip(
        _keys(rows.hi, rows.lo),
        _ranks(rows.sequence).tolist(),
        rows.deleted.tolist(),
        rows.merged.tolist(),
        _previous_keys(rows),
        strict=True,
    )
    for number, (key, rank, deleted, merged, previous) in enumerate(details):
        left_out = unchanged.get(number, frozenset())
        yield Change(
            key=key,
            sequence=rank,
            action=ChangeAction.DELETE if deleted else ChangeAction.UPSERT,
            values=dict.fromkeys(columns - left_out, number),
            unchanged=left_out,
            previous_key=None if merged else previous,
        )


def _refuse_overwritten(rows: ChangeRows) -> None:
    """Refuse rows that need what a key had before a change of their own sequence was merged.

    Changes of one sequence all see the state below it, and the mirror has the state above it.
    """
    written = rows.merged & ~rows.deleted
    if not written.any():
        return
    ranks = _ranks(rows.sequence)
    above = set(
        zip(_keys(rows.hi[written], rows.lo[written]), ranks[written].tolist(), strict=True)
    )
    wanted = zip(_previous_keys(rows), ranks.tolist(), strict=True)
    needed = np.fromiter((each in above for each in wanted), np.bool_, len(rows))
    orphans = int(np.count_nonzero(needed & rows.linked & ~rows.merged))
    if orphans:
        raise missing_images(orphans)


def _unchanged(rows: ChangeRows) -> dict[int, frozenset[int]]:
    """The columns that each partial row left out, by the number of the row."""
    found: dict[int, set[int]] = {int(number): set() for number in np.flatnonzero(rows.partial)}
    for id_, mask in rows.unsent.items():
        for number in np.flatnonzero(mask).tolist():
            found[number].add(id_)
    return {number: frozenset(ids) for number, ids in found.items()}


def _previous_keys(rows: ChangeRows) -> list[Key | None]:
    his, los = rows.column(PREVIOUS_HI), rows.column(PREVIOUS_LO)
    if his is None or los is None:
        return [None] * len(rows)
    hi, lo = (half.fill_null(0).to_numpy().view(np.uint64) for half in (his, los))
    keys = zip(his.is_valid().to_pylist(), _keys(hi, lo), strict=True)
    return [key if known else None for known, key in keys]


def _row_numbers(
    id_: int, outcomes: list[KeyOutcome[Key, int]], latest: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of the row with each outcome's value of a column; a DELETE misses none."""
    row_numbers = np.array([outcome.values.get(id_, -1) for outcome in outcomes], np.int64)
    gone = np.array([outcome.kind is KeyAction.DELETE for outcome in outcomes], np.bool_)
    return np.where(gone, latest, row_numbers)


def _sources(
    outcomes: list[KeyOutcome[Key, int]], hi: NDArray[np.uint64], lo: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    keys = [
        key if outcome.source is None else outcome.source
        for outcome, key in zip(outcomes, _keys(hi, lo), strict=True)
    ]
    halves = np.array(keys, np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _keys(hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> list[Key]:
    return list(zip(hi.tolist(), lo.tolist(), strict=True))
