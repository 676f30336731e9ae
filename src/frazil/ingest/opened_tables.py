"""The changelogs of an ingest, opened when they are first used, and their last known positions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from frazil.ingest.batch_run import position_if_known
from frazil.ingest.captured_table import CapturedPosition
from frazil.ledger.table_state import Gone, Paused, Streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.ingest.batch_run import BatchResult
    from frazil.ingest.captured_table import CapturedTable
    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position


class OpenedTables:
    """By the name at the source. Not thread-safe: its owner is."""

    def __init__(self, new: Callable[[str], CapturedTable]) -> None:
        self._new = new
        self._tables: dict[str, CapturedTable] = {}
        self._positions: dict[str, CapturedPosition] = {}

    def table(self, name: str) -> CapturedTable:
        """The changelog of a source table."""
        if name not in self._tables:
            self._tables[name] = self._new(name)
        return self._tables[name]

    def forget(self) -> None:
        """Open everything again."""
        self._tables.clear()
        self._positions.clear()

    def forget_positions(self) -> None:
        """Another process may have moved them."""
        self._positions.clear()

    def load_position(self, name: str) -> CapturedPosition | None:
        """Its position; None if it does not exist or nothing was written to it."""
        if name not in self._positions:
            position = self.table(name).load_position()
            if position is None:
                return None
            self._positions[name] = position
        return self._positions[name]

    def load_reached(self, table_states: Mapping[str, TableState]) -> list[Position]:
        """Positions of tables whose rows stay; an unreadable one is reported when it is read."""
        for name, each in table_states.items():
            if isinstance(each.state, Streaming | Paused | Gone) and name not in self._positions:
                is_streaming = isinstance(each.state, Streaming)
                position = position_if_known(partial(self.table, name), is_streaming=is_streaming)
                if position is not None:
                    self._positions[name] = position
        return [each.position for each in self._positions.values()]

    def take(self, result: BatchResult) -> None:
        """The positions that a batch has led to."""
        for name, done in result.committed.items():
            prepared = result.prepared[name]
            self._positions[name] = CapturedPosition(
                position=done.goal, epoch=prepared.epoch, shape=prepared.part.table.shape
            )
