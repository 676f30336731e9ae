"""Ingest and merges in one process: a merge follows the batch that brought something to merge.

Two threads, one for each. What only a person can end at the source stops capturing, not merging:
what is in the changelogs still reaches the mirrors, and the source is looked at again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from frazil.errors import FrazilError, SlotBusyError
from frazil.hooks import SystemClock
from frazil.pipeline.loops.merge_loop import Ending
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from frazil.hooks import Clock
    from frazil.pipeline.loops.merge_loop import MergeLoop

_log = get_logger(__name__)

# Somebody may have mended the source; asking costs a connection.
LOOK_AGAIN_SECONDS = 60.0
# How long nobody looks whether the end is wished.
_GLANCE_SECONDS = 0.25

# What a run comes to when its two halves come to different things: the first that fits.
_WORST_FIRST = (Ending.TOLD, Ending.FAILED, Ending.ACTION_REQUIRED, Ending.DONE)


class Ends(Protocol):
    """A wish that everything ends; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Whether the wish was made."""

    def set(self) -> None:
        """Make it."""

    def wait(self, timeout: float) -> bool:
        """Wait for the wish, at most so many seconds."""


class Capturing(Protocol):
    """What captures; an ``IngestLoop`` does."""

    def run(self, *, once: bool = False) -> Ending:
        """Until told to stop, or once."""

    def abandon(self) -> None:
        """Take no more notice of what runs."""

    def set_interval(self, interval: timedelta) -> None:
        """From the next batch on."""


class MergeSignal:
    """The wish to end, as a merge loop waits for it: whoever has news for the loop rings."""

    def __init__(self, stop: Ends, clock: Clock | None = None) -> None:
        self._stop = stop
        self._clock = clock or SystemClock()
        self._rung = threading.Event()

    def ring(self) -> None:
        """Let ``wait`` return; from any thread."""
        self._rung.set()

    def is_set(self) -> bool:
        """Whether the end is wished."""
        return self._stop.is_set()

    def wait(self, timeout: float) -> bool:
        """Until the wish, a ring, or the end of the time; says whether it was the wish."""
        end = self._clock.monotonic() + timeout
        while not self._stop.is_set():
            left = end - self._clock.monotonic()
            if left <= 0 or self._rung.wait(min(left, _GLANCE_SECONDS)):
                self._rung.clear()
                break
        return self._stop.is_set()


class RunLoop:
    """Runs both loops until told to stop, or each of them once.

    ``new_ingest`` makes an ingest loop; another one is made when the source is looked at again.
    """

    def __init__(
        self,
        new_ingest: Callable[[], Capturing],
        merges: MergeLoop,
        *,
        stop: Ends,
        is_alive: Callable[[], bool] = lambda: True,
        look_again_seconds: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        self._new_ingest = new_ingest
        self._ingest = new_ingest()
        self._merges = merges
        self._stop = stop
        self._is_alive = is_alive
        self._look_again_seconds = look_again_seconds
        self._is_abandoned = False
        self._looks_again = threading.Event()
        # Another one than the ingest loop was made with, once somebody has changed it.
        self._ingest_interval: timedelta | None = None
        self._ends_with: Exception | None = None

    def run(self, *, once: bool = False) -> Ending:
        """Run until told to stop; with ``once``, until all that is there now is in the mirrors.

        Raises what makes the process give way, and what only a person can end once nothing else is
        left to do.
        """
        return self._run_once() if once else self._run_both()

    def abandon(self) -> None:
        """Take no more notice of what runs: what it runs on is being taken away."""
        self._is_abandoned = True
        self._ingest.abandon()
        self._merges.abandon()

    def look_again(self) -> None:
        """Look at a source that needs a person now: somebody says that it was mended."""
        self._looks_again.set()

    def set_intervals(self, *, ingest: timedelta, merge: timedelta) -> None:
        """From the next runs on; from any thread."""
        self._ingest_interval = ingest
        self._ingest.set_interval(ingest)
        self._merges.set_interval(merge)

    def _run_once(self) -> Ending:
        ingested = Ending.DONE
        try:
            ingested = self._ingest.run(once=True)
        except FrazilError as error:
            # Whoever works for the source merges too.
            if self._ends_all(error) or isinstance(error, SlotBusyError):
                raise
            self._ends_with = error
        merged = self._merges.run(once=True)
        if self._ends_with is not None:
            raise self._ends_with
        return min(ingested, merged, key=_WORST_FIRST.index)

    def _run_both(self) -> Ending:
        capturing = threading.Thread(target=self._capture, name="frazil ingest", daemon=True)
        capturing.start()
        try:
            self._merges.run()
        finally:
            # Whatever ended the merges ends everything.
            self._stop.set()
            if not self._is_abandoned:
                capturing.join()
        if self._ends_with is not None:
            raise self._ends_with
        return Ending.TOLD

    def _capture(self) -> None:
        try:
            while not self._stop.is_set():
                self._capture_once()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that runs the merges
            self._ends_with = error
        finally:
            self._stop.set()

    def _capture_once(self) -> None:
        try:
            self._ingest.run()
        except FrazilError as error:
            if self._ends_all(error):
                raise
            _log.error(
                "capturing is stopped until somebody acts; merges go on",
                code=error.code,
                reason=error.reason,
                remedy=error.next_step or error.remedy,
                look_again=self._look_again_seconds,
            )
            self._wait_for_mending()
            self._ingest = self._new_ingest()
            if self._ingest_interval is not None:
                self._ingest.set_interval(self._ingest_interval)

    def _wait_for_mending(self) -> None:
        # What was mended before this failure did not help it.
        self._looks_again.clear()
        waited = 0.0
        while waited < self._look_again_seconds and not self._stop.is_set():
            if self._looks_again.wait(_GLANCE_SECONDS):
                return
            waited += _GLANCE_SECONDS

    def _ends_all(self, error: FrazilError) -> bool:
        return recovery_for(error).action is RecoveryAction.STOP or not self._is_alive()
