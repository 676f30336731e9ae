"""When offsets that are missing are taken for lost: not while they may still be uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import PositionLostError
from frazil.model.command import command
from frazil.sources.protocol import PartitionFailure

if TYPE_CHECKING:
    from frazil.hooks import Clock
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.kafscale.segments.planning import OffsetGap, PartitionLine

# A segment whose files are still being uploaded looks like one that is missing.
GAP_SECONDS = 10.0


class GapWatch:
    """The gaps that partitions wait at, and since when."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._gaps: dict[TopicPartition, tuple[OffsetGap, float]] = {}

    def judge(self, line: PartitionLine) -> PartitionFailure | None:
        """What is wrong behind the segments of a partition, once nobody will mend it."""
        if line.gap is None or line.segments:
            # It is looked at again when all before it is captured.
            return None
        gap, now = line.gap, self._clock.monotonic()
        known, since = self._gaps.get(line.partition, (gap, now))
        if known != gap:
            since = now
        self._gaps[line.partition] = gap, since
        return None if now - since < self._seconds else _failure(line.partition, gap)


def _failure(partition: TopicPartition, gap: OffsetGap) -> PartitionFailure:
    error = PositionLostError(
        f"{partition} has no segment with the offsets {gap.expected} to {gap.found - 1}.",
        table=partition.topic,
        position=str(gap.expected),
        next_step="set source.on_gap: record to go on and keep a note of it among the dead "
        f"letters, or {command('resync', partition.topic)}",
    )
    return PartitionFailure(partition.topic, str(partition), gap.expected, error)
