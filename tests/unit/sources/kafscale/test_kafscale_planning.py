"""Which segments a batch reads: in order, without a gap, and of all partitions in turn."""

from __future__ import annotations

import pytest

from frazil.config.models.kafscale_source import OnGap
from frazil.sources.kafscale.segments.discovery import SegmentBound, SegmentEnd, SegmentObject
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.kafscale.segments.planning import (
    OffsetGap,
    PartitionFacts,
    PartitionLine,
    bound_of,
    choose,
    line_up,
    split_batch,
)
from frazil.sources.protocol import Limit

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)
NEVER = 1 << 62


def listed(*bases: int, size: int = 100, of: TopicPartition = ORDERS) -> list[SegmentObject]:
    return [SegmentObject(of, base, f"{of}/{base}", size) for base in bases]


def planned(
    ends: dict[int, int | None],
    *,
    start: int = 0,
    stop: int = NEVER,
    on_gap: OnGap = OnGap.STOP,
    taken: int | None = None,
    gone: tuple[int, ...] = (),
    lost: tuple[OffsetGap, ...] = (),
) -> PartitionLine:
    """Segments by base offset, each with the last offset of its footer."""
    segments = listed(*ends)
    return line_up(
        PartitionFacts(
            partition=ORDERS,
            start=start,
            stop=stop,
            listed=segments,
            taken=len(segments) if taken is None else taken,
            ends={
                each.key: SegmentEnd(ends[each.base_offset])
                for each in segments
                if each.base_offset not in gone
            },
        ),
        on_gap,
        lost,
    )


def read(line: PartitionLine) -> list[tuple[int, int, int]]:
    return [(each.base_offset, each.from_offset, each.next_offset) for each in line.segments]


def test_segments_follow_each_other_by_their_footers() -> None:
    line = planned({0: 9, 10: 10, 11: 40})
    assert read(line) == [(0, 0, 10), (10, 10, 11), (11, 11, 41)]
    assert line.gaps == ()


def test_what_is_missing_ends_the_line_there() -> None:
    line = planned({0: 9, 15: 20})
    assert read(line) == [(0, 0, 10)]
    assert line.gaps == (OffsetGap(10, 15),)


def test_what_is_missing_is_noted_and_passed_by_setting() -> None:
    ends: dict[int, int | None] = {0: 9, 15: 20, 21: 21, 30: 30}
    first, second = OffsetGap(10, 15), OffsetGap(22, 30)
    # Not while it may still be uploaded.
    line = planned(ends, on_gap=OnGap.RECORD)
    assert (read(line), line.gaps) == ([(0, 0, 10)], (first, second))
    line = planned(ends, on_gap=OnGap.RECORD, lost=(first,))
    assert read(line) == [(0, 0, 10), (15, 15, 21), (21, 21, 22)]
    assert [each.missing_from for each in line.segments] == [None, 10, None]
    assert line.gaps == (second,)
    assert planned(ends, on_gap=OnGap.RECORD, lost=(first, second)).gaps == ()


def test_a_position_before_the_oldest_segment_is_a_gap() -> None:
    assert planned({5: 9}, start=3).gaps == (OffsetGap(3, 5),)


def test_a_position_in_a_segment_reads_the_rest_of_it() -> None:
    assert read(planned({0: 9, 10: 19}, start=4)) == [(0, 4, 10), (10, 10, 20)]


def test_offsets_that_come_again_stop_the_partition_and_are_read_by_setting() -> None:
    # What follows a segment is where its task compares its end with.
    assert read(planned({0: 9, 7: 12})) == [(0, 0, 7), (7, 7, 13)]
    line = planned({0: 9, 7: 12, 13: 13}, on_gap=OnGap.RECORD)
    assert read(line) == [(0, 0, 10), (7, 7, 13), (13, 13, 14)]
    assert {each.missing_from for each in line.segments} == {None}


def test_a_footer_with_nonsense_leaves_the_end_to_the_next_segment() -> None:
    assert read(planned({0: -1, 6: 9})) == [(0, 0, 6), (6, 6, 10)]
    # Without a next one nobody knows, and nothing is skipped.
    assert read(planned({0: 5, 6: -1})) == [(0, 0, 6)]


def test_a_damaged_segment_is_read_so_that_its_task_says_so() -> None:
    assert read(planned({0: 5, 6: None})) == [(0, 0, 6), (6, 6, 7)]
    assert read(planned({0: None, 6: 8})) == [(0, 0, 6), (6, 6, 9)]


def test_a_partition_that_failed_is_planned_up_to_the_segment_that_failed() -> None:
    ends: dict[int, int | None] = {0: 9, 10: 19, 20: 29}
    assert read(planned(ends, stop=10)) == [(0, 0, 10)]
    # The record is in the middle of a segment, which is read completely or not at all.
    assert read(planned(ends, stop=15)) == [(0, 0, 10)]
    assert planned(ends, stop=15).gaps == ()


def test_a_segment_that_expired_after_the_listing_is_looked_at_again_later() -> None:
    line = planned({0: 9, 10: 19, 20: 29}, gone=(10,))
    assert read(line) == [(0, 0, 10)]
    assert line.gaps == ()


def test_the_end_of_the_last_segment_that_is_taken_is_known_from_the_one_behind_it() -> None:
    assert read(planned({0: 9, 10: -1, 25: 30}, taken=2)) == [(0, 0, 10), (10, 10, 25)]


@pytest.mark.fault("U7")
def test_partitions_take_turns_within_the_bounds_of_a_batch() -> None:
    found = {ORDERS: listed(*range(9)), OTHERS: listed(*range(3), of=OTHERS)}
    assert choose(found, Limit(rows=100, bytes=10_000)) == {ORDERS: 9, OTHERS: 3}
    assert choose(found, Limit(rows=100, bytes=400)) == {ORDERS: 2, OTHERS: 2}
    assert choose(found, Limit(rows=5, bytes=10_000)) == {ORDERS: 3, OTHERS: 2}
    assert choose(found, Limit(rows=100, bytes=900)) == {ORDERS: 6, OTHERS: 3}
    # One is always read, however large it is.
    assert choose(found, Limit(rows=100, bytes=1)) == {ORDERS: 1, OTHERS: 0}
    assert choose({}, Limit(rows=1, bytes=1)) == {}


def test_a_backlog_is_listed_as_far_as_a_batch_goes_and_one_segment_further() -> None:
    assert bound_of(Limit(rows=5, bytes=700)) == SegmentBound(bytes=700, segments=6)
    waiting = {ORDERS: listed(*range(20_000))}
    limit = Limit(rows=1_000_000, bytes=1 << 40)
    assert choose(waiting, limit) == {ORDERS: bound_of(limit).segments - 1}


@pytest.mark.fault("U7")
def test_runs_are_segments_that_follow_each_other_and_weigh_what_they_cost() -> None:
    mebibyte = 1 << 20
    segments = planned({0: 9, 10: 19, 20: 29}).segments
    (only,) = split_batch({ORDERS: segments})
    assert only.weight > 300
    # Of a small batch all cores get something; of a large one, each fetches some ahead.
    for count, size, splits in ((3, 3, 3), (64, 4, 16), (64, 20, 64)):
        large = line_up(
            PartitionFacts(
                partition=ORDERS,
                start=0,
                stop=NEVER,
                listed=listed(*range(count), size=size * mebibyte),
                taken=count,
                ends={f"{ORDERS}/{base}": SegmentEnd(base) for base in range(count)},
            ),
            OnGap.STOP,
        )
        found = split_batch({ORDERS: large.segments})
        assert len(found) == splits
        assert sum(each.weight for each in found) > count * size * mebibyte
    assert split_batch({ORDERS: ()}) == ()
