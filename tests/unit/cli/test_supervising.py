"""Supervision of a loop: an engine that dies, and one that is stopped with us."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.cli.process.stop_signals import StopSignals
from frazil.cli.process.supervising import supervise
from frazil.errors import RuntimeMissingError
from frazil.pipeline.loops.loop import Ending, Intervals, StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = timedelta(seconds=20)


class Loop:
    """Runs until stopped, and then fails because its engine is going away."""

    def __init__(self, stop: StopRequest) -> None:
        self.is_abandoned = False
        self._stop = stop

    def run(self, *, once: bool = False) -> Ending:
        del once
        self._stop.wait(GRACE.total_seconds())
        if not self.is_abandoned:
            raise ConnectionError("the engine does not answer")
        return Ending.STOPPED

    def abandon(self) -> None:
        self.is_abandoned = True

    def reload(self, intervals: Intervals) -> None:
        """Not used."""


def supervised(loop: Loop, stop: StopRequest, is_alive: Callable[[StopSignals], bool]) -> Ending:
    with StopSignals() as signals:
        return supervise(
            loop,
            once=False,
            stop=stop,
            signals=signals,
            grace=GRACE,
            interrupt=lambda: None,
            is_alive=lambda: is_alive(signals),
        )


@pytest.fixture
def short_waits() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()


@pytest.mark.usefixtures("short_waits")
def test_a_signal_that_ended_the_engine_too_is_a_clean_end() -> None:
    stop = StopRequest()
    ending = supervised(Loop(stop), stop, lambda signals: signals.received is None)
    assert ending is Ending.STOPPED


@pytest.mark.usefixtures("short_waits")
def test_a_loop_that_fails_after_a_signal_with_a_sound_engine_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frazil.cli.process.supervising._DYING_SECONDS", 0.1)
    stop = StopRequest()
    with pytest.raises(ConnectionError):
        supervised(Loop(stop), stop, lambda _signals: True)


def test_an_engine_that_dies_by_itself_ends_everything() -> None:
    stop = StopRequest()
    loop, answers = Loop(stop), iter([True, True])
    with pytest.raises(RuntimeMissingError):
        supervised(loop, stop, lambda _signals: next(answers, False))
    assert loop.is_abandoned
    assert stop.is_set()


def test_no_signal_is_missed_that_comes_before_a_wait() -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        # Without a time-out: it would wait for ever.
        signals.wait()
        assert signals.take_reload()
        signals.wait(0.0)
        assert not signals.take_reload()


def test_a_thread_may_wake_a_command_that_has_ended() -> None:
    before = signal.set_wakeup_fd(-1)
    with StopSignals() as signals:
        signals.wake()
        signals.wait()
    signals.wake()
    assert signal.set_wakeup_fd(before) == -1
