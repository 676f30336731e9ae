"""The fold for rows that moved to another key without all their columns.

Such a row needs the state of another key, so the specification itself is run, over row numbers in
place of values: no value leaves Arrow. What a change did that was merged before is in the mirror,
under the key it moved to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.merge.folding.change_rows import ChangeRows, Origins, build_folded_keys, without_deletes
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

    from frazil.merge.folding.change_rows import FoldedKeys, FoldLayout

    Key = tuple[int, int]


def fold_linked(changes: pa.Table, layout: FoldLayout) -> FoldedKeys:
    """Fold all changes of keys that rows move between, given in any order.

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
