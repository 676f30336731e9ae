"""Many messages one after another in one stretch of memory, and where each of them lies."""

from __future__ import annotations

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


def refuse_where(wrong: NDArray[np.bool_], at: NDArray[np.int64], what: str) -> None:
    """Raise MalformedFileError with the first offset that is wrong, if there is one."""
    if wrong.any():
        raise MalformedFileError(what, offset=int(at[wrong.argmax()]))
