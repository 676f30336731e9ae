"""The buffer database as a kind of source; its events cannot be read yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.sources.buffer.operated_kind import OperatedBuffer

if TYPE_CHECKING:
    from frazil.model.marker import Position

_NUMBER = re.compile(r"[0-9]{1,18}")


class BufferKind(OperatedBuffer):
    """One table of events."""

    name = "buffer"
    # Events that were processed are gone.
    can_resync = False

    def position_problem(self, position: Position) -> str | None:
        """A position is the number of a batch."""
        if isinstance(position, str) and _NUMBER.fullmatch(position):
            return None
        return "a position in the buffer is a number"
