"""Ingest and merges in one process: a merge follows the batch that brought something to merge.

Two threads, one for each. A problem of the source that requires action stops capturing, not
merging: what is in the changelogs still reaches the mirrors, and the source is tried again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.hooks import SystemClock
from frazil.pipeline.loops.loop import Ending
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock
    from frazil.pipeline.loops.loop import Intervals, Loop, StopRequest

_log = get_logger(__name__)

# The source may have been repaired; a check costs a connection.
SOURCE_RETRY_SECONDS = 60.0

# What a run comes to when its two halves come to different things: the first that fits.
_WORST_FIRST = (Ending.STOPPED, Ending.FAILED, Ending.ACTION_REQUIRED, Ending.DONE)


class RunLoop:
    """Runs both loops until stopped, or each of them once.

    ``new_ingest`` makes an ingest loop; another one is made when the source is tried again.
    """

    def __init__(
        self,
        new_ingest: Callable[[], Loop],
        merges: Loop,
        *,
        stop: StopRequest,
        clock: Clock | None = None,
        is_alive: Callable[[], bool] = lambda: True,
        source_retry_seconds: float = SOURCE_RETRY_SECONDS,
    ) -> None:
        self._new_ingest = new_ingest
        self._ingest = new_ingest()
        self._merges = merges
        self._stop = stop
        self._clock = clock or SystemClock()
        self._is_alive = is_alive
        self._source_retry_seconds = source_retry_seconds
        self._is_abandoned = False
        self._retries_now = threading.Event()
        # Differ from those of a new ingest loop once the configuration was reloaded.
        self._intervals: Intervals | None = None
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

    def reload(self, intervals: Intervals) -> None:
        """Use these from the next runs on, and try a source that required action now."""
        self._intervals = intervals
        self._ingest.reload(intervals)
        self._merges.reload(intervals)
        self._retries_now.set()

    def _run_once(self) -> Ending:
        ingested = Ending.DONE
        try:
            ingested = self._ingest.run(once=True)
        except FrazilError as error:
            # The process that works for the source merges too.
            if self._ends_all(error) or recovery_for(error).is_standby:
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
            # What was repaired before this failure did not help it.
            self._retries_now.clear()
            with self._stop.waking(self._retries_now.set):
                self._clock.wait(self._retries_now, self._source_retry_seconds)
            self._ingest = self._new_ingest()
            if self._intervals is not None:
                self._ingest.reload(self._intervals)

    def _ends_all(self, error: FrazilError) -> bool:
        return recovery_for(error).action is RecoveryAction.STOP or not self._is_alive()
