"""Changes of one shape of a table cut into rows: what came, what went, and where text comes from.

An update whose key changed is two rows: the old key goes, then the new row comes. Every other
change is one. What an update leaves unchanged is filled from the old image where that has it: a
complete old row has every column, a key image those of the replica identity.

No key is ever guessed. It is known when an image has it, and an update without an old image has
not changed it: servers send the old key whenever a column of the replica identity changed or is
stored out of line. Servers before 14.3 forgot the latter. An update of theirs that does not have
its key is refused as a missing image, and so is everything else that would need a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgoutput.messages import ImageKind, MessageKind
from frazil.errors import MissingImageError, UnsupportedSchemaChangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from frazil.codec.pgoutput.columns import RelationChanges
    from frazil.errors import FrazilError

_NO_TEXT = pa.scalar(None, pa.string())
RESYNC = "run `frazil resync` for this table"


class RefusedRowsError(Exception):
    """Changes that cannot become rows; ``number`` is that of the first message concerned.

    The caller knows the table and the position, and reports them with ``reason``.
    """

    def __init__(self, reason: FrazilError, *, number: int) -> None:
        super().__init__(reason, number)
        self.reason = reason
        self.number = number


@dataclass(frozen=True, eq=False, slots=True)
class ColumnTexts:
    """One column of all rows, first of those that came and then of those that went.

    ``gone`` is None where no row that went has a value. ``is_unchanged`` is about rows that came,
    and None if there all is known.
    """

    new: pa.StringArray
    gone: pa.StringArray | None
    is_unchanged: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False, slots=True)
class CutRows:
    """Rows in the order of the changes they come from.

    ``numbers`` are those of the messages, and ``kinds`` what the row is by itself. ``order`` leads
    to the images, those that came and then those that went. Rows that came under a new key are
    ``is_moved``; the one that went comes right before. ``new`` and ``gone`` are indexes of
    images, and ``filling`` has for each new one the index of the old one, or -1.
    """

    changes: RelationChanges
    numbers: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    order: NDArray[np.int64]
    is_moved: NDArray[np.bool_]
    new: NDArray[np.int64]
    filling: NDArray[np.int64]
    gone: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def texts(self, index: int) -> ColumnTexts:
        """The column at this index of the relation."""
        column = self.changes.new.columns[index]
        text = _taken(column.values, self.new)
        unchanged = column.is_unchanged[self.new]
        if unchanged.any():
            fills = unchanged & (self.filling >= 0)
            fills[fills] = self._has_old(index)[self.filling[fills]]
            text = self._filled(text, index, fills)
            unchanged &= ~fills
        gone = self._gone_text(index)
        return ColumnTexts(text, gone, unchanged if unchanged.any() else None)

    def _has_old(self, index: int) -> NDArray[np.bool_]:
        """Which old images have a value in this column, NULL included."""
        has_value = ~self.changes.old.columns[index].is_unchanged
        if not self.changes.relation.columns[index].is_key:
            has_value &= self.changes.old_kinds == ImageKind.OLD_ROW
        return has_value

    def _filled(self, text: pa.StringArray, index: int, fills: NDArray[np.bool_]) -> pa.StringArray:
        if not fills.any():
            return text
        both = pa.concat_arrays([text, self.changes.old.columns[index].values])
        return both.take(pa.array(np.where(fills, self.filling + len(text), np.arange(len(text)))))

    def _gone_text(self, index: int) -> pa.StringArray | None:
        has_value = self._has_old(index)[self.gone]
        if not has_value.any():
            return None
        text = _taken(self.changes.old.columns[index].values, self.gone)
        return text if has_value.all() else pc.if_else(has_value, text, _NO_TEXT)


def cut_rows(changes: RelationChanges, kept: NDArray[np.int64], key: Sequence[int]) -> CutRows:
    """The rows of the changes at these indexes, ascending; ``key`` are indexes of columns.

    Raises RefusedRowsError if a key is not known.
    """
    kinds = changes.kinds[kept]
    new_at = _indexes(changes.new.changes, len(changes))[kept]
    old_at = _indexes(changes.old.changes, len(changes))[kept]
    keys = _Keys(changes, new_at, old_at, key)
    keys.refuse_unknown(kinds, changes.numbers[kept])
    is_new = new_at >= 0
    is_moved = keys.is_moved()
    is_gone = is_moved | ~is_new
    counts = is_new.astype(np.int64) + is_gone
    ends = np.cumsum(counts)
    new_rows, gone_rows, moved_rows = ends[is_new] - 1, (ends - counts)[is_gone], ends[is_moved] - 1
    row_kinds = np.repeat(kinds, counts)
    row_kinds[gone_rows] = MessageKind.DELETE
    row_kinds[moved_rows] = MessageKind.INSERT
    order = np.empty(len(row_kinds), np.int64)
    order[new_rows] = np.arange(len(new_rows))
    order[gone_rows] = np.arange(len(gone_rows)) + len(new_rows)
    return CutRows(
        changes=changes,
        numbers=np.repeat(changes.numbers[kept], counts),
        kinds=row_kinds,
        order=order,
        is_moved=_marked(moved_rows, len(row_kinds)),
        new=new_at[is_new],
        filling=old_at[is_new],
        gone=old_at[is_gone],
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Keys:
    """The keys of changes whose images are at these indexes, -1 for none."""

    changes: RelationChanges
    new_at: NDArray[np.int64]
    old_at: NDArray[np.int64]
    key: Sequence[int]

    def refuse_unknown(self, kinds: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
        uncovered = self._is_uncovered(kinds)
        wrong = uncovered | self._is_missing()
        if not wrong.any():
            return
        first = int(wrong.argmax())
        reason = _uncovered_key() if uncovered[first] else _missing_key()
        raise RefusedRowsError(reason, number=int(numbers[first]))

    def _is_uncovered(self, kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Changes of rows whose old key is incomplete, or might be another without being sent."""
        columns = self.changes.relation.columns
        if all(columns[index].is_key for index in self.key):
            return np.zeros(len(kinds), np.bool_)
        has_full_row = self.old_at >= 0
        is_full_row = self.changes.old_kinds == ImageKind.OLD_ROW
        has_full_row[has_full_row] = is_full_row[self.old_at[has_full_row]]
        uncovered: NDArray[np.bool_] = (kinds != MessageKind.INSERT) & ~has_full_row
        return uncovered

    def _is_missing(self) -> NDArray[np.bool_]:
        missing = np.zeros(len(self.new_at), np.bool_)
        has_new, has_old = self.new_at >= 0, self.old_at >= 0
        for index in self.key:
            new = self.changes.new.columns[index].is_unchanged
            old = self.changes.old.columns[index].is_unchanged
            if new.any():
                missing[has_new] |= new[self.new_at[has_new]] & ~has_old[has_new]
            if old.any():
                missing[has_old] |= old[self.old_at[has_old]]
        return missing

    def is_moved(self) -> NDArray[np.bool_]:
        """Updates whose old key, as printed, is not the new one."""
        moved = np.zeros(len(self.new_at), np.bool_)
        both = np.flatnonzero((self.new_at >= 0) & (self.old_at >= 0))
        if not len(both):
            return moved
        new_at, old_at = self.new_at[both], self.old_at[both]
        for index in self.key:
            column = self.changes.new.columns[index]
            new = _taken(column.values, new_at)
            old = _taken(self.changes.old.columns[index].values, old_at)
            moved[both] |= _differ(new, old) & ~column.is_unchanged[new_at]
        return moved


def _differ(some: pa.StringArray, others: pa.StringArray) -> NDArray[np.bool_]:
    """Where texts are not the same, bytewise; NULL is the same as NULL."""
    differ: NDArray[np.bool_] = np.array(pc.fill_null(pc.not_equal(some, others), fill_value=False))
    if some.null_count or others.null_count:
        differ |= np.asarray(some.is_null()) != np.asarray(others.is_null())
    return differ


def _indexes(changes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """For each change the index of its image, or -1."""
    indexes = np.full(count, -1, np.int64)
    indexes[changes] = np.arange(len(changes))
    return indexes


def _marked(indexes: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    marked = np.zeros(count, np.bool_)
    marked[indexes] = True
    return marked


def _taken(values: pa.StringArray, indexes: NDArray[np.int64]) -> pa.StringArray:
    """Values at these indexes, which ascend: as many as there are means all of them."""
    return values if len(indexes) == len(values) else values.take(pa.array(indexes))


def _uncovered_key() -> UnsupportedSchemaChangeError:
    message = "the replica identity does not have all columns of the key, so that keys may change "
    message += "without being sent"
    return UnsupportedSchemaChangeError(message, next_step=RESYNC)


def _missing_key() -> MissingImageError:
    message = "a column of the key was sent neither in the new row nor in the old key"
    return MissingImageError(message, next_step=RESYNC)
