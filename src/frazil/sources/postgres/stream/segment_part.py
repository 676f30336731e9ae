"""What a task is told about a segment of the spool, and what it asks of the spool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.sources.postgres.stream.segment import OpenTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPart:
    """A segment to be read whole; the payload of a split is a tuple of these.

    ``opens`` is the large transaction inside which it begins. ``begins_ordinals`` are, by the OID
    of a table, ordinals that no row of that transaction in an earlier segment reaches: an update
    may be two rows, so that counting messages is too few. A table that is not there begins at 0.
    """

    name: str
    opens: OpenTransaction | None = None
    begins_ordinals: Mapping[int, int] = field(default_factory=dict)


class SegmentFiles(Protocol):
    """Where segments lie; picklable, and at hand in every task."""

    def load(self, name: str) -> bytes | memoryview:
        """The bytes of a segment."""
