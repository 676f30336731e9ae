"""Decides from a table's history whether a marker still describes its content; pure.

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
    # The history ends before it proves either.
    UNPROVEN = auto()


def judge_marker(
    marker: Marker, ancestry: Iterable[SnapshotFacts], *, descendant: int | None = None
) -> Validity:
    """Valid if the commit that wrote the marker is the head or an ancestor of it.

    ``ancestry`` is newest first, read no further than needed, and follows the parent of each
    snapshot as far as it is known. ``descendant`` is a snapshot already known to descend from that
    commit. A history that ends before the commit proves nothing: sequence numbers also rise after
    a rollback.
    """
    written = marker.snapshot
    if written is None:
        return Validity.ROLLED_BACK
    oldest = None
    for snapshot in ancestry:
        if snapshot.id in (written.id, descendant):
            return Validity.VALID
        if snapshot.sequence < written.sequence:
            # The rest is older: the commit is not in this history.
            return Validity.ROLLED_BACK
        oldest = snapshot
    is_cut = oldest is not None and oldest.parent is not None
    return Validity.UNPROVEN if is_cut else Validity.ROLLED_BACK
