"""A text that takes time to make, kept for a moment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.hooks import Clock

# Nobody sees that a state is a second old.
KEEP_SECONDS: Final = 1.0


class Kept:
    """Makes the text when it is asked for and the last one is old; may be asked by any thread."""

    def __init__(self, make: Callable[[], str], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._making = threading.Lock()
        self._last: tuple[float, str] | None = None

    def text(self) -> str:
        """The newest one; who asks while it is being made waits for it."""
        asked = self._clock.monotonic()
        with self._making:
            if self._last is None or asked - self._last[0] >= KEEP_SECONDS:
                # Before it is made: what it shows is at least as new.
                begun = self._clock.monotonic()
                self._last = begun, self._make()
            return self._last[1]
