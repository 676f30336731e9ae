"""SIGTERM, SIGINT and SIGHUP as requests that a command can wait for."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.interrupting import Interrupted, SignalHandling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# How long a signal may go unnoticed.
NOTICE_SECONDS = 0.5
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals(SignalHandling):
    """The first signal requests a clean end; the second one ends the process at once.

    SIGHUP requests that the configuration is read again.

    Ending at once is safe: what was not committed did not happen, and the JVM ends with us because
    its standard input does.
    """

    def __init__(self) -> None:
        super().__init__(_HANDLED)
        self.received: signal.Signals | None = None
        # The only queue whose ``put`` may interrupt its own ``get``, as a handler does.
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._reloads = 0
        self._raises = False

    @contextmanager
    def raising(self) -> Iterator[None]:
        """A block that a stop signal leaves by Interrupted: nothing in it is worth finishing."""
        if self.received is not None:
            raise Interrupted
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def wait(self) -> None:
        """Until a signal came, ``wake`` was called, or a moment has passed.

        Python runs a handler between two of its own steps: a signal that comes just before a wait
        is noticed when the wait ends.
        """
        with suppress(Empty):
            self._wakeups.get(timeout=NOTICE_SECONDS)

    def wake(self) -> None:
        """Let ``wait`` return; from any thread."""
        self._wakeups.put(None)

    @property
    def exit_code(self) -> ExitCode:
        """The exit status after the signal."""
        return _exit_code(self.received)

    def take_reload(self) -> bool:
        """Whether a reload was requested since the last call."""
        reloads, self._reloads = self._reloads, 0
        return reloads > 0

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._reloads += 1
            self.wake()
            return
        if self.received is not None:
            sys.stderr.flush()
            os._exit(_exit_code(number))
        self.received = signal.Signals(number)
        self.wake()
        if self._raises:
            raise Interrupted


def _exit_code(number: int | None) -> ExitCode:
    return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
