"""A loop in a thread of its own, and the main thread free for signals."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from frazil.hooks import SystemClock
from frazil.pipeline.loops.loop import Ending, engine_ended
from frazil.pipeline.loops.periodic_thread import PeriodicThread
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from frazil.cli.process.stop_signals import StopSignals
    from frazil.hooks import Clock
    from frazil.pipeline.loops.loop import Loop, StopRequest

_log = get_logger(__name__)


# A process that cannot work any more should be replaced within seconds.
WATCH_SECONDS = 1.0
# What runs in a JVM fails while its shutdown hooks run, which may take as long as this.
_DYING_SECONDS = 5.0
_CLOCK = SystemClock()


def supervise(
    loop: Loop,
    *,
    once: bool,
    stop: StopRequest,
    signals: StopSignals,
    grace: timedelta,
    interrupt: Callable[[], None],
    is_alive: Callable[[], bool] = lambda: True,
    on_reload: Callable[[], None] = lambda: None,
    clock: Clock = _CLOCK,
) -> Ending:
    """How the loop ended; what it raises is raised here.

    The loop ends when the engine is dead, whatever it is waiting for.
    A signal sets ``stop``. A loop that has not ended when the grace is over is abandoned:
    ``interrupt`` cancels what it waits for, and its outcome is ignored.
    """
    if signals.received is not None:
        # It came while the session was being started: nothing may begin.
        stop.set()
    run = _Run(loop, once=once, ended=signals.wake)
    watch = PeriodicThread(
        "engine watch", partial(_wake_if_dead, is_alive, signals), seconds=WATCH_SECONDS
    )
    run.start()
    with watch:
        _wait(run, signals, is_alive, on_reload)
    if signals.received is None and not run.has_ended:
        loop.abandon()
        stop.set()
        raise engine_ended()
    if signals.received is not None:
        _log.info("stopping", signal=signals.received.name, grace=grace.total_seconds())
        stop.set()
        deadline = clock.monotonic() + grace.total_seconds()
        while not run.has_ended and (left := deadline - clock.monotonic()) > 0:
            # Not for the thread: the second signal must be noticed at once.
            signals.wait(left)
        if not run.has_ended:
            _log.warning("abandoning what is not committed", grace=grace.total_seconds())
            loop.abandon()
            _cancel(interrupt)
            return Ending.STOPPED
    run.join()
    if signals.received is not None and run.has_failed and _dies(is_alive, clock):
        # Supervisors signal a group of processes, the engine among them.
        _log.warning("the engine was stopped too; uncommitted work did not happen")
        return Ending.STOPPED
    return run.ending()


def _cancel(interrupt: Callable[[], None]) -> None:
    try:
        interrupt()
    except Exception as error:  # noqa: BLE001 - the engine may be gone; we end anyway
        _log.debug("the engine did not answer", error=type(error).__name__)


def _wait(
    run: _Run, signals: StopSignals, is_alive: Callable[[], bool], on_reload: Callable[[], None]
) -> None:
    while not run.has_ended and signals.received is None and is_alive():
        signals.wait()
        if signals.take_reload():
            on_reload()


def _dies(is_alive: Callable[[], bool], clock: Clock) -> bool:
    # Polled: another process wakes no thread of ours when it ends.
    deadline = clock.monotonic() + _DYING_SECONDS
    while is_alive() and clock.monotonic() < deadline:
        clock.sleep(_DYING_SECONDS / 50)
    return not is_alive()


def _wake_if_dead(is_alive: Callable[[], bool], signals: StopSignals) -> None:
    if not is_alive():
        signals.wake()


class _Run(threading.Thread):
    """The loop's thread; a daemon, because it may have to be abandoned."""

    def __init__(self, loop: Loop, *, once: bool, ended: Callable[[], None]) -> None:
        super().__init__(name="frazil loop", daemon=True)
        self._loop = loop
        self._once = once
        self._ended = ended
        self._outcome: Ending | BaseException = Ending.FAILED
        self.has_ended = False

    def run(self) -> None:
        """Run the loop and keep its outcome."""
        try:
            self._outcome = self._loop.run(once=self._once)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._outcome = error
        finally:
            self.has_ended = True
            self._ended()

    @property
    def has_failed(self) -> bool:
        """Whether it raised an exception."""
        return isinstance(self._outcome, Exception)

    def ending(self) -> Ending:
        """The outcome of the loop."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome
