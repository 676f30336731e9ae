"""When offsets that are missing are taken for lost: not while they may still be uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import PositionLostError
from frazil.model.command import command
from frazil.sources.protocol import PartitionFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.hooks import Clock
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.kafscale.segments.planning import OffsetGap, PartitionLine

# A segment whose files are still being uploaded looks like one that is missing.
GAP_SECONDS = 10.0
# A segment that comes later than that is rare; each look costs a request for each such partition.
_LOOK_SECONDS = 30.0


class GapWatch:
    """The gaps that partitions wait at, and since when."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._gaps: dict[TopicPartition, tuple[OffsetGap, float]] = {}
        # Of those that are recorded, all that are known behind what was read, since when.
        self._recorded: dict[TopicPartition, dict[OffsetGap, float]] = {}
        # Of those that were given up, when it is time to look whether they were filled.
        self._next_looks: dict[TopicPartition, float] = {}

    def judge(self, line: PartitionLine) -> PartitionFailure | None:
        """What is wrong behind the segments of a partition, once nobody will mend it."""
        if not line.gaps or line.segments:
            # It is looked at again when all before it is captured.
            return None
        gap, now = line.gaps[0], self._clock.monotonic()
        known, since = self._gaps.get(line.partition, (gap, now))
        if known != gap:
            since = now
        self._gaps[line.partition] = gap, since
        if now - since < self._seconds:
            return None
        self._next_looks[line.partition] = now + _LOOK_SECONDS
        return _failure(line.partition, gap)

    def note(self, line: PartitionLine) -> None:
        """Gaps that will be recorded, unless they are filled in time."""
        known, now = self._recorded.pop(line.partition, {}), self._clock.monotonic()
        if line.gaps:
            self._recorded[line.partition] = {each: known.get(each, now) for each in line.gaps}

    def lost(self, partition: TopicPartition) -> frozenset[OffsetGap]:
        """Gaps that nobody has filled in time."""
        until = self._clock.monotonic() - self._seconds
        noted = self._recorded.get(partition, {})
        return frozenset(gap for gap, since in noted.items() if since <= until)

    def due(self, stopped: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions that were stopped at a gap, and that were not looked at for a while."""
        now = self._clock.monotonic()
        due = [
            each
            for each, offset in stopped.items()
            if self._next_looks.get(each, now + 1) <= now and self._gaps[each][0].expected == offset
        ]
        self._next_looks |= dict.fromkeys(due, now + _LOOK_SECONDS)
        return due

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These go on."""
        for each in partitions:
            self._gaps.pop(each, None)
            self._next_looks.pop(each, None)


def _failure(partition: TopicPartition, gap: OffsetGap) -> PartitionFailure:
    error = PositionLostError(
        f"{partition} has no segment with the offsets {gap.expected} to {gap.found - 1}.",
        table=partition.topic,
        position=str(gap.expected),
        next_step="set source.on_gap: record to go on and keep a note of it among the dead "
        f"letters, or {command('resync', partition.topic)}",
    )
    return PartitionFailure(partition.topic, str(partition), gap.expected, error)
