"""Offsets of two sides, compared by ranges and joined to what a person can read."""

from __future__ import annotations

from frazil.verify.offset_ranges import (
    OffsetDifference,
    OffsetProblem,
    differing_ranges,
    join_offsets,
)

NAMES = {0: "orders/0", 1: "orders/1"}


def test_a_range_differs_by_its_count_its_checksum_or_by_being_there() -> None:
    expected = {(0, 0): (3, 7), (0, 1): (2, 5), (1, 0): (1, 1)}
    found = {(0, 0): (3, 7), (0, 1): (2, 6), (1, 4): (1, 1)}
    assert differing_ranges(expected, found) == ((0, 1), (1, 0), (1, 4))
    assert differing_ranges(expected, expected) == ()


def test_offsets_that_follow_each_other_are_one_range() -> None:
    differing = [(0, 4, -1), (0, 5, -1), (0, 6, 1), (0, 7, -1), (1, 8, -2), (1, 10, 1)]
    joined = join_offsets(differing, NAMES, most=20)
    missing, surplus = OffsetProblem.MISSING, OffsetProblem.SURPLUS
    assert joined == (
        OffsetDifference(missing, "orders/0", 4, 5),
        OffsetDifference(surplus, "orders/0", 6, 6),
        OffsetDifference(missing, "orders/0", 7, 7),
        OffsetDifference(missing, "orders/1", 8, 8),
        OffsetDifference(surplus, "orders/1", 10, 10),
    )
    assert [str(each) for each in joined[:2]] == ["orders/0 4 to 5", "orders/0 6"]


def test_no_more_ranges_are_named_than_a_person_reads() -> None:
    differing = [(0, offset * 2, -1) for offset in range(100)]
    assert len(join_offsets(differing, NAMES, most=20)) == 20
