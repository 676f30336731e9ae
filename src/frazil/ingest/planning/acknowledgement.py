"""What the source may be acknowledged to after a batch; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil.ledger.table_state import Gone, Paused, Streaming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position
    from frazil.sources.protocol import Batch


def holds_log(table_states: Iterable[TableState], *, planned_for: Collection[str]) -> bool:
    """Whether tables need what a batch left out: those paused, gone, or new to the stream."""
    return any(
        isinstance(each.state, Paused | Gone)
        or (isinstance(each.state, Streaming) and each.table not in planned_for)
        for each in table_states
    )


def plan_acknowledgement(
    batch: Batch, known: Position | None, *, left_out: Collection[str], holds: bool
) -> Position | None:
    """The position to record; by partition, of those that move.

    ``known`` is what the ledger says. Of the tables that were ``left_out`` nothing was committed.
    The source ``holds`` what tables need that are not in the batch: one log is held for all of
    them, a partition only for the table that it has rows of.
    """
    if isinstance(known, Mapping):
        stays = {
            partition
            for part in batch.parts
            if part.table.name in left_out and isinstance(part.goal, Mapping)
            for partition in part.goal
        }
        end = batch.end if isinstance(batch.end, Mapping) else {}
        return {partition: at for partition, at in end.items() if partition not in stays}
    if known is not None and (holds or batch.end is None):
        return known
    return batch.end
