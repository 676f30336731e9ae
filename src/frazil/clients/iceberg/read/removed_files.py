"""How young the data files are that a snapshot removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.translation import translated

if TYPE_CHECKING:
    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject

# Below every sequence number there is.
NOTHING_REMOVED = -1


def load_removed_sequence(
    gateway: IcebergGateway, table: JavaObject, snapshot: JavaObject, *, name: str
) -> int:
    """The highest data sequence number of the files it removed; costs a crossing per file.

    Not the file sequence number: a compaction writes new files whose rows are as old as before,
    and says so with the number they had.
    """
    highest = NOTHING_REMOVED
    with translated(name, "reading what a snapshot removed"):
        changes = gateway.snapshot_changes.builderFor(table).snapshot(snapshot).build()
        removed = changes.removedDataFiles().iterator()
        while removed.hasNext():
            highest = max(highest, int(removed.next().dataSequenceNumber()))
    return highest
