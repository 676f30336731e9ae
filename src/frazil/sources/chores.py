"""Work that a source needs done from time to time, next to its batches."""

from __future__ import annotations

from typing import Protocol


class Chore(Protocol):
    """Done again and again in a thread of its own, by every process that works for the source.

    What one run left undone the next one does: it may fail, and a process may end in it.
    """

    @property
    def name(self) -> str:
        """What it does, for logs."""

    @property
    def seconds(self) -> float:
        """The time between two runs."""

    def run(self) -> None:
        """Do it; raises errors of the family."""

    def close(self) -> None:
        """End the connection."""
