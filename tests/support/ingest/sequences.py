"""Sequence numbers of a changelog's rows, read back from their text."""

from __future__ import annotations

from frazil.model.change import SequenceNumber


def parse_sequence(text: str) -> SequenceNumber:
    """The number whose text this is; ValueError for any other spelling, which sorts elsewhere."""
    number = SequenceNumber(*(int(part, 16) for part in text.split("/")))
    if str(number) != text:
        raise ValueError(text)
    return number
