"""Changes of many keys as one sorted Arrow batch, processed without a loop over rows.

The columns of ``change_columns`` precede the mirror's; those that a changelog does not have may be
missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.merge.folding.fold import clashing_changes
from frazil.merge.folding.row_equality import same_values
from frazil.merge.planning.change_columns import (
    ACTION,
    HI,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    UNCHANGED,
)
from frazil.model.policy import Deletes

if TYPE_CHECKING:
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
