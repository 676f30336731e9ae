"""The last answer of the source's server, and since when there is none.

Not thread-safe: its owner is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from frazil.pipeline.status.values import SlotStatus

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.sources.health import SourceHealth

# The state of a server that did not answer for so long is unknown.
ANSWER_SECONDS = 5.0


class SourceAnswers:
    """The last answer; before the first one, the state is unknown since ``started_at``."""

    def __init__(self, started_at: datetime) -> None:
        self._at = started_at
        self._asked: float | None = None
        self._can_ask = True
        self._slot: SlotStatus | None = None

    def record(self, health: SourceHealth, *, asked: float, at: datetime) -> None:
        """The server answered a query of this moment of the monotonic clock."""
        self._slot = slot_status(health)
        self._asked, self._at, self._can_ask = asked, at, True

    def fail(self) -> None:
        """The server did not answer."""
        self._can_ask = False

    def unknown_since(self, now: float) -> datetime | None:
        """When it answered last, if that is not now."""
        is_late = self._asked is not None and now - self._asked > ANSWER_SECONDS
        return self._at if is_late or not self._can_ask else None

    def slot(self, now: float) -> SlotStatus | None:
        """The slot; None while its state is unknown, or if there is none."""
        return self._slot if self.unknown_since(now) is None else None


def slot_status(health: SourceHealth) -> SlotStatus | None:
    """The slot as it is shown; None if there is none."""
    found = health.details.get("slot")
    # The source gives the fields of the status.
    return None if found is None else SlotStatus(**cast("dict[str, Any]", found))
