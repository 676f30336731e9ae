"""Finished work that waits for the merges of its mirror, which land it between two of them.

In one process nobody races then: the thread that merges a mirror also lands what was rewritten of
it. Other processes are kept off by the compare-and-swap of the commit, as always.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.errors import CommitConflictError
from frazil.hooks import SystemClock
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock
    from frazil.maintain.compaction.landing import Abandoned, Landed

    Landing = Callable[[RetryPolicy], "Landed | Abandoned"]

_log = get_logger(__name__)
# One attempt: what other processes committed meanwhile is met after the next merge.
_ONCE = RetryPolicy(attempts=1)
# Landings in a row would make merges of another process lose all their races.
_PAUSE_SECONDS = 1.0
# After so many lost races the work waits no more: another process commits all the time.
_MOST_ATTEMPTS = 20


@dataclass(slots=True)
class _Waiting:
    land: Landing
    done: Future[Landed | Abandoned]
    attempts: int = 0


class LandingQueue:
    """The finished work of one mirror; for any thread."""

    def __init__(
        self, table: str, *, pause_seconds: float = _PAUSE_SECONDS, clock: Clock | None = None
    ) -> None:
        self._table = table
        self._pause = pause_seconds
        self._clock = clock or SystemClock()
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, landing: Landing) -> Future[Landed | Abandoned]:
        """Let the merges of the mirror land this; the future has what came of it."""
        done: Future[Landed | Abandoned] = Future()
        with self._lock:
            self._waiting.append(_Waiting(landing, done))
        return done

    def land_next(self) -> None:
        """Land what waits longest, unless the last landing is too recent.

        Called between two merges of the mirror. Raises nothing: errors are the future's.
        """
        with self._lock:
            if not self._waiting or self._clock.monotonic() < self._next_at:
                return
            first = self._waiting.popleft()
        self._land(first)
        self._next_at = self._clock.monotonic() + self._pause

    def withdraw(self, done: Future[Landed | Abandoned]) -> bool:
        """Take back what waits; False when it has landed or is just landing."""
        with self._lock:
            kept = [each for each in self._waiting if each.done is not done]
            is_found = len(kept) < len(self._waiting)
            self._waiting = deque(kept)
        return is_found

    def close(self) -> None:
        """Nobody merges any more: what waits is cancelled, and its files left to maintenance."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.done.cancel():
                # It lost a race before.
                each.done.set_exception(CancelledError())

    def _land(self, waiting: _Waiting) -> None:
        if not waiting.done.running() and not waiting.done.set_running_or_notify_cancel():
            return
        waiting.attempts += 1
        try:
            waiting.done.set_result(waiting.land(_ONCE))
        except CommitConflictError as error:
            if waiting.attempts >= _MOST_ATTEMPTS:
                waiting.done.set_exception(error)
                return
            with self._lock:
                self._waiting.appendleft(waiting)
        except Exception as error:  # noqa: BLE001 - a merge does not fail with a landing
            _log.warning("landing failed", table=self._table, error=type(error).__name__)
            waiting.done.set_exception(error)
