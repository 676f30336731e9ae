"""The changelogs of an ingest, opened when they are first used, and their last known positions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from frazil.errors import CommitConflictError, PositionLostError
from frazil.ingest.batch_run import position_if_known
from frazil.ingest.captured_table import CapturedPosition
from frazil.ledger.table_state import Gone, Paused, Streaming
from frazil.sources.protocol import PartitionFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.ingest.batch_run import BatchResult
    from frazil.ingest.captured_table import CapturedTable
    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position
    from frazil.model.schema.table_layout import TableLayout
    from frazil.sources.protocol import Batch, Progress


class OpenedTables:
    """By the name at the source. Not thread-safe: its owner is."""

    def __init__(self, new: Callable[[str], CapturedTable]) -> None:
        self._new = new
        self._tables: dict[str, CapturedTable] = {}
        # None of a table that does not exist or was not written to.
        self._positions: dict[str, CapturedPosition | None] = {}
        # As the source wants them.
        self.layouts: Mapping[str, TableLayout] = {}

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

    def load_position(self, name: str, *, is_new: bool = False) -> CapturedPosition | None:
        """Its position; None if it does not exist or nothing was written to it.

        Rows of one ``is_new``, of which nothing was captured, may be those of another writer.
        """
        if name not in self._positions:
            layout = self.layouts.get(name) if is_new else None
            columns = None if layout is None else layout.offset_columns
            self._positions[name] = self.table(name).load_position(name, columns)
        return self._positions[name]

    def confirm_gaps(self, batch: Batch | None, progress: Progress) -> None:
        """Believe that changes of a table are lost only if its marker, read afterwards, agrees.

        Another process may have captured them, and let the source forget them, meanwhile.
        """
        for each in () if batch is None else batch.failures:
            known = progress.tables.get(each.table)
            if known is None or not isinstance(each.error, PositionLostError):
                continue
            self._positions.pop(each.table, None)
            now = self.load_position(each.table, is_new=not known.identity)
            partition = each.partition if isinstance(each, PartitionFailure) else None
            position = None if now is None else now.position
            if _at(known.position, partition) != _at(position, partition):
                message = "another process captured what seemed to be lost."
                raise CommitConflictError(message, table=each.table)

    def load_reached(self, table_states: Mapping[str, TableState]) -> list[Position]:
        """Positions of tables whose rows stay; an unreadable one is reported when it is read."""
        for name, each in table_states.items():
            if isinstance(each.state, Streaming | Paused | Gone) and name not in self._positions:
                is_streaming = isinstance(each.state, Streaming)
                position = position_if_known(partial(self.table, name), is_streaming=is_streaming)
                if position is not None:
                    self._positions[name] = position
        return [each.position for each in self._positions.values() if each is not None]

    def take(self, result: BatchResult) -> None:
        """The positions that a batch has led to."""
        for name, done in result.committed.items():
            prepared = result.prepared[name]
            self._positions[name] = CapturedPosition(
                position=done.goal, epoch=prepared.epoch, shape=prepared.part.table.shape
            )


def _at(position: Position | None, partition: str | None) -> object:
    """The position, or where one partition is."""
    if partition is None or not isinstance(position, Mapping):
        return position
    return position.get(partition)
