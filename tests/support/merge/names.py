"""The two names that ``frazil.merge_table`` is given."""

from __future__ import annotations

from typing import TypedDict


class TablePair(TypedDict):
    """A changelog and its mirror, with their catalog."""

    changelog: str
    mirror: str
