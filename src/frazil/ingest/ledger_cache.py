"""The newest state of the ledger in memory, for the two threads of an ingest."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import (
    CommitConflictError,
    FencedError,
    LeaseLostError,
    PositionLostError,
    SlotBusyError,
)
from frazil.ledger.table_state import Removed
from frazil.model.marker import SnapshotRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.ledger.rows import LedgerEntry
    from frazil.ledger.table import Ledger
    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Marker, Position


class LedgerCache:
    """What the ledger says, read again only when another process wrote in it.

    A caller that reads, decides and then writes holds ``lock`` meanwhile.
    """

    def __init__(self, ledger: Ledger, pipeline: str) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        # The newest commit that was read or written here; none while it may not be the newest.
        self._seen: SnapshotRef | None = None
        # The newest commit whose states of tables, and all before it, are known here.
        self._known_to: SnapshotRef | None = None
        self._acknowledged: Marker | None = None
        self._table_states: dict[str, TableState] = {}
        self.lock = threading.RLock()
        # Called, under the lock, when states of tables were read or written.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def acknowledged(self) -> Marker | None:
        """What the source may be acknowledged to; None before the first batch."""
        return self._acknowledged

    @property
    def position(self) -> Position | None:
        """The same without its marker."""
        return None if self._acknowledged is None else self._acknowledged.position

    @property
    def is_shared(self) -> bool:
        """Whether several processes may work for the source, each with its own partitions."""
        return isinstance(self.position, Mapping)

    @property
    def witness(self) -> str | None:
        """The last one; of a shared source it stays by itself, and may be newer than here."""
        known = self._acknowledged
        return None if known is None or self.is_shared else known.witness

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """The state of every captured table, by its name at the source."""
        return self._table_states

    def refresh(self) -> bool:
        """Read what another process wrote; returns whether one did.

        Those that share a source by partition write all the time: what counts are states of tables.
        """
        with self.lock:
            head = self._ledger.table.load_state().head
            newest = None if head is None else SnapshotRef(head.id, head.sequence)
            if newest is not None and newest == self._seen:
                return False
            if self._seen is not None and self._ledger.only_upkeep_since(self._seen):
                self._seen = self._known_to = newest
                return False
            self._acknowledged, since = self._ledger.acknowledged(), self._known_to
            is_new = not self.is_shared or since is None or self._ledger.has_new_states(since)
            if is_new:
                self._table_states = {each.table: each for each in self._ledger.table_states()}
            # Only now: what could not be read is read again.
            self._seen = self._known_to = newest
            if is_new:
                self.on_change()
            return is_new

    def record(
        self,
        table_states: Sequence[TableState],
        entries: Sequence[LedgerEntry] = (),
        *,
        batch: str,
        unless_moved: bool = False,
    ) -> None:
        """Record states of tables; the position stays.

        With ``unless_moved`` it raises FencedError when another process moved the position; of a
        shared source, when one wrote states since they were read here.
        """
        with self.lock:
            receipt = self._ledger.note(
                entries,
                pipeline=self._pipeline,
                batch=batch,
                table_states=table_states,
                position=self.position if unless_moved else None,
                states_since=self._known_to if self.is_shared else None,
            )
            self._wrote(receipt, table_states)

    def move(
        self,
        goal: Marker,
        table_states: Sequence[TableState] = (),
        entries: Sequence[LedgerEntry] = (),
        *,
        planned_on: Position | None = None,
        unless_written: bool = False,
    ) -> None:
        """Write down a batch, and where the source may be acknowledged to after it.

        By partition, the goal names those that move, and raises FencedError when another process
        moved one of them since ``planned_on``, or wrote states while there are some to write. With
        ``unless_written`` it does when another process wrote anything since states were read here.
        """
        with self.lock:
            if unless_written and self._seen is None:
                raise FencedError("another process wrote in the ledger meanwhile.")
            start = planned_on if isinstance(planned_on, Mapping) else self.position
            receipt = self._ledger.record(
                entries,
                start=start,
                goal=goal,
                table_states=table_states,
                head=self._seen if unless_written else None,
                states_since=self._known_to if self.is_shared and table_states else None,
            )
            self._acknowledged = receipt.marker
            self._wrote(receipt, table_states)

    def restart_at(self, goal: Marker) -> None:
        """Record that positions count in another source, or from another position, from now on."""
        with self.lock:
            known = self._acknowledged
            if known is not None and replace(known, batch=goal.batch, snapshot=None) == goal:
                return
            receipt = self._ledger.restart_at(goal)
            self._acknowledged = receipt.marker
            self._wrote(receipt, ())

    def _wrote(self, receipt: Receipt, table_states: Iterable[TableState]) -> None:
        written = {each.table: each for each in table_states}
        # A new mapping: other threads read the one before.
        self._table_states = {
            name: each
            for name, each in {**self._table_states, **written}.items()
            if not isinstance(each.state, Removed)
        }
        before, ours = self._seen, receipt.marker.snapshot
        follows = before is not None and ours is not None and self._follows(before, ours)
        # Where another process wrote in between, all of it is read again.
        self._seen = ours if follows else None
        if follows:
            self._known_to = ours
        self.on_change()

    def _follows(self, before: SnapshotRef, ours: SnapshotRef) -> bool:
        """Whether no other process wrote in between; upkeep of the ledger does not count."""
        is_next = ours.sequence == before.sequence + 1
        return is_next or self._ledger.only_upkeep_since(before, ours)


@contextmanager
def confirming_loss(ledger_cache: LedgerCache, refresh: Callable[[], None]) -> Iterator[None]:
    """Believe that changes are lost only if the ledger, read after the source, says so too.

    The ledger moves before the source is acknowledged. One that was read first may be behind the
    source, because another process worked in between.
    """
    known = ledger_cache.acknowledged
    try:
        yield
    except PositionLostError as error:
        refresh()
        if ledger_cache.acknowledged == known:
            raise
        message = "another process moved the ledger while this one read the source."
        raise SlotBusyError(message) from error


@contextmanager
def planning_again(ledger_cache: LedgerCache) -> Iterator[None]:
    """Where several processes share a source by partition, one that was overtaken plans again."""
    try:
        yield
    except (FencedError, LeaseLostError) as error:
        if not ledger_cache.is_shared:
            raise
        message = f"another process goes on with partitions of this batch: {error.reason}"
        raise CommitConflictError(message, table=error.table) from error
