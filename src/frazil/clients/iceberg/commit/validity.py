"""Whether a marker still describes the table's content: a pure question about its history.

A property outlives a rollback and ``CREATE OR REPLACE``; the snapshot that wrote it does not.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.model.marker import Marker


class Validity(Enum):
    """What the history says about a marker."""

    VALID = auto()
    ROLLED_BACK = auto()
    # The history is cut before it says either.
    UNPROVEN = auto()


def judge_marker(
    marker: Marker, ancestry: Iterable[SnapshotFacts], *, descendant: int | None = None
) -> Validity:
    """Valid if the commit that wrote the marker is the head or an ancestor of it.

    ``ancestry`` is newest first, read no further than needed, and follows the parent of each
    snapshot as far as it is known. ``descendant`` is a snapshot already known to descend from that
    commit. A line that ends above the commit proves nothing: sequence numbers rise after a
    rollback as well.
    """
    written = marker.snapshot
    if written is None:
        return Validity.ROLLED_BACK
    oldest = None
    for snapshot in ancestry:
        if snapshot.id in (written.id, descendant):
            return Validity.VALID
        if snapshot.sequence < written.sequence:
            # Everything below is older still: the commit is not in this line.
            return Validity.ROLLED_BACK
        oldest = snapshot
    is_cut = oldest is not None and oldest.parent is not None
    return Validity.UNPROVEN if is_cut else Validity.ROLLED_BACK
