"""What the server of the source said last, and since when it says nothing.

Not thread-safe: its owner is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres.lsn import format_lsn
from frazil.pipeline.status.values import SlotStatus

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.model.postgres.facts import SlotFacts
    from frazil.sources.postgres.slot.watch import SlotLook

# A server that did not answer for so long is not known to be as it was.
ANSWER_SECONDS = 5.0


class SourceAnswers:
    """The last answer; ``started_at`` is since when nobody knew anything."""

    def __init__(self, started_at: datetime) -> None:
        self._at = started_at
        self._asked: float | None = None
        self._can_ask = True
        self._slot: SlotStatus | None = None

    def record(self, answer: SlotLook, *, asked: float, at: datetime) -> None:
        """The server answered a question of this moment of the monotonic clock."""
        self._slot = None if answer.slot is None else slot_status(answer.slot, answer.newest)
        self._asked, self._at, self._can_ask = asked, at, True

    def fail(self) -> None:
        """The server did not answer."""
        self._can_ask = False

    def unknown_since(self, now: float) -> datetime | None:
        """When it answered last, if that is not now."""
        is_late = self._asked is not None and now - self._asked > ANSWER_SECONDS
        return self._at if is_late or not self._can_ask else None

    def slot(self, now: float) -> SlotStatus | None:
        """The slot; None while nobody knows what it is now, or if there is none."""
        return self._slot if self.unknown_since(now) is None else None


def slot_status(slot: SlotFacts, newest: int) -> SlotStatus:
    """The slot as it is shown, beside the end of the server's log."""
    confirmed = slot.confirmed_flush
    return SlotStatus(
        name=slot.name,
        is_active=slot.is_active,
        state="lost" if slot.is_lost else str(slot.wal_status or "unknown"),
        confirmed=None if confirmed is None else format_lsn(confirmed),
        retained_bytes=max(0, newest - (slot.restart or newest)),
        safe_bytes=slot.safe_wal_bytes,
    )
