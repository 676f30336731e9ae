"""The result that a merge task sends to the driver: descriptors, bitmaps and counts, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.codec.key_index.entries import Entries
from frazil.merge.report import MergeAction, MergePhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.codec.deletes.deletion_vector import DeletionVector
    from frazil.merge.planning.changes import SequenceValue
    from frazil.model.key_index import RunPart


class Obstacle(StrEnum):
    """Why a range must be prepared on the driver before it can be merged."""

    # A key change left columns out: the row of another key is needed.
    LINKED_KEYS = "linked keys"
    # A TRUNCATE that does not simply empty the mirror, or that concerns other tasks as well.
    TRUNCATE = "truncate"
    # Changes with the highest sequence that was merged before: replays, or contradictions.
    EQUAL_SEQUENCE = "equal sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one task; what admits changes and what writes them fill in their parts.

    ``entries`` are new index entries for the young run; a task of a large merge writes them as a
    part of a run instead. ``ordinals`` are those of the files.
    """

    obstacle: Obstacle | None = None
    files: tuple[WrittenFile, ...] = ()
    ordinals: tuple[int, ...] = ()
    deleted: Mapping[int, DeletionVector] = field(default_factory=dict)
    entries: Entries = field(default_factory=Entries.empty)
    part: RunPart | None = None
    rows: int = 0
    counts: Mapping[MergeAction, int] = field(default_factory=dict)
    unknown_updates: int = 0
    surplus_rows: int = 0
    lowest: SequenceValue | None = None
    highest: SequenceValue | None = None
    truncated: SequenceValue | None = None
    seconds: Mapping[MergePhase, float] = field(default_factory=dict)


def total_seconds(results: Iterable[TaskResult]) -> dict[MergePhase, float]:
    """The time of each phase, summed over the tasks."""
    total: dict[MergePhase, float] = {}
    for result in results:
        for phase, seconds in result.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


def total_counts(results: Iterable[TaskResult]) -> dict[MergeAction, int]:
    """Keys by what became of them, summed over the tasks."""
    total = dict.fromkeys(MergeAction, 0)
    for result in results:
        for action, count in result.counts.items():
            total[action] += count
    return total


def union_of_deleted(results: Iterable[TaskResult]) -> dict[int, DeletionVector]:
    """Every deleted row, by the ordinal of its file."""
    total: dict[int, DeletionVector] = {}
    for result in results:
        for ordinal, vector in result.deleted.items():
            before = total.get(ordinal)
            total[ordinal] = vector if before is None else before.union(vector)
    return total
