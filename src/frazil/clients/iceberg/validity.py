"""Whether a marker still speaks of the table's content: a pure question about its history.

A property outlives a rollback and ``CREATE OR REPLACE``; the snapshot that wrote it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.iceberg.table_state import SnapshotFacts
    from frazil.model.marker import Marker


def is_valid(marker: Marker, ancestry: Iterable[SnapshotFacts]) -> bool:
    """The commit that wrote the marker is the head or an ancestor of it.

    ``ancestry`` is newest first and walked no further than needed. Where expiry has cut it off
    above the marker's commit, the commit is taken to have been there: what is left came after it.
    """
    written = marker.snapshot
    if written is None:
        return False
    oldest = None
    for snapshot in ancestry:
        if snapshot.id == written.id:
            return True
        if snapshot.sequence < written.sequence:
            # Everything below is older still: the commit is not in this line.
            return False
        oldest = snapshot
    was_cut = oldest is not None and oldest.parent is not None
    return was_cut and oldest is not None and oldest.sequence > written.sequence
