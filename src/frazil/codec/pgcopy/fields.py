"""The binary form of COPY, split into columns at once: no loop runs over rows.

A message is one row: a number of fields, and before each field its length, or −1 for NULL. A
header comes with the first message or before it, and a last message of two bytes says that
nothing is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.byte_slices import take_slices
from frazil.codec.malformed import MalformedFileError, refuse_where
from frazil.codec.pgoutput.frames import Frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import DTypeLike, NDArray

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
# Then flags and the length of an extension, four bytes each, none of which is in use.
_HEADER = _SIGNATURE + bytes(8)
_TRAILER = b"\xff\xff"
_COUNT_BYTES = 2
_LENGTH_BYTES = 4
_NULL_LENGTH = -1


@dataclass(frozen=True, eq=False, slots=True)
class BinaryColumn:
    """One field of many rows: where each value starts and stops; the same offset for NULL."""

    frames: Frames
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    is_known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def validity(self) -> pa.Buffer | None:
        """Arrow's bitmap of what is not NULL; None when nothing is."""
        if self.is_known.all():
            return None
        return pa.py_buffer(np.packbits(self.is_known, bitorder="little"))

    def take(self, rows: NDArray[np.int64]) -> BinaryColumn:
        """The field of some of the rows; no value is copied."""
        return BinaryColumn(self.frames, self.starts[rows], self.stops[rows], self.is_known[rows])

    def require_size(self, size: int) -> None:
        """MalformedFileError unless every value has so many bytes."""
        wrong = self.is_known & (self.stops - self.starts != size)
        refuse_where(wrong, self.starts, f"expected a value of {size} bytes")

    def numbers(
        self,
        kind: DTypeLike,
        *,
        after: int = 0,
        rows: NDArray[np.int64] | slice = slice(None),
    ) -> NDArray[np.generic]:
        """What is read as this kind of number so many bytes into each value.

        Where a value has no such bytes it is anything: sizes are to be checked before.
        """
        view = _view(self.frames, kind)
        at = self.starts[rows]
        return view[np.minimum(at + after, len(view) - 1) if after else at]

    def octets(self, *, after: int = 0) -> pa.BinaryArray:
        """The bytes of each value but for the first few."""
        starts = self.starts + np.where(self.is_known, after, 0)
        return take_slices(self.frames.data, starts, self.stops, is_known=self.is_known)


def rows_alone(blocks: Iterable[Frames]) -> Iterator[Frames]:
    """The rows of a copy; MalformedFileError when its header or its end is not there."""
    has_begun = has_ended = False
    for block in blocks:
        offsets = block.offsets
        if not has_begun:
            offsets = _after_header(block)
            has_begun = True
        rows = Frames(block.data, offsets)
        if len(rows) and rows.message(len(rows) - 1) == _TRAILER:
            has_ended = True
            rows = Frames(block.data, offsets[:-1])
        if len(rows):
            yield rows
    if not has_ended:
        raise MalformedFileError("expected the end of a copy in binary form", offset=0)


def _after_header(block: Frames) -> NDArray[np.int64]:
    """The offsets of rows in the first block; the header may be a message of its own."""
    if not block.message(0).startswith(_HEADER):
        raise MalformedFileError("expected the header of a copy in binary form", offset=0)
    offsets = block.offsets.copy()
    offsets[0] += len(_HEADER)
    return offsets if offsets[0] < offsets[1] else offsets[1:]


def split_fields(frames: Frames, width: int) -> tuple[BinaryColumn, ...]:
    """The columns of these rows; MalformedFileError if they have not so many."""
    at, ends = frames.offsets[:-1], frames.offsets[1:]
    refuse_where(at + _COUNT_BYTES > ends, at, "expected a number of fields")
    counts = _view(frames, ">i2")[at]
    refuse_where(counts != width, at, f"expected a row of {width} fields")
    at = at + _COUNT_BYTES
    lengths = _view(frames, ">i4")
    columns = []
    for number in range(width):
        starts = at + _LENGTH_BYTES
        refuse_where(starts > ends, at, f"expected field {number}, found the end of the row")
        sizes = lengths[at].astype(np.int64)
        is_known = sizes != _NULL_LENGTH
        refuse_where(sizes < _NULL_LENGTH, at, f"expected field {number} to have a length")
        at = starts + np.maximum(sizes, 0)
        refuse_where(at > ends, starts, f"expected field {number} to end with the row, or before")
        columns.append(BinaryColumn(frames, starts, at, is_known))
    refuse_where(at != ends, at, "expected the end of the row, found more bytes")
    return tuple(columns)


def _view(frames: Frames, kind: DTypeLike) -> NDArray[np.generic]:
    """What is at each byte, read as this kind of number, without a copy."""
    found = np.dtype(kind)
    count = len(frames.data) - found.itemsize + 1
    return np.ndarray((count,), found, frames.data, strides=(1,))
