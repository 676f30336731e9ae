"""Ctrl-C as an exception that leaves every block on its way out, and a second one that does not."""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import write_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

# A closed terminal and a supervisor mean the same as Ctrl-C.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHandling(ABC):
    """Handles these signals while its block runs; a subclass says how."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._before = {number: signal.getsignal(number) for number in numbers}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Handle the signals from now on; a Spark context puts a handler of its own in the way."""
        for number in self._before:
            signal.signal(number, self._receive)

    @abstractmethod
    def _receive(self, number: int, frame: FrameType | None) -> None:
        """One of them came."""


class Interrupted(BaseException):
    """The command was interrupted; for KeyboardInterrupt the parser would print its own message."""


class Interrupts(SignalHandling):
    """The first signal raises; the second one ends the process at once.

    Ending at once leaves no process behind: keepers and the JVM notice that we are gone.
    """

    def __init__(self, raises: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(_ENDING)
        self._raises = raises
        self._is_announced = False
        self.received: signal.Signals | None = None

    def announce(self, what: str) -> None:
        """Print once that the command was interrupted, and what follows."""
        if not self._is_announced:
            self._is_announced = True
            write_note(f"interrupted: {what}")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            sys.stderr.flush()
            os._exit(ExitCode.INTERRUPTED)
        self.received = signal.Signals(number)
        raise self._raises


def interruptible(work: Callable[[Interrupts], int]) -> int:
    """The exit status of the work, or that of an interrupt."""
    with Interrupts() as interrupts:
        try:
            return work(interrupts)
        except KeyboardInterrupt:
            interrupts.announce("nothing is left running")
            return ExitCode.INTERRUPTED
