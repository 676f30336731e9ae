"""Whether a mirror has passed a position of its source, and waiting until it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from itertools import takewhile
from typing import TYPE_CHECKING

from frazil.ledger.table_state import Streaming
from frazil.model.marker import MarkerRole

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock
    from frazil.ledger.table import Ledger
    from frazil.ledger.table_state import State
    from frazil.model.marker import Marker
    from frazil.sources.row_source import RowSource

# Often enough for an operator who waits, seldom enough for the catalog.
POLL_SECONDS = 1.0
# An ingest that restarts its stream is absent for a moment; one that does not run stays absent.
ABSENT_POLLS = 3
_MILLISECONDS = 1000


class Passage(Enum):
    """Whether the mirror has what was committed before a position, and if not, why."""

    PASSED = auto()
    NOT_CAPTURED = auto()
    NOT_MERGED = auto()
    # The ledger says that the table is not captured at the moment.
    STOPPED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait, and what to call while waiting.

    A running merge reads captured changes within ``merge_limit``; if they wait longer, no merge
    runs, unless ``merges_run`` says otherwise.
    """

    clock: Clock
    limit: timedelta
    on_wait: Callable[[], None]
    merge_limit: timedelta = timedelta.max
    merges_run: bool = False


@dataclass(slots=True, kw_only=True)
class MirrorProgress:
    """One captured table with its mirror; lives on the driver."""

    source: str
    rows: RowSource = field(repr=False)
    ledger: Ledger
    changelog: LakeTable
    mirror: LakeTable
    state: State | None = field(default=None, init=False)
    # Whether the slot was in use when last checked.
    _is_read: bool = field(default=True, init=False)
    # The changelog's snapshot that has everything before the position.
    _needed: int | None = field(default=None, init=False)

    @property
    def is_read(self) -> bool:
        """Whether the slot was in use when last checked."""
        return self._is_read

    def position(self) -> Marker | None:
        """The changelog's marker."""
        return self.changelog.load_marker(MarkerRole.INGEST)

    def wait(self, position: int, identity: str, patience: Patience) -> Passage:
        """Wait until the mirror has passed, or does not seem to progress."""
        clock = patience.clock
        deadline = clock.monotonic() + patience.limit.total_seconds()
        self._needed, absences = None, 0
        self.state = self._load_state()
        if not isinstance(self.state, Streaming):
            return Passage.STOPPED
        while True:
            passage = self._check(position, identity)
            if passage is Passage.PASSED or clock.monotonic() >= deadline:
                return passage
            absences = 0 if self._is_advanced(passage, patience) else absences + 1
            if absences >= ABSENT_POLLS or (absences and self._is_left(passage, patience)):
                return passage
            patience.on_wait()
            clock.sleep(POLL_SECONDS)

    def _is_advanced(self, passage: Passage, patience: Patience) -> bool:
        """Whether an ingest or a merge seems to work on what the mirror lacks."""
        if passage is Passage.NOT_MERGED:
            if patience.merges_run:
                return True
            if self._is_left(passage, patience):
                return False
            # A process that ingests also merges, or another one does.
            return self.rows.is_read()
        return self._is_read

    def _is_left(self, passage: Passage, patience: Patience) -> bool:
        """Whether captured changes wait longer than a running merge would leave them."""
        if passage is not Passage.NOT_MERGED or patience.merges_run:
            return False
        first = next(iter(self.unmerged()), None)
        if first is None:
            return False
        waited = patience.clock.now().timestamp() - first.committed_at / _MILLISECONDS
        return waited > patience.merge_limit.total_seconds()

    def unmerged(self) -> tuple[SnapshotFacts, ...]:
        """The changelog's snapshots that the mirror does not have, oldest first."""
        marker = self.mirror.load_marker(MarkerRole.MERGE)
        merged = None if marker is None else int(str(marker.position))
        newest = takewhile(lambda each: each.id != merged, self.changelog.iter_ancestry())
        return tuple(reversed(tuple(newest)))

    def _load_state(self) -> State | None:
        found = (each.state for each in self.ledger.table_states() if each.table == self.source)
        return next(found, None)

    def _check(self, position: int, identity: str) -> Passage:
        if self._needed is None:
            if not self._is_captured(position, identity):
                return Passage.NOT_CAPTURED
            # The changelog's current snapshot has all of it.
            head = self.changelog.load_state().head
            self._needed = None if head is None else head.id
        return Passage.PASSED if self._is_merged() else Passage.NOT_MERGED

    def _is_captured(self, position: int, identity: str) -> bool:
        """By the ledger, by the changelog itself, or because the table has no unread changes.

        The changelog of a table without changes does not move; the ledger does, after a delay.
        """
        parse, marker = self.rows.parse, self.position()
        at = 0 if marker is None else parse(marker.position)
        recorded = self.ledger.acknowledged()
        if max(at, 0 if recorded is None else parse(recorded.position)) >= position:
            return True
        pending = self.rows.load_pending(identity, position)
        self._is_read = pending.is_read
        # A table skips a transaction that is before its marker.
        return pending.newest is not None and pending.newest < at

    def _is_merged(self) -> bool:
        if self._needed is None:
            return True
        marker = self.mirror.load_marker(MarkerRole.MERGE)
        if marker is None:
            return False
        merged = int(str(marker.position))
        history = self.changelog.load_version().history(until=self._needed)
        return any(each.id == merged for each in history)
