"""What the source may be acknowledged to after a batch; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil.ledger.table_state import Gone, Paused, Streaming

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position
    from frazil.sources.protocol import Batch


def plan_acknowledgement(
    batch: Batch,
    known: Position | None,
    table_states: Mapping[str, TableState],
    *,
    left_out: Collection[str],
    planned_for: Collection[str],
    is_copying: bool,
) -> Position | None:
    """The position to record; by partition, of those that move.

    ``known`` is what the ledger says, ``table_states`` are those after the batch. Of the tables
    that were ``left_out`` nothing was committed. One log is held for every table that needs
    what the batch left out, a partition only for the table that it has rows of.
    """
    states = {name: each.state for name, each in table_states.items()}
    if isinstance(known, Mapping):
        streaming = {name for name, each in states.items() if isinstance(each, Streaming)}
        stays = {
            partition
            for part in batch.parts
            if part.table.name in left_out or part.table.name not in streaming
            for partition in part.goal
        }
        end = batch.end if isinstance(batch.end, Mapping) else {}
        return {partition: at for partition, at in end.items() if partition not in stays}
    holds = is_copying or any(
        # Paused, gone, or new to the stream.
        isinstance(each, Paused | Gone) or (isinstance(each, Streaming) and name not in planned_for)
        for name, each in states.items()
    )
    if known is not None and (holds or batch.end is None):
        return known
    return batch.end
