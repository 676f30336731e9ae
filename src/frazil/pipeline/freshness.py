"""How old the state is that readers are sure to see.

The source is asked again and again how far its log is. When everything up to there is captured, the
changelogs are as fresh as the question was; a mirror is, once a merge has taken what came for it.
Not thread-safe: its owner is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# At one a second, an hour of a source that is not captured; older ones are thinned out.
MOST_LOOKS = 3600


class CaptureFreshness:
    """Changelogs beside their source; times are seconds of one clock, positions are bytes."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()
        self._reached: int | None = None
        self._newest: int | None = None
        self._through: float | None = None

    @property
    def through(self) -> float | None:
        """Everything committed at the source by then is captured; None while nobody can tell."""
        return self._through

    @property
    def lag_bytes(self) -> int | None:
        """The log that is not captured yet."""
        if self._newest is None or self._reached is None:
            return None
        return max(0, self._newest - self._reached)

    def look(self, at: float, newest: int) -> None:
        """The source's log was this far."""
        if self._newest is not None and newest < self._newest:
            # It counts anew: another server, to which no position of before means anything.
            self._looks.clear()
            self._reached = None
        self._newest = newest
        self._looks.append((at, newest))
        if len(self._looks) > MOST_LOOKS:
            self._looks = deque(list(self._looks)[::2])
        self._settle()

    def reach(self, position: int) -> None:
        """Everything up to here is captured."""
        self._reached = max(position, self._reached or 0)
        self._settle()

    def _settle(self) -> None:
        if self._reached is None:
            return
        while self._looks and self._looks[0][1] <= self._reached:
            self._through = self._looks.popleft()[0]


class MirrorFreshness:
    """Mirrors beside their changelogs; a time of None is one that nobody knows.

    ``base`` of every question is the time through which the changelogs are whole.
    """

    def __init__(self) -> None:
        # Mirrors that lack something, and how fresh each was before it came.
        self._lacking: dict[str, float | None] = {}
        # The same of what a running merge is about to take.
        self._merging: dict[str, float | None] = {}

    def expect(self, mirrors: Iterable[str], base: float | None) -> None:
        """These may lack something."""
        for mirror in mirrors:
            self._lacking.setdefault(mirror, base)

    def dismiss(self, mirror: str) -> None:
        """There is no such mirror."""
        self._lacking.pop(mirror, None)

    def begin_merge(self, mirror: str) -> None:
        """What is in the changelog now is being taken."""
        if mirror in self._lacking:
            self._merging[mirror] = self._lacking.pop(mirror)

    def end_merge(self, mirror: str) -> None:
        """It was taken."""
        self._merging.pop(mirror, None)

    def fail_merge(self, mirror: str, base: float | None) -> None:
        """It was not, or nobody knows."""
        self._lacking.setdefault(mirror, base)
        if mirror in self._merging:
            self._lacking[mirror] = self._merging.pop(mirror)

    def through(self, mirror: str, base: float | None) -> float | None:
        """Readers of the mirror see everything that was committed by then."""
        for waiting in (self._merging, self._lacking):
            if mirror in waiting:
                return waiting[mirror]
        return base
