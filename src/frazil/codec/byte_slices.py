"""Values that lie in one stretch of memory with gaps between them, as one Arrow array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def take_slices(
    data: bytes | memoryview,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    *,
    is_known: NDArray[np.bool_],
) -> pa.BinaryArray:
    """The bytes from each start to its stop; null where they are not known."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    # Arrow's values follow each other without a gap. So the gaps become values as well, and
    # every second one is taken, which copies the bytes in long strides.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = stops
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    every_second = np.arange(0, 2 * count, 2, dtype=np.int32)
    return with_gaps.take(pa.array(every_second, mask=None if is_known.all() else ~is_known))
