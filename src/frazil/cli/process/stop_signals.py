"""SIGTERM, SIGINT and SIGHUP as requests that a command can wait for."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, Self

from frazil.cli.exit_codes import ExitCode
from frazil.cli.process.interrupting import Interrupted, SignalHandling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# More than can be pending: one byte for each signal and each call of ``wake``.
_MOST_BYTES = 4096
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
        # Written into as soon as a signal comes. Its handler runs later, between two steps of
        # Python: one that comes just before a wait would not end it.
        self._woken, self._waker = socket.socketpair()
        self._waker.settimeout(0.0)
        self._reloads = 0
        self._raises = False
        self.has_interrupted = False

    def __enter__(self) -> Self:
        self._descriptor_before = signal.set_wakeup_fd(
            self._waker.fileno(), warn_on_full_buffer=False
        )
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        signal.set_wakeup_fd(self._descriptor_before)
        self._waker.close()
        self._woken.close()

    @contextmanager
    def raising(self) -> Iterator[None]:
        """A block that a stop signal leaves by Interrupted: nothing in it is worth finishing."""
        if self.received is not None:
            self._interrupt()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def wait(self, seconds: float | None = None) -> None:
        """Until a signal has come or ``wake`` was called, at most so long."""
        self._woken.settimeout(seconds)
        with suppress(TimeoutError, BlockingIOError):
            self._woken.recv(_MOST_BYTES)

    def wake(self) -> None:
        """Let ``wait`` return; from any thread."""
        # Full, and then it returns anyway, or closed.
        with suppress(OSError):
            self._waker.send(b"\0")

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
            return
        if self.received is not None:
            sys.stderr.flush()
            os._exit(_exit_code(number))
        self.received = signal.Signals(number)
        if self._raises:
            self._interrupt()

    def _interrupt(self) -> NoReturn:
        self.has_interrupted = True
        raise Interrupted


def _exit_code(number: int | None) -> ExitCode:
    return ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
