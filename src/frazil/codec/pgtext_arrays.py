r"""Arrays as Postgres prints them: ``{1,NULL,"a \"quoted\" one"}``.

One dimension with the lower bound 1 is a list. Several dimensions, and bounds such as
``[2:4]={…}``, say more than a list can and are misfits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgtext_reading import Read, octets, sift

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.codec.pgtext_reading import Mask, Octets, Offsets

    _Positions = np.ndarray[tuple[int], np.dtype[np.intp]]

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BOUNDS = r"(?:\[-?\d+:-?\d+\])+="
_NESTED = r"\{\{.*\}\}"
_EMPTY = "{}"
_ABSENT = pa.scalar(None, pa.string())
_OPEN, _CLOSE, _QUOTE, _BACKSLASH = (ord(each) for each in '{}"\\')
# An element of this text without quotes; the word itself is printed in quotes.
_NULL = np.frombuffer(b"NULL", np.uint8)


def read_arrays(
    text: pa.StringArray, delimiter: str, read_elements: Callable[[pa.StringArray], Read]
) -> Read:
    """Lists; an array with one element that is a misfit is one itself.

    Raises NotAsPrintedError like ``read_elements``, which is given all elements of all arrays.
    """
    kept, misfits = sift(
        text, fits=f"(?s){_flat(delimiter)}", printed=rf"(?s){_BOUNDS}\{{.*\}}|{_NESTED}"
    )
    parts = _split(pc.fill_null(kept, _EMPTY), ord(delimiter))
    elements = read_elements(parts.elements)
    if elements.misfits is not None:
        owners = np.repeat(np.arange(len(text)), np.diff(parts.offsets))
        spoilt = np.zeros(len(text), np.bool_)
        spoilt[owners[elements.misfits]] = True
        # Once more without them: a null list must not hide elements, Parquet has no place for them.
        again = read_arrays(pc.if_else(spoilt, _ABSENT, kept), delimiter, read_elements)
        return Read(again.values, spoilt if misfits is None else spoilt | misfits)
    values = pa.ListArray.from_arrays(
        pa.array(parts.offsets),
        elements.values,
        pa.list_(pa.field("element", elements.values.type)),
        mask=kept.is_null(),
    )
    return Read(values, misfits)


def _flat(delimiter: str) -> str:
    element = rf'(?:{_QUOTED}|[^"\\{{}}{re.escape(delimiter)}]+)'
    return rf"\{{(?:{element}(?:{re.escape(delimiter)}{element})*)?\}}"


@dataclass(frozen=True, slots=True)
class _Parts:
    """The elements of all arrays in a row, and where those of each array begin."""

    elements: pa.StringArray
    offsets: Offsets


def _split(text: pa.StringArray, delimiter: int) -> _Parts:
    """Cut arrays that are known to be well formed and flat."""
    bounds, data = octets(text)
    quoting, inside = _quoting(data)
    first, last = bounds[:-1], bounds[1:] - 1
    filled = last - first > 1
    separators = (data == delimiter) & ~inside

    # An element begins behind a brace or a separator and ends before one.
    begins, ends = separators.copy(), separators.copy()
    begins[first[filled]] = True
    ends[last[filled]] = True
    starts, stops = np.flatnonzero(begins) + 1, np.flatnonzero(ends)

    counted = np.zeros(len(data) + 1, np.int32)
    np.cumsum(ends, out=counted[1:])
    dropped = separators | quoting
    dropped[first] = True
    dropped[last] = True
    return _Parts(_elements(data, dropped, starts, stops), counted[bounds])


def _elements(data: Octets, dropped: Mask, starts: _Positions, stops: _Positions) -> pa.StringArray:
    kept = np.zeros(len(data) + 1, np.int32)
    np.cumsum(~dropped, out=kept[1:])
    # What lies between two elements is dropped, so each ends where the next begins.
    ends = np.append(kept[starts], kept[-1]).astype(np.int32)
    valid = np.ones(len(starts), np.bool_)
    short = np.flatnonzero(stops - starts == len(_NULL))
    words = data[starts[short][:, None] + np.arange(len(_NULL))]
    valid[short[(words == _NULL).all(axis=1)]] = False
    buffers = [
        pa.py_buffer(np.packbits(valid, bitorder="little")),
        pa.py_buffer(ends),
        pa.py_buffer(data[~dropped]),
    ]
    return pa.Array.from_buffers(pa.string(), len(starts), buffers)


def _quoting(data: Octets) -> tuple[Mask, Mask]:
    """Which bytes only quote others, and which lie in quotes."""
    quotes = data == _QUOTE
    if not quotes.any():
        return quotes, quotes
    escaping = _escaping(data)
    quotes[escaping + 1] = False
    # Quotes come in pairs within every array: behind an odd number of them, all is inside. The
    # count may run over, for 256 is even.
    inside = np.cumsum(quotes, dtype=np.uint8) % 2 == 1
    quotes[escaping] = True
    return quotes, inside


def _escaping(data: Octets) -> _Positions:
    """Where a backslash takes the next byte's meaning: the first, third, … of a run of them."""
    found = np.flatnonzero(data == _BACKSLASH)
    if len(found) == 0:
        return found
    begins = np.append(True, np.diff(found) > 1)
    start = np.maximum.accumulate(np.where(begins, found, 0))
    escaping: _Positions = found[(found - start) % 2 == 0]
    return escaping
