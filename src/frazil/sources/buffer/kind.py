"""The buffer database as a kind of source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.clients.postgres.lock_claim import LockClaim
from frazil.model.policy import OnWiden
from frazil.sources.buffer.operated_kind import OperatedBuffer
from frazil.sources.buffer.source import BufferSource
from frazil.sources.kind import CapturePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock
    from frazil.model.marker import Position

_NUMBER = re.compile(r"[0-9]{1,18}")


class BufferKind(OperatedBuffer):
    """One table of events."""

    name = "buffer"
    # Events that were processed are gone.
    can_resync = False

    def validate(self) -> None:
        """Its section was validated when the configuration was loaded."""

    @property
    def policy(self) -> CapturePolicy:
        """Events wait for a paused table; a column says when it is widened."""
        return CapturePolicy(held_bytes=0, on_widen=OnWiden.ACCEPT)

    def open(
        self,
        *,
        clock: Clock | None = None,
        is_stopping: Callable[[], bool] = lambda: False,  # noqa: ARG002 - it never waits for long
    ) -> BufferSource:
        """The events and their claims."""
        return BufferSource(self.settings, clock=clock)

    def claim(self) -> LockClaim:
        """A lock at the server, by the pipeline's name."""
        return LockClaim(self.settings.dsn, self.settings.worker_lock)

    def position_problem(self, position: Position) -> str | None:
        """A position is the number of a batch."""
        if isinstance(position, str) and _NUMBER.fullmatch(position):
            return None
        return "a position in the buffer is a number"
