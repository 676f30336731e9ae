"""Rebuilds lists and maps with converted elements; null and empty stay distinct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[pa.Array], pa.Array]


def rebuild_list(array: pa.Array, wanted: pa.DataType, element: Convert) -> pa.Array:
    """The same lists with converted elements; values hidden under a null list are dropped."""
    offsets, values = _visible(array, array.values)
    return pa.ListArray.from_arrays(offsets, element(values), wanted, mask=null_mask(array))


def rebuild_map(array: pa.Array, wanted: pa.DataType, key: Convert, item: Convert) -> pa.Array:
    """The same maps with other keys and values; likewise."""
    offsets, keys = _visible(array, array.keys)
    items = item(_visible(array, array.items)[1])
    return pa.MapArray.from_arrays(offsets, key(keys), items, wanted, mask=null_mask(array))


def map_as_lists(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A map's keys and its values, as lists of their own."""
    mask = null_mask(array)
    pairs = (_visible(array, inner) for inner in (array.keys, array.items))
    keys, items = (pa.ListArray.from_arrays(*each, mask=mask) for each in pairs)
    return keys, items


def null_mask(array: pa.Array) -> pa.Array | None:
    """Where the array is null; None where it is not."""
    return array.is_null() if array.null_count else None


def _visible(array: pa.Array, inner: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The inner values that are not under a null, and the offsets of the lists among them.

    Arrow's own ``flatten`` does not support maps, or extension types if all lists are null.
    """
    # An array without rows may have no offsets, and Arrow would read arbitrary memory.
    offsets = np.asarray(array.offsets) if len(array) else np.zeros(1, np.int32)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), 0, lengths)
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    first, count = int(offsets[0]), int(begins[-1])
    if count == int(offsets[-1]) - first:
        return pa.array(begins), inner.slice(first, count)
    # From each list's own beginning on, one by one.
    at = np.arange(count) + np.repeat(offsets[:-1] - begins[:-1], lengths)
    return pa.array(begins), inner.take(pa.array(at))
