"""Many messages one after another in one stretch of memory, or in a segment of the spool.

A segment has them as they came from a replication stream, for tasks to decode:
``magic · message · message · … · lengths · count · CRC-32 · magic``; lengths are 32-bit and the
count is 64-bit, both unsigned and little-endian. The checksum covers all before it. Lengths are
together at the end: a writer learns them one by one, a reader needs them all at once. A segment
that was not finished has no end and is refused.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.malformed import MalformedFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BytesIO

    from numpy.typing import NDArray

# Messages are read in units of this many bytes, also at their very end.
MARGIN = 8
# Arrow's texts count their bytes with 31 bits; a single message is at most 1 GiB.
MOST_BYTES = (1 << 31) - 1
MAGIC = b"FRZSPL1\n"

_COUNT = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_LENGTH = np.dtype("<u4")
_END = _COUNT.size + _CHECKSUM.size + len(MAGIC)


@dataclass(frozen=True, eq=False, slots=True)
class Frames:
    """Messages in the order they came: the one numbered ``i`` lies between two offsets.

    ``data`` goes on for ``MARGIN`` bytes or more after the last of them.
    """

    data: bytes | memoryview
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        if not 0 <= self.offsets[0] <= self.offsets[-1] <= len(self.data) - MARGIN:
            raise ValueError("messages lie inside the data, before its margin")
        if len(self.data) > MOST_BYTES:
            message = f"messages take {len(self.data)} bytes, and together at most {MOST_BYTES}"
            raise ValueError(message)

    @classmethod
    def of(cls, messages: Sequence[bytes]) -> Frames:
        """Copies of these messages."""
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        data = b"".join(chain(messages, (bytes(MARGIN),)))
        return cls(data, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    @classmethod
    def written(cls, data: BytesIO, sizes: Sequence[int]) -> Frames:
        """Messages of these sizes that were written one after another; nothing is copied."""
        data.write(bytes(MARGIN))
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(np.array(sizes, np.int64), out=offsets[1:])
        return cls(data.getbuffer(), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def message(self, number: int) -> bytes:
        """The bytes of one message."""
        return bytes(self.data[self.offsets[number] : self.offsets[number + 1]])

    @property
    def octets(self) -> NDArray[np.uint8]:
        """Every byte, without a copy."""
        return np.frombuffer(self.data, np.uint8)

    @property
    def longs(self) -> NDArray[np.uint64]:
        """The eight bytes that start at each byte, as big-endian numbers, without a copy."""
        count = max(0, len(self.data) - MARGIN + 1)
        return np.ndarray((count,), np.dtype(">u8"), self.data, strides=(1,))


class SegmentAssembly:
    """A segment made piece by piece: what each call returns is written, in that order.

    Keeps four bytes for each message and none of its content.
    """

    def __init__(self) -> None:
        self._lengths = array("I")
        self._checksum = 0
        self._size = 0
        self._is_finished = False

    def __len__(self) -> int:
        """How many messages were added so far."""
        return len(self._lengths)

    @property
    def size(self) -> int:
        """How many bytes were handed out so far."""
        return self._size

    def add(self, messages: Sequence[bytes]) -> bytes:
        """The bytes to write for these messages; ValueError for more than a segment can hold."""
        if self._is_finished:
            raise ValueError("this segment is finished")
        lengths = [len(message) for message in messages]
        # Checked before the messages are joined: so much need not fit into memory.
        if self._size + sum(lengths) + _around(len(self) + len(lengths)) > MOST_BYTES:
            message = f"a segment has at most {MOST_BYTES} bytes"
            raise ValueError(message)
        self._lengths.extend(lengths)
        return self._hand_out(b"".join(messages))

    def finish(self) -> bytes:
        """The last bytes of the segment; nothing can be added after them."""
        if self._is_finished:
            raise ValueError("this segment is finished")
        lengths = np.array(self._lengths, _LENGTH).tobytes()
        body = self._hand_out(lengths + _COUNT.pack(len(self)))
        self._is_finished = True
        end = _CHECKSUM.pack(self._checksum) + MAGIC
        self._size += len(end)
        return body + end

    def _hand_out(self, body: bytes) -> bytes:
        handed_out = body if self._size else MAGIC + body
        self._checksum = zlib.crc32(handed_out, self._checksum)
        self._size += len(handed_out)
        return handed_out


def _around(count: int) -> int:
    """What a segment with so many messages takes in addition to them."""
    return len(MAGIC) + count * _LENGTH.itemsize + _END


def read_segment(data: bytes | memoryview) -> Frames:
    """The messages of an entire segment, which are not copied; MalformedFileError for any other."""
    end = len(data) - _END
    if end < len(MAGIC) or data[: len(MAGIC)] != MAGIC or data[-len(MAGIC) :] != MAGIC:
        raise MalformedFileError("expected a finished segment of the spool", offset=0)
    if len(data) > MOST_BYTES:
        what = f"expected at most {MOST_BYTES} bytes, found {len(data)}"
        raise MalformedFileError(what, offset=0)
    covered = end + _COUNT.size
    if data[covered : covered + _CHECKSUM.size] != _CHECKSUM.pack(
        zlib.crc32(memoryview(data)[:covered])
    ):
        raise MalformedFileError("expected another CRC-32: the segment is damaged", offset=covered)
    (count,) = _COUNT.unpack_from(data, end)
    space = end - len(MAGIC)
    if count * _LENGTH.itemsize > space:
        what = f"expected at most {space // _LENGTH.itemsize} messages, found {count}"
        raise MalformedFileError(what, offset=end)
    lengths = np.frombuffer(data, _LENGTH, count, end - count * _LENGTH.itemsize)
    offsets = np.empty(count + 1, np.int64)
    offsets[0] = len(MAGIC)
    np.cumsum(lengths, out=offsets[1:])
    offsets[1:] += len(MAGIC)
    if offsets[-1] != end - count * _LENGTH.itemsize:
        raise MalformedFileError("expected lengths that add up to the messages'", offset=end)
    return Frames(data, offsets)
