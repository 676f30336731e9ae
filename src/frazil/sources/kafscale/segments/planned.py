"""What a task reads: segments of one partition, one after another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """A segment of a batch.

    Of its records those from ``from_offset`` on are read, which is its base offset but where a
    position was set by hand or taken over. ``next_offset`` is where the one after it begins.
    ``missing_from`` is the first of the offsets that are missing before it, if some are.
    """

    key: str
    size: int
    base_offset: int
    from_offset: int
    next_offset: int
    missing_from: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """The payload of a split."""

    topic: str
    partition: int
    segments: tuple[PlannedSegment, ...]

    @property
    def partition_name(self) -> str:
        """As positions name it."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class JoinedRuns:
    """The payload of a split that was joined: all runs of one task.

    While a run is decoded, the segments of the next one are on their way: a task never waits for
    the first segment of a run but once, however many partitions it has.
    """

    runs: tuple[SegmentRun, ...]
