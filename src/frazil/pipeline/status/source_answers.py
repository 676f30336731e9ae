"""The last answer of the source's server, and since when there is none.

Not thread-safe: its owner is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.sources.health import HealthFacts, SourceHealth

# The state of a server that did not answer for so long is unknown.
ANSWER_SECONDS = 5.0


class SourceAnswers:
    """The last answer; before the first one, the state is unknown since ``started_at``."""

    def __init__(self, started_at: datetime) -> None:
        self._at = started_at
        self._asked: float | None = None
        self._can_ask = True
        self._health: HealthFacts | None = None

    def record(self, health: SourceHealth, *, asked: float, at: datetime) -> None:
        """The server answered a query of this moment of the monotonic clock."""
        self._health = health.facts
        self._asked, self._at, self._can_ask = asked, at, True

    def fail(self) -> None:
        """The server did not answer."""
        self._can_ask = False

    def unknown_since(self, now: float) -> datetime | None:
        """When it answered last, if that is not now."""
        is_late = self._asked is not None and now - self._asked > ANSWER_SECONDS
        return self._at if is_late or not self._can_ask else None

    def health(self, now: float) -> HealthFacts | None:
        """What the source says of itself; None while that is unknown."""
        return self._health if self.unknown_since(now) is None else None
