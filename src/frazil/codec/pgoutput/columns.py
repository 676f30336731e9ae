"""Row images of many messages split into columns at once: no loop runs over rows.

All images of a table are read together, one column at a time: a vector has the offset of each of
them, and a step reads kind and length at all these offsets and moves on. Texts become Arrow arrays
without being touched one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.byte_slices import take_slices
from frazil.codec.malformed import MalformedFileError, refuse_where
from frazil.codec.pgoutput.messages import ImageKind, MessageKind, ValueKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.codec.pgoutput.frames import Frames
    from frazil.codec.pgoutput.messages import Relation

# Before a value: its kind in one byte and its length in four.
_VALUE_HEAD = 5
_COUNT_BYTES = 2
_RELATION_BYTES = 4


@dataclass(frozen=True, eq=False, slots=True)
class TextColumn:
    """One column of many row images, as PostgreSQL prints it.

    ``values`` is NULL where the row has NULL and also where ``is_unchanged``: there the value is
    what it was before the update. Its bytes may be no UTF-8, which a server promises only if its
    database has an encoding; ``pgtext`` checks them, so that the text of one table does not stop
    the others.
    """

    values: pa.StringArray
    is_unchanged: NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class RowImages:
    """The images that some of a table's changes have; ``changes`` says which ones, ascending."""

    changes: NDArray[np.int64]
    columns: tuple[TextColumn, ...]


@dataclass(frozen=True, eq=False, slots=True)
class RelationChanges:
    """All changes to rows of one table while it had one shape, in the order they came.

    ``numbers`` are those of their messages. ``kinds`` are of MessageKind: inserts, updates and
    deletes. ``xids`` name the subtransaction of streamed ones and are zero for others. ``old``
    holds the rows as they were, as far as they were sent, and ``old_kinds`` (of ImageKind) says
    which of those are complete and which are keys.
    """

    relation: Relation
    numbers: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    xids: NDArray[np.uint32]
    new: RowImages
    old: RowImages
    old_kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False, slots=True)
class RowMessages:
    """Messages of one table: their numbers and kinds, and where their relation's number is."""

    numbers: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    xids: NDArray[np.uint32]
    body: NDArray[np.int64]


def split_rows(frames: Frames, rows: RowMessages, relation: Relation) -> RelationChanges:
    """The columns of these messages, whose relation this is; MalformedFileError if they have not.

    Values in PostgreSQL's binary form are refused: the stream was requested as text.
    """
    splitter = _Splitter(frames, rows.numbers, width=len(relation.columns))
    at = rows.body + _RELATION_BYTES
    image_kinds = splitter.image_kinds(at)
    _check_first_image(rows.kinds, image_kinds, at)
    has_old = np.flatnonzero(image_kinds != ImageKind.NEW)
    old, at[has_old] = splitter.split(at[has_old], has_old)
    updated = has_old[rows.kinds[has_old] == MessageKind.UPDATE]
    found = splitter.image_kinds(at[updated], updated)
    refuse_where(found != ImageKind.NEW, at[updated], "expected a row image N after the old one")
    has_new = np.flatnonzero(rows.kinds != MessageKind.DELETE)
    new, at[has_new] = splitter.split(at[has_new], has_new)
    refuse_where(at != splitter.ends, at, "expected the end of the message, found more bytes")
    return RelationChanges(
        relation, rows.numbers, rows.kinds, rows.xids, new, old, image_kinds[has_old]
    )


def _check_first_image(
    kinds: NDArray[np.uint8], image_kinds: NDArray[np.uint8], at: NDArray[np.int64]
) -> None:
    is_new = image_kinds == ImageKind.NEW
    is_old = (image_kinds == ImageKind.OLD_KEY) | (image_kinds == ImageKind.OLD_ROW)
    is_right = (is_new & (kinds != MessageKind.DELETE)) | (is_old & (kinds != MessageKind.INSERT))
    refuse_where(~is_right, at, "expected a row image that such a message has")


class _Splitter:
    """The messages of one table, each with its end."""

    def __init__(self, frames: Frames, numbers: NDArray[np.int64], *, width: int) -> None:
        self.ends = frames.offsets[numbers + 1]
        self._octets = frames.octets
        self._longs = frames.longs
        self._frames = frames
        self._width = width

    def image_kinds(
        self, at: NDArray[np.int64], rows: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.uint8]:
        """The byte at each of these offsets, one for each row."""
        refuse_where(at >= self.ends[rows], at, "expected a kind of row image")
        return self._octets[at]

    def split(
        self, at: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[RowImages, NDArray[np.int64]]:
        """The images that start at these offsets, and where they end; ``at`` is their kind's."""
        if not len(rows):
            return RowImages(rows, (_no_texts(),) * self._width), at
        ends = self.ends[rows]
        at = self._after_counts(at + 1, ends)
        columns = []
        for number in range(self._width):
            column, at = self._column(at, ends, number)
            columns.append(column)
        return RowImages(rows, tuple(columns)), at

    def _after_counts(self, at: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        refuse_where(at + _COUNT_BYTES > ends, at, "expected a number of columns")
        counts = self._longs[at] >> np.uint64(48)
        wrong = counts != self._width
        if wrong.any():
            what = f"expected {self._width} columns as the relation has, found {counts[wrong][0]}"
            raise MalformedFileError(what, offset=int(at[wrong.argmax()]))
        return at + _COUNT_BYTES

    def _column(
        self, at: NDArray[np.int64], ends: NDArray[np.int64], number: int
    ) -> tuple[TextColumn, NDArray[np.int64]]:
        refuse_where(at >= ends, at, f"expected column {number}, found the end of the message")
        heads = self._longs[at].astype(np.uint64)
        kinds = (heads >> np.uint64(56)).astype(np.uint8)
        is_text = kinds == ValueKind.TEXT
        is_unchanged = kinds == ValueKind.UNCHANGED
        is_known = is_text | is_unchanged | (kinds == ValueKind.NULL)
        refuse_where(~is_known, at, f"expected column {number} to be of kind n, u or t")
        lengths = ((heads >> np.uint64(24)) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        # What has no value has no length: it ends after its kind, and its text is empty.
        starts = at + np.where(is_text, _VALUE_HEAD, 1)
        stops = starts + np.where(is_text, lengths, 0)
        what = f"expected column {number} to end with the message, or before"
        refuse_where(stops > ends, at, what)
        texts = take_slices(self._frames.data, starts, stops, is_known=is_text).view(pa.string())
        return TextColumn(texts, is_unchanged), stops


def _no_texts() -> TextColumn:
    return TextColumn(pa.array([], pa.string()), np.zeros(0, np.bool_))
