"""Whether a marker still speaks of the table's content: a pure question about its history.

A property outlives a rollback and ``CREATE OR REPLACE``; the snapshot that wrote it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.iceberg.table_state import SnapshotFacts
    from frazil.model.marker import Marker


def is_valid(marker: Marker, ancestry: Sequence[SnapshotFacts]) -> bool:
    """The commit that wrote the marker is the head or an ancestor of it.

    ``ancestry`` is newest first. Where expiry has cut it off above the marker's commit, the commit
    is taken to have been there: everything that is left came after it.
    """
    written = marker.snapshot
    if written is None:
        return False
    if any(snapshot.id == written.id for snapshot in ancestry):
        return True
    oldest = ancestry[-1] if ancestry else None
    was_cut = oldest is not None and oldest.parent is not None
    return was_cut and oldest is not None and oldest.sequence > written.sequence
