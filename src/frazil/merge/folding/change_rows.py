"""Changes of many keys as one sorted Arrow batch, and the outcomes of a fold; no loop over rows.

The columns of ``planning/changes.py`` precede the mirror's; those that a changelog does not have
may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.clients.iceberg.write.conforming import map_as_lists
from frazil.merge.folding.fold import clashing_changes
from frazil.merge.planning.changes import (
    ACTION,
    HI,
    IS_UPDATE,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    UNCHANGED,
)
from frazil.model.policy import Deletes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

UPSERT, DELETE, SOFT_DELETE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class FoldColumn:
    """A column of the mirror; those ``always_sent`` have a value even in a DELETE."""

    name: str
    id: int
    always_sent: bool = False


@dataclass(frozen=True, slots=True)
class FoldLayout:
    """The mirror's columns, which every batch has last and in this order, and what a DELETE does.

    The column that marks soft deletes is not among them: it follows from the outcome.
    """

    columns: tuple[FoldColumn, ...]
    deletes: Deletes = Deletes.APPLY

    @property
    def optional_ids(self) -> frozenset[int]:
        """The columns that a change can leave out."""
        return frozenset(column.id for column in self.columns if not column.always_sent)


class ChangeRows:
    """Changes sorted by key and sequence.

    Attributes:
        deleted: which rows are DELETEs.
        unsent: for each column that some row left out, which rows did. A DELETE leaves out all
            but the key if it is soft; one that is applied leaves nothing of the row before it.
        partial: which rows left anything out.
        first: the first row of each key.
        last: the last row of each key.
    """

    def __init__(self, batch: pa.RecordBatch, layout: FoldLayout) -> None:
        self.batch = batch
        self.layout = layout
        self._names = _names_in_front(batch, layout)
        self.hi = self.numbers(HI).view(np.uint64)
        self.lo = self.numbers(LO).view(np.uint64)
        self.deleted: NDArray[np.bool_] = self.numbers(ACTION) == DELETE
        self.unsent = self._unsent()
        self.partial = np.zeros(len(self), np.bool_)
        for mask in self.unsent.values():
            self.partial |= mask
        self._begins = self._first_of_key()
        self.first = np.flatnonzero(self._begins)
        self.last = np.append(self.first, len(self))[1:] - 1

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array | None:
        """A column in front of the mirror's."""
        index = self._names.get(name)
        return None if index is None else self.batch.column(index)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A column in front of the mirror's that must be there and has no nulls."""
        found: NDArray[np.int64] = self.batch.column(self._names[name]).to_numpy()
        return found

    @property
    def sequence(self) -> pa.Array:
        """The sequence of each change."""
        return self.batch.column(self._names[SEQUENCE])

    @property
    def images(self) -> pa.RecordBatch:
        """The mirror's columns alone."""
        return self.batch.select(list(range(len(self._names), self.batch.num_columns)))

    def last_where(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The last row of each key for which the mask is set; negative if there is none."""
        marked = np.where(mask, np.arange(len(self)), -1)
        found = np.maximum.accumulate(marked)[self.last]
        return np.where(found < self.first, -1, found)

    @property
    def linked(self) -> NDArray[np.bool_]:
        """Which rows keep columns of the row that another key had."""
        previous = self.column(PREVIOUS_HI)
        if previous is None:
            return np.zeros(len(self), np.bool_)
        known: NDArray[np.bool_] = previous.is_valid().to_numpy(zero_copy_only=False)
        return known & self.partial

    @property
    def merged(self) -> NDArray[np.bool_]:
        """Which rows were merged before, and are only compared with."""
        column = self.column(MERGED)
        if column is None:
            return np.zeros(len(self), np.bool_)
        found: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return found

    @property
    def orphaned(self) -> NDArray[np.bool_]:
        """Which rows keep columns of a row that an applied DELETE has just removed."""
        found = np.zeros(len(self), np.bool_)
        if self.layout.deletes is Deletes.APPLY:
            found[1:] = self.partial[1:] & self.deleted[:-1] & ~self._begins[1:]
        return found

    def without_repeats(self) -> tuple[ChangeRows, int]:
        """The same changes, each once, and how many were dropped.

        Raises DuplicateKeyError for different changes of one key at one sequence.
        """
        if self.sequence.null_count:
            raise ValueError("changes have no sequence")
        followers = np.flatnonzero(~self._begins)
        if not len(followers):
            return self, 0
        above, below = self.sequence.take(followers - 1), self.sequence.take(followers)
        if pc.any(pc.less(below, above)).as_py():
            raise ValueError("changes are not sorted by sequence")
        ties = followers[pc.equal(above, below).to_numpy(zero_copy_only=False)]
        if not len(ties):
            return self, 0
        clashing = ties[~self._same(ties - 1, ties)]
        if len(clashing):
            keys = np.unique(np.searchsorted(self.first, clashing, side="right"))
            raise clashing_changes(len(keys))
        rest = self.batch.take(np.delete(np.arange(len(self)), ties))
        return ChangeRows(rest, self.layout), len(ties)

    def _same(self, ones: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether rows are the same change; of DELETEs only the key counts."""
        same: NDArray[np.bool_] = self.deleted[ones] == self.deleted[others]
        upserts = np.flatnonzero(same & ~self.deleted[ones])
        one, other = ones[upserts], others[upserts]
        alike = np.ones(len(upserts), np.bool_)
        for previous in map(self.column, (PREVIOUS_HI, PREVIOUS_LO)):
            if previous is not None:
                alike &= same_values(previous.take(one), previous.take(other))
        for column, values in zip(self.layout.columns, self.images.columns, strict=True):
            equal = same_values(values.take(one), values.take(other))
            unsent = self.unsent.get(column.id)
            if unsent is not None:
                equal = (unsent[one] == unsent[other]) & (unsent[one] | equal)
            alike &= equal
        same[upserts] = alike
        return same

    def _unsent(self) -> dict[int, NDArray[np.bool_]]:
        masks = self._named_unchanged()
        if self.layout.deletes is Deletes.SOFT and self.deleted.any():
            none = np.zeros(len(self), np.bool_)
            ids = self.layout.optional_ids
            return {id_: masks.get(id_, none) | self.deleted for id_ in ids}
        sent = {id_: mask & ~self.deleted for id_, mask in masks.items()}
        return {id_: mask for id_, mask in sent.items() if mask.any()}

    def _named_unchanged(self) -> dict[int, NDArray[np.bool_]]:
        lists = self.column(UNCHANGED)
        if lists is None or lists.null_count == len(lists):
            return {}
        # Not Arrow's own parent indices: those include values hidden under a null.
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        owners = np.repeat(np.arange(len(lists)), lengths)
        named = pc.list_flatten(lists)
        ids = named.to_numpy()
        masks = {}
        for id_ in self.layout.optional_ids.intersection(named.unique().to_pylist()):
            masks[id_] = np.zeros(len(self), np.bool_)
            masks[id_][owners[ids == id_]] = True
        return masks

    def _first_of_key(self) -> NDArray[np.bool_]:
        begins = np.ones(len(self), np.bool_)
        hi, lo = self.hi, self.lo
        same_hi = hi[1:] == hi[:-1]
        begins[1:] = ~same_hi | (lo[1:] != lo[:-1])
        # By default Spark sorts the two halves as signed numbers.
        if np.any(hi[1:] < hi[:-1]) or np.any(same_hi & (lo[1:] < lo[:-1])):
            raise ValueError("changes are not sorted by key, both halves unsigned")
        return begins


def without_deletes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The upserts only: ignored deletes do not even contradict one."""
    return batch.filter(pc.not_equal(batch.column(ACTION), DELETE))


def _names_in_front(batch: pa.RecordBatch, layout: FoldLayout) -> dict[str, int]:
    names = batch.schema.names
    front = len(names) - len(layout.columns)
    if names[front:] != [column.name for column in layout.columns]:
        raise ValueError("the mirror's columns are not the last ones, or not in order")
    return {name: index for index, name in enumerate(names[:front])}


def same_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Where two arrays of one type and length agree; null is the same as null, NaN as NaN.

    Arrow itself treats two NaNs as different and does not compare lists, structs and maps by
    element.
    """
    there, also_there = _mask(left.is_valid()), _mask(right.is_valid())
    same: NDArray[np.bool_] = there == also_there
    both = np.flatnonzero(there & also_there)
    if len(both) < len(left):
        left, right = left.take(both), right.take(both)
    same[both] = _same_present(left, right)
    return same


def _same_present(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """The same for arrays without nulls at the top."""
    kind = left.type
    if pt.is_null(kind):
        return np.ones(len(left), np.bool_)
    if pt.is_struct(kind):
        pairs = zip(left.flatten(), right.flatten(), strict=True)
        found = np.ones(len(left), np.bool_)
        for one, other in pairs:
            found &= same_values(one, other)
        return found
    if pt.is_map(kind):
        (keys, items), (other_keys, other_items) = map_as_lists(left), map_as_lists(right)
        return _same_lists(keys, other_keys) & _same_lists(items, other_items)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _same_lists(left, right)
    if isinstance(kind, pa.ExtensionType):
        return same_values(left.storage, right.storage)
    same = _mask(pc.equal(left, right))
    if pt.is_floating(kind):
        same |= _mask(pc.is_nan(left)) & _mask(pc.is_nan(right))
    return same


def _same_lists(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    lengths = np.asarray(pc.list_value_length(left))
    same: NDArray[np.bool_] = lengths == np.asarray(pc.list_value_length(right))
    rows = np.flatnonzero(same)
    elements = same_values(left.take(rows).flatten(), right.take(rows).flatten())
    owners = np.repeat(rows, lengths[rows])
    same[owners[~elements]] = False
    return same


def _mask(booleans: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = booleans.to_numpy(zero_copy_only=False)
    return found


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
