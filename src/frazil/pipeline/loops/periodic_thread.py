"""Periodic work next to the loops, in a thread that never delays the exit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from frazil.pipeline.loops.loop import ignore

if TYPE_CHECKING:
    from collections.abc import Callable

_END_SECONDS = 2.0


class PeriodicThread:
    """Calls ``beat`` every so many seconds while its block runs; the first one comes at once.

    ``beat`` must not raise: no caller would see it. ``at_end`` releases its resources.
    """

    def __init__(
        self,
        name: str,
        beat: Callable[[], object],
        *,
        seconds: float,
        at_end: Callable[[], object] = ignore,
    ) -> None:
        self._beat = beat
        self._at_end = at_end
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"frazil {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        # Not for long: it may hang in a connection.
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._beat()
            self._ended.wait(self._seconds)
        self._at_end()
