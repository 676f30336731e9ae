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

from frazil.codec.pgtext.grammar import Read, octets, sift

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.codec.pgtext.grammar import Mask, Octets, Offsets

    _Positions = np.ndarray[tuple[int], np.dtype[np.intp]]

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BOUNDS = r"(?:\[-?\d+:-?\d+\])+="
_NESTED = r"\{\{.*\}\}"
_EMPTY = "{}"
_ABSENT = pa.scalar(None, pa.string())
_OPEN, _CLOSE, _QUOTE, _BACKSLASH = (ord(each) for each in '{}"\\')
# An element of this text without quotes; the text itself is printed in quotes.
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
        unreadable = np.zeros(len(text), np.bool_)
        unreadable[owners[elements.misfits]] = True
        # Once more without them: a null list must not hide elements, Parquet cannot store them.
        again = read_arrays(pc.if_else(unreadable, _ABSENT, kept), delimiter, read_elements)
        return Read(again.values, unreadable if misfits is None else unreadable | misfits)
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
    first, last = bounds[:-1], bounds[1:] - 1
    filled = last - first > 1
    quoting, inside = _quoting(data)
    separators = (data == delimiter) & ~inside

    offsets = np.zeros(len(bounds), np.int32)
    np.cumsum(_count(separators, first) + filled, out=offsets[1:])
    between = np.flatnonzero(separators)
    starts = _edges(first[filled], offsets[:-1][filled], between) + 1
    stops = _edges(last[filled], offsets[1:][filled] - 1, between)

    sizes = stops - starts - _count(quoting, starts)
    dropped = separators | quoting
    dropped[first] = True
    dropped[last] = True
    null = _is_null(data, starts, stops)
    return _Parts(_elements(sizes, data[~dropped], null), offsets)


def _edges(braces: Offsets, at: Offsets, separators: _Positions) -> _Positions:
    """One edge of every element: braces at these positions, separators at the others."""
    edges = np.empty(len(braces) + len(separators), np.intp)
    outer = np.zeros(len(edges), np.bool_)
    outer[at] = True
    edges[outer] = braces
    edges[~outer] = separators
    return edges


def _count(marked: Mask, starts: Offsets | _Positions) -> Offsets:
    """How many bytes are marked from each start to the next."""
    if len(starts) == 0 or not marked.any():
        return np.zeros(len(starts), np.int32)
    counts: Offsets = np.add.reduceat(marked.view(np.uint8), starts, dtype=np.int32)
    return counts


def _is_null(data: Octets, starts: _Positions, stops: _Positions) -> Mask:
    null = np.zeros(len(starts), np.bool_)
    short = np.flatnonzero(stops - starts == len(_NULL))
    short_texts = data[starts[short][:, None] + np.arange(len(_NULL))]
    null[short] = (short_texts == _NULL).all(axis=1)
    return null


def _elements(sizes: _Positions, data: Octets, null: Mask) -> pa.StringArray:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    buffers = [
        pa.py_buffer(np.packbits(~null, bitorder="little")),
        pa.py_buffer(ends),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.string(), len(sizes), buffers)


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
