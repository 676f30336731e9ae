"""Chores of a source, each in a thread of its own."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.hooks import SystemClock
from frazil.pipeline.loops.periodic_thread import PeriodicThread
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.hooks import Clock
    from frazil.sources.chores import Chore
    from frazil.sources.protocol import Claim

_log = get_logger(__name__)

# How soon a process that took the claim begins with chores.
_LOOK_SECONDS = 1.0
# One that is done once an hour does not wait for the next hour when it failed.
_AGAIN_SECONDS = 60.0


class ChoreTurns:
    """Does a chore when it is due, while this process works for the source."""

    def __init__(self, chore: Chore, claim: Claim, *, clock: Clock | None = None) -> None:
        self._chore = chore
        self._claim = claim
        self._clock = clock or SystemClock()
        self._due = -inf
        self._failed_with: str | None = None

    def look(self) -> None:
        """Do it if it is due; an error is logged once for as long as it lasts."""
        now = self._clock.monotonic()
        if now < self._due or not self._claim.may_merge:
            return
        seconds = self._chore.seconds
        try:
            self._chore.run()
            self._failed_with = None
        except FrazilError as error:
            seconds = min(seconds, _AGAIN_SECONDS)
            # The loop meets an outage as well, and reports it.
            if error.code != self._failed_with:
                _log.warning("chore failed", chore=self._chore.name, error=error.reason)
            self._failed_with = error.code
        self._due = now + seconds


def chore_thread(chore: Chore, claim: Claim) -> PeriodicThread:
    """The thread in which a chore is done."""
    turns = ChoreTurns(chore, claim)
    seconds = min(chore.seconds, _LOOK_SECONDS)
    return PeriodicThread(chore.name, turns.look, seconds=seconds, at_end=chore.close)
