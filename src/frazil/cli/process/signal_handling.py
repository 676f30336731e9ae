"""Signal handlers for the length of a block, restored at its end."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


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
