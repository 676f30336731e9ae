"""Text that Postgres printed, sorted by grammar before it is parsed.

Arrow's parsers take more than Postgres prints, such as hexadecimal integers, so a pattern decides
first. What matches is parsed, what Postgres prints but the type cannot hold is left out and
reported, and anything else means that the text is not what it is thought to be.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
    Offsets = np.ndarray[tuple[int], np.dtype[np.int32]]
    Octets = np.ndarray[tuple[int], np.dtype[np.uint8]]


class NotAsPrintedError(Exception):
    """So many values are not in the form that Postgres prints for their type.

    The caller knows the column and translates this into an error of the family.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


@dataclass(frozen=True, slots=True)
class Read:
    """Values, null where the text was and at the misfits; ``misfits`` is None without any."""

    values: pa.Array
    misfits: Mask | None = None


def read_printed(
    text: pa.StringArray,
    parse: Callable[[pa.StringArray], pa.Array],
    *,
    fits: str,
    printed: str | None = None,
) -> Read:
    """Parse what matches ``fits``; what matches only ``printed`` is a misfit.

    Both patterns describe the entire text. Raises NotAsPrintedError for what matches neither, or
    what ``parse`` refuses.
    """
    kept, misfits = sift(text, fits=fits, printed=printed)
    return Read(parse_all(kept, parse), misfits)


def sift(
    text: pa.StringArray, *, fits: str, printed: str | None
) -> tuple[pa.StringArray, Mask | None]:
    """The text with nulls for what matches only ``printed``, and where those are."""
    matches = _match(text, fits)
    if matches.false_count == 0:
        return text, None
    misfits = pc.fill_null(pc.invert(matches), fill_value=False)
    odd = text.filter(misfits)
    strange = len(odd) if printed is None else _match(odd, printed).false_count
    if strange:
        raise NotAsPrintedError(strange)
    return pc.if_else(misfits, pa.scalar(None, text.type), text), np.asarray(misfits)


def parse_all(text: pa.StringArray, parse: Callable[[pa.StringArray], pa.Array]) -> pa.Array:
    """The parsed text; NotAsPrintedError where the parser raises ValueError, as Arrow's do."""
    with suppress(ValueError):
        return parse(text)
    # Outside the block: Arrow's message quotes a value, and must not come along as the context.
    raise NotAsPrintedError(_refused(text, parse))


def octets(text: pa.StringArray) -> tuple[Offsets, Octets]:
    """The bytes of all texts in a row, and where each begins; the last offset is the end.

    Without nulls, whose bytes are anything.
    """
    if len(text) == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, ends, data = text.buffers()
    offsets = np.frombuffer(ends, np.int32)[text.offset : text.offset + len(text) + 1]
    content = np.frombuffer(data if data is not None else b"", np.uint8)
    return offsets - offsets[0], content[offsets[0] : offsets[-1]]


def validity(text: pa.StringArray) -> pa.Buffer | None:
    """The bitmap of what is not null, for an array of the same length."""
    if text.null_count == 0:
        return None
    valid = np.asarray(text.is_valid())
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _match(text: pa.StringArray, pattern: str) -> pa.BooleanArray:
    # RE2's $ is the very end of the text, without a newline before it.
    return pc.match_substring_regex(text, pattern=f"^(?:{pattern})$")


def _refused(text: pa.StringArray, parse: Callable[[pa.StringArray], pa.Array]) -> int:
    """How many texts the parser does not take, found by halving."""
    with suppress(ValueError):
        parse(text)
        return 0
    if len(text) == 1:
        return 1
    half = len(text) // 2
    return _refused(text[:half], parse) + _refused(text[half:], parse)
