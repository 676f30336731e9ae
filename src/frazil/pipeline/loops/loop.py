"""What every loop has in common: how it is run and woken, and how it ends.

A loop waits on one event of its own, for exactly as long as nothing is due. Whatever may change
that sets the event: a request, work that has ended, and a stop request. The loop clears it, reads
everything again, and only then waits: nothing that comes in between is missed.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from frazil.errors import FrazilError, RuntimeMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

# The interval is the longest wait, so chance only shortens it: enough that instances started
# together drift apart, too little to be noticed.
JITTER = 0.1


class Ending(StrEnum):
    """How a loop ended."""

    DONE = "everything is merged"
    STOPPED = "stopped"
    ACTION_REQUIRED = "some tables require action, the rest is merged"
    FAILED = "some tables failed, and their attempts are used up"


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often the source is asked for changes, tables are merged, and looked after."""

    ingest: timedelta
    merge: timedelta
    maintenance: timedelta | None = None


class Loop(Protocol):
    """Ingest, merges, or both."""

    def run(self, *, once: bool = False) -> Ending:
        """Until stopped, or once; raises what ends the process."""

    def abandon(self) -> None:
        """Take no more notice of what runs: what it runs on is being taken away."""

    def reload(self, intervals: Intervals) -> None:
        """Use these from the next run on, and retry what required action; from any thread."""


class StopRequest(threading.Event):
    """The request that everything ends, made once and from any thread; it wakes the loops."""

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[Callable[[], None]] = []

    def set(self) -> None:
        """Make it."""
        super().set()
        for wake in tuple(self._wakes):
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake``, which must not block, when the request comes, or was made already."""
        self._wakes.append(wake)
        try:
            # Only now: one that comes in between calls it twice, which is better than never.
            if self.is_set():
                wake()
            yield
        finally:
            self._wakes.remove(wake)


def engine_ended(error: Exception | None = None) -> FrazilError:
    """What ends a loop whose engine is gone, whatever it failed with."""
    ended = RuntimeMissingError(
        "the JVM that Spark runs in has ended.",
        next_step="read the end of its log, and start frazil again",
    )
    ended.__cause__ = error
    return ended


def ignore(*_facts: object) -> None:
    """There is no receiver."""
