"""Which segments a batch reads, from what was listed; pure.

The position of a partition moves by segments, by the last offset in their footers: a client that
packs several batches into one request gives records offsets that collide, the broker does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from frazil.config.models.kafscale_source import OnGap
from frazil.sources.kafscale.segments.discovery import SegmentBound
from frazil.sources.kafscale.segments.planned import JoinedRuns, PlannedSegment, SegmentRun
from frazil.sources.protocol import Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from frazil.sources.kafscale.segments.discovery import SegmentEnd, SegmentObject
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.protocol import Limit

# Enough that a task has something to do for its start, and little enough to share fairly. Of a
# large batch more: while a task decodes one segment, it fetches the next ones of the same split.
_LEAST_SPLIT_BYTES, _MOST_SPLIT_BYTES = 4 << 20, 16 << 20
_SPLITS = 16
_SPLIT_SEGMENTS = 512
# Each costs two requests, and a batch should not take minutes.
MOST_SEGMENTS = 8192
# What a request costs beside the bytes it brings.
_REQUEST_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition: where it continues, where it must stop, and what there is.

    Of what is listed, the first ``taken`` are for this batch. ``ends`` are their footers by key;
    one that is not there belongs to a segment that is gone.
    """

    partition: TopicPartition
    start: int
    stop: int
    listed: Sequence[SegmentObject]
    taken: int
    ends: Mapping[str, SegmentEnd]


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Offsets that do not continue: from ``expected`` on there is nothing before ``found``."""

    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """The segments of a partition that follow each other, and what comes then, if that is wrong.

    The first of the ``gaps`` is behind the segments. Where gaps are recorded, the others are those
    behind it that are known by now; where they stop a partition, there are none.
    """

    partition: TopicPartition
    segments: tuple[PlannedSegment, ...]
    gaps: tuple[OffsetGap, ...] = ()


def line_up(
    facts: PartitionFacts, on_gap: OnGap, lost: Collection[OffsetGap] = ()
) -> PartitionLine:
    """The segments that can be read, one after another from the start.

    Gaps that are recorded end them as well, unless they are ``lost``: what is missing may still be
    uploaded, and nobody reads it once its successors are captured.
    """
    segments: list[PlannedSegment] = []
    gaps: list[OffsetGap] = []
    expected = facts.start
    listed = facts.listed
    for at, each in enumerate(listed[: facts.taken]):
        following = listed[at + 1] if at + 1 < len(listed) else None
        if each.key not in facts.ends:
            # Expired since it was listed; the next listing shows what is missing.
            break
        end = _end_of(each, facts.ends[each.key], following)
        if end is not None and following is not None and on_gap is OnGap.STOP:
            # Where both have the same offsets, the task that reads the first of them says so.
            end = min(end, following.base_offset)
        if end is None or end > facts.stop:
            break
        is_entered = at == 0 and each.base_offset < expected < end
        is_next = each.base_offset == expected or is_entered
        gap = OffsetGap(expected, each.base_offset)
        if not is_next and on_gap is OnGap.STOP:
            gaps.append(gap)
            break
        is_missing = each.base_offset > expected
        if is_missing and gap not in lost:
            gaps.append(gap)
        if not gaps:
            segments.append(
                PlannedSegment(
                    key=each.key,
                    size=each.size,
                    base_offset=each.base_offset,
                    from_offset=expected if is_entered else each.base_offset,
                    next_offset=end,
                    missing_from=expected if is_missing else None,
                )
            )
        expected = max(expected, end)
    return PartitionLine(facts.partition, tuple(segments), tuple(gaps))


def _end_of(segment: SegmentObject, end: SegmentEnd, following: SegmentObject | None) -> int | None:
    """The offset after a segment; None while nobody can know it."""
    last = end.last_offset
    if last is not None and last >= segment.base_offset:
        return last + 1
    # Brokers write nonsense for what some clients pack together; where the next one begins is
    # what the broker itself went on with.
    if following is not None:
        return following.base_offset
    # Damaged: the task that reads it says so.
    return segment.base_offset + 1 if last is None else None


def bound_of(limit: Limit) -> SegmentBound:
    """How much of a partition is listed, however much waits: what a batch may have, and one more.

    Where that one begins is where the last of the batch ends, should its footer not say it.
    """
    return SegmentBound(bytes=limit.bytes, segments=_most_segments(limit) + 1)


def _most_segments(limit: Limit) -> int:
    # A segment has a record at least.
    return min(limit.rows, MOST_SEGMENTS)


def choose(
    listed: Mapping[TopicPartition, Sequence[SegmentObject]], limit: Limit
) -> Mapping[TopicPartition, int]:
    """How many segments of each partition a batch has; all in turn, so that none waits."""
    counts = dict.fromkeys(listed, 0)
    size, most = 0, _most_segments(limit)
    for count, (partition, segment) in enumerate(_in_turn(listed)):
        if count and (size + segment.size > limit.bytes or count >= most):
            break
        counts[partition] += 1
        size += segment.size
    return counts


def _in_turn(
    listed: Mapping[TopicPartition, Sequence[SegmentObject]],
) -> Iterator[tuple[TopicPartition, SegmentObject]]:
    for round_ in zip_longest(*listed.values()):
        for partition, segment in zip(listed, round_, strict=True):
            if segment is not None:
                yield partition, segment


def split_batch(
    chosen: Mapping[TopicPartition, Sequence[PlannedSegment]],
) -> tuple[Split, ...]:
    """Pieces that tasks share: segments that follow each other."""
    total = sum(each.size for segments in chosen.values() for each in segments)
    most = min(max(total // _SPLITS, _LEAST_SPLIT_BYTES), _MOST_SPLIT_BYTES)
    return tuple(
        split for each, segments in chosen.items() for split in _split_runs(each, segments, most)
    )


def join_splits(splits: tuple[Split, ...]) -> tuple[Split, ...]:
    """One split of all that a task has, in the order of partitions and offsets."""
    runs = [each.payload for each in splits if isinstance(each.payload, SegmentRun)]
    if len(runs) < len(splits) or len(splits) <= 1:
        return splits
    runs.sort(key=lambda run: (run.topic, run.partition, run.segments[0].base_offset))
    return (Split(JoinedRuns(tuple(runs)), sum(each.weight for each in splits)),)


def _split_runs(
    partition: TopicPartition, segments: Sequence[PlannedSegment], most_bytes: int
) -> tuple[Split, ...]:
    splits: list[Split] = []
    run: list[PlannedSegment] = []
    weight = 0
    for each in segments:
        if run and (weight + each.size > most_bytes or len(run) >= _SPLIT_SEGMENTS):
            splits.append(_split(partition, run))
            run, weight = [], 0
        run.append(each)
        weight += each.size
    if run:
        splits.append(_split(partition, run))
    return tuple(splits)


def _split(partition: TopicPartition, run: Sequence[PlannedSegment]) -> Split:
    weight = sum(each.size + _REQUEST_BYTES for each in run)
    return Split(SegmentRun(partition.topic, partition.partition, tuple(run)), weight)
