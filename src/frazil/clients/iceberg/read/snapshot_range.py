"""Checks the snapshots between two others: in one line, and only adding rows; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ForeignChangeError, RolledBackError
from frazil.model.command import command
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts

# A replace is a compaction: the same rows in other files.
_HARMLESS = frozenset({SnapshotOperation.APPEND, SnapshotOperation.REPLACE})


def check_range(
    ancestry: Sequence[SnapshotFacts], *, after: int | None, through: int, table: str
) -> tuple[SnapshotFacts, ...]:
    """The snapshots after the one up to the other, oldest first.

    ``ancestry`` is newest first; ``after`` may be the snapshot that was expired last, because
    nothing between the two is missing then. Raises RolledBackError when either is not in the line
    that leads to the head, ForeignChangeError when one between them removed or replaced rows.
    """
    line = [snapshot.id for snapshot in ancestry]
    expired = ancestry[-1].parent if ancestry else None
    for wanted in filter(None, (through, after)):
        if wanted not in line and (wanted == through or wanted != expired):
            message = f"snapshot {wanted} is not in the history of the table's current state."
            raise RolledBackError(
                message, table=table, next_step=command("position", "show", table)
            )
    newest = line.index(through)
    oldest = line.index(after) if after in line else len(line)
    if oldest < newest:
        message = f"snapshot {after} is newer than snapshot {through}."
        raise RolledBackError(message, table=table, next_step=command("position", "show", table))
    between = tuple(reversed(ancestry[newest:oldest]))
    if after is not None:
        for snapshot in between:
            if snapshot.operation not in _HARMLESS:
                message = f"snapshot {snapshot.id} is a {snapshot.operation}, not an append."
                raise ForeignChangeError(message, table=table)
    return between
