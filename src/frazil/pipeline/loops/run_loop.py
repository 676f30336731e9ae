"""Ingest and merges in one process: a merge follows the batch that brought something to merge.

Two threads, one for each. A problem of the source that requires action stops capturing, not
merging: what is in the changelogs still reaches the mirrors, and the source is tried again.
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

# The source may have been repaired; a check costs a connection.
SOURCE_RETRY_SECONDS = 60.0
# How often a stop request is checked.
_GLANCE_SECONDS = 0.25

# What a run comes to when its two halves come to different things: the first that fits.
_WORST_FIRST = (Ending.STOPPED, Ending.FAILED, Ending.ACTION_REQUIRED, Ending.DONE)


class Ends(Protocol):
    """A request that everything ends; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Whether it was made."""

    def set(self) -> None:
        """Make it."""

    def wait(self, timeout: float) -> bool:
        """Wait for it, at most so many seconds."""


class Capturing(Protocol):
    """What captures; an ``IngestLoop`` does."""

    def run(self, *, once: bool = False) -> Ending:
        """Until stopped, or once."""

    def abandon(self) -> None:
        """Take no more notice of what runs."""

    def set_interval(self, interval: timedelta) -> None:
        """From the next batch on."""


class MergeSignal:
    """The stop request, as a merge loop waits for it; ``ring`` wakes the loop."""

    def __init__(self, stop: Ends, clock: Clock | None = None) -> None:
        self._stop = stop
        self._clock = clock or SystemClock()
        self._rung = threading.Event()

    def ring(self) -> None:
        """Let ``wait`` return; from any thread."""
        self._rung.set()

    def is_set(self) -> bool:
        """Whether a stop is requested."""
        return self._stop.is_set()

    def wait(self, timeout: float) -> bool:
        """Until the request, a ring, or the time is up; whether it was the request."""
        end = self._clock.monotonic() + timeout
        while not self._stop.is_set():
            left = end - self._clock.monotonic()
            if left <= 0 or self._rung.wait(min(left, _GLANCE_SECONDS)):
                self._rung.clear()
                break
        return self._stop.is_set()


class RunLoop:
    """Runs both loops until stopped, or each of them once.

    ``new_ingest`` makes an ingest loop; another one is made when the source is tried again.
    """

    def __init__(
        self,
        new_ingest: Callable[[], Capturing],
        merges: MergeLoop,
        *,
        stop: Ends,
        is_alive: Callable[[], bool] = lambda: True,
        source_retry_seconds: float = SOURCE_RETRY_SECONDS,
    ) -> None:
        self._new_ingest = new_ingest
        self._ingest = new_ingest()
        self._merges = merges
        self._stop = stop
        self._is_alive = is_alive
        self._source_retry_seconds = source_retry_seconds
        self._is_abandoned = False
        self._retries_now = threading.Event()
        # Differs from the ingest loop's own once the configuration was reloaded.
        self._ingest_interval: timedelta | None = None
        self._ends_with: Exception | None = None

    def run(self, *, once: bool = False) -> Ending:
        """Run until stopped; with ``once``, until all that is there now is in the mirrors.

        Raises what fences the process, and what requires action once nothing else is
        left to do.
        """
        return self._run_once() if once else self._run_both()

    def abandon(self) -> None:
        """Take no more notice of what runs: what it runs on is being taken away."""
        self._is_abandoned = True
        self._ingest.abandon()
        self._merges.abandon()

    def try_source_again(self) -> None:
        """Try a source that required action now: an operator reports it repaired."""
        self._retries_now.set()

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
            # The process that works for the source merges too.
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
        return Ending.STOPPED

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
                "capturing is stopped until an operator acts; merges go on",
                code=error.code,
                reason=error.reason,
                remedy=error.next_step or error.remedy,
                next_try=self._source_retry_seconds,
            )
            self._wait_for_mending()
            self._ingest = self._new_ingest()
            if self._ingest_interval is not None:
                self._ingest.set_interval(self._ingest_interval)

    def _wait_for_mending(self) -> None:
        # What was mended before this failure did not help it.
        self._retries_now.clear()
        waited = 0.0
        while waited < self._source_retry_seconds and not self._stop.is_set():
            if self._retries_now.wait(_GLANCE_SECONDS):
                return
            waited += _GLANCE_SECONDS

    def _ends_all(self, error: FrazilError) -> bool:
        return recovery_for(error).action is RecoveryAction.STOP or not self._is_alive()
