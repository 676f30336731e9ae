"""The outcomes of a fold as Arrow and NumPy columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.merge.folding.change_rows import DELETE, SOFT_DELETE, UPSERT
from frazil.merge.planning.change_columns import IS_UPDATE
from frazil.model.policy import Deletes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from frazil.merge.folding.change_rows import ChangeRows

__all__ = ["DELETE", "SOFT_DELETE", "UPSERT", "FoldedKeys", "Origins", "build_folded_keys"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldedKeys:
    """The outcome of each key, in the order of the keys.

    ``rows`` has the mirror's columns; of a DELETE only the key counts. ``missing`` says for each
    column where the value, null in ``rows``, is that of the mirror's row under ``source_hi`` and
    ``source_lo``. Where ``needs_mirror`` is set and the mirror has no such row, an upsert cannot be
    completed, and a soft delete has no effect. ``kept_sequence`` is that of the row that a soft
    delete keeps, null where that is the mirror's. ``is_update`` says whether the last change was an
    UPDATE. ``rows_read`` and ``repeats`` count the changes since the previous result.
    """

    hi: NDArray[np.uint64]
    lo: NDArray[np.uint64]
    action: NDArray[np.int8]
    sequence: pa.Array
    kept_sequence: pa.Array | None
    rows: pa.RecordBatch
    missing: Mapping[int, NDArray[np.bool_]]
    needs_mirror: NDArray[np.bool_]
    source_hi: NDArray[np.uint64]
    source_lo: NDArray[np.uint64]
    is_update: NDArray[np.bool_]
    rows_read: int
    repeats: int

    def __len__(self) -> int:
        return len(self.hi)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origins:
    """For each key, the changes that its outcome takes its values from.

    ``latest`` is the last change. ``by_column`` has the columns that some change left out: the
    number of the row with the value, negative if it is in the mirror. ``kept`` is the upsert whose
    row a soft delete keeps, likewise.
    """

    latest: NDArray[np.int64]
    by_column: Mapping[int, NDArray[np.int64]]
    needs_mirror: NDArray[np.bool_]
    kept: NDArray[np.int64] | None = None


def build_folded_keys(
    rows: ChangeRows,
    origins: Origins,
    *,
    sources: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None,
    rows_read: int,
    repeats: int,
) -> FoldedKeys:
    """Gather the outcomes; without ``sources`` every key takes columns from its own mirror row."""
    latest = origins.latest
    hi, lo = rows.hi[latest], rows.lo[latest]
    source_hi, source_lo = (hi, lo) if sources is None else sources
    missing = {id_: row_numbers < 0 for id_, row_numbers in origins.by_column.items()}
    return FoldedKeys(
        hi=hi,
        lo=lo,
        action=_action(rows, latest),
        sequence=rows.sequence.take(latest),
        kept_sequence=_kept_sequence(rows, origins.kept),
        rows=_gather(rows, origins),
        missing={id_: mask for id_, mask in missing.items() if mask.any()},
        needs_mirror=origins.needs_mirror,
        source_hi=source_hi,
        source_lo=source_lo,
        is_update=_is_update(rows, latest),
        rows_read=rows_read,
        repeats=repeats,
    )


def _kept_sequence(rows: ChangeRows, kept: NDArray[np.int64] | None) -> pa.Array | None:
    if kept is None:
        return None
    return rows.sequence.take(pa.array(kept, mask=kept < 0))


def _gather(rows: ChangeRows, origins: Origins) -> pa.RecordBatch:
    images, latest = rows.images, origins.latest
    # A contiguous slice is a view: nothing is copied if no key has two changes.
    run = len(latest) and latest[-1] - latest[0] + 1 == len(latest)
    columns = []
    for column, values in zip(rows.layout.columns, images.columns, strict=True):
        row_numbers = origins.by_column.get(column.id)
        if row_numbers is not None:
            columns.append(values.take(pa.array(row_numbers, mask=row_numbers < 0)))
        elif run:
            columns.append(values.slice(latest[0], len(latest)))
        else:
            columns.append(values.take(pa.array(latest)))
    return pa.RecordBatch.from_arrays(columns, schema=images.schema)


def _action(rows: ChangeRows, latest: NDArray[np.int64]) -> NDArray[np.int8]:
    removed = SOFT_DELETE if rows.layout.deletes is Deletes.SOFT else DELETE
    return np.where(rows.deleted[latest], np.int8(removed), np.int8(UPSERT))


def _is_update(rows: ChangeRows, latest: NDArray[np.int64]) -> NDArray[np.bool_]:
    updates = rows.column(IS_UPDATE)
    if updates is None:
        return np.zeros(len(latest), np.bool_)
    found: NDArray[np.bool_] = updates.take(latest).to_numpy(zero_copy_only=False)
    return found & ~rows.deleted[latest]
