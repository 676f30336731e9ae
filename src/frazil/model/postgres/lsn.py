"""Positions in PostgreSQL's log: 64-bit numbers, which only people see as text."""

from __future__ import annotations

import re

from frazil.errors import MalformedChangeError

LARGEST_LSN = 2**64 - 1

_HALF_BITS = 32
_HALF_MASK = 2**_HALF_BITS - 1
_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """The number that ``16/B374D848`` means; MalformedChangeError for any other text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise MalformedChangeError("a position is not of the form 16/B374D848.")
    high, low = (int(half, 16) for half in match.groups())
    return high << _HALF_BITS | low


def format_lsn(lsn: int) -> str:
    """The text PostgreSQL writes and reads; it does not sort as the numbers do."""
    if not 0 <= lsn <= LARGEST_LSN:
        message = f"{lsn} is not a position of 64 bits"
        raise ValueError(message)
    return f"{lsn >> _HALF_BITS:X}/{lsn & _HALF_MASK:X}"
