"""Whether two columns hold the same values, row by row, nested ones included.

Arrow itself treats two NaNs as different and does not compare lists, structs and maps by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from frazil.clients.iceberg.write.conforming import map_as_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray


def same_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Where two arrays of one type and length agree; null is the same as null, NaN as NaN."""
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
