"""Work that is split finer after a task died for lack of memory, until it succeeds again."""

from __future__ import annotations

from frazil.errors import WriteFailedError
from frazil.telemetry.logs import get_logger

_log = get_logger(__name__)

# A sixty-fourth of what was configured; what fails then does not fail for its size.
MOST_HALVINGS = 6
# What is tried larger again may fail again, and that costs as much as it saves.
_SUCCESSES_TO_GROW = 8


class MemoryBackoff:
    """How often the size of a piece of work is halved; for one kind of work, in one thread."""

    def __init__(self) -> None:
        self.halvings = 0
        self._successes = 0

    def count_success(self) -> None:
        """A piece of this size can be done: after some of them, larger ones are tried again."""
        self._successes += 1
        if self._successes >= _SUCCESSES_TO_GROW:
            self.halvings, self._successes = max(0, self.halvings - 1), 0

    def count_failure(self, error: BaseException) -> None:
        """Halve what comes next if it is memory that a task did not have."""
        if isinstance(error, WriteFailedError) and error.lacked_memory:
            self.halvings, self._successes = min(self.halvings + 1, MOST_HALVINGS), 0
            _log.warning("a task died, work is split finer", parts=2**self.halvings)
