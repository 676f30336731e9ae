"""Which snapshots a merge takes, and what it refuses to guess."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil import errors
from frazil.merge.planning.plan import plan_merge
from frazil.model.policy import Deletes
from tests.unit.merge.planning.plan_facts import (
    DELETE,
    OVERWRITE,
    REPLACE,
    SETTINGS,
    appends,
    changelog,
    merged_through,
    mirror,
    planned,
    snapshot,
    taken,
)

if TYPE_CHECKING:
    from frazil.model.marker import Position
    from frazil.model.table_facts import SnapshotOperation


def test_all_snapshots_after_the_marker_are_merged() -> None:
    plan = planned(changelog(*appends(10, 20, 30)), after=1)
    assert taken(plan) == (1, 3, 50, 0)
    assert plan is not None
    assert (plan.start, plan.head, plan.source) == ("1", 700, "changelog-1")
    assert (plan.bytes, plan.snapshots, plan.creates) == (5000, 2, None)


def test_a_mirror_that_is_up_to_date_has_nothing_to_merge() -> None:
    assert planned(changelog(*appends(10, 20)), after=2) is None


def test_a_range_ends_before_it_has_more_than_max_rows() -> None:
    assert taken(planned(changelog(*appends(1, 60, 40, 1, 99)), after=1)) == (1, 3, 100, 2)


def test_one_snapshot_larger_than_max_rows_is_merged_alone() -> None:
    assert taken(planned(changelog(*appends(1, 500, 1)), after=1)) == (1, 2, 500, 1)


def test_compactions_count_no_rows_and_are_skipped() -> None:
    facts = changelog(snapshot(1), snapshot(2), snapshot(3, REPLACE, rows=9999), snapshot(4))
    assert taken(planned(facts, after=1)) == (1, 4, 20, 0)


def test_a_range_of_compactions_alone_still_moves_the_marker() -> None:
    facts = changelog(snapshot(1), snapshot(2, REPLACE), snapshot(3, REPLACE))
    plan = planned(facts, after=1)
    assert taken(plan) == (1, 3, 0, 0)
    assert plan is not None
    assert (plan.bytes, plan.tasks) == (0, 1)


def test_a_range_never_ends_in_the_middle_of_a_copy() -> None:
    copying = [snapshot(number, rows=60, incomplete=True) for number in (2, 3)]
    facts = changelog(snapshot(1), *copying, snapshot(4, rows=60), snapshot(5))
    assert taken(planned(facts, after=1)) == (1, 4, 180, 1)


def test_a_copy_that_is_not_finished_waits() -> None:
    assert planned(changelog(snapshot(1), snapshot(2, incomplete=True)), after=1) is None
    assert planned(changelog(snapshot(1, incomplete=True))) is None


def test_a_copy_in_progress_lets_earlier_changes_be_merged() -> None:
    facts = changelog(snapshot(1), snapshot(2), snapshot(3, incomplete=True))
    assert taken(planned(facts, after=1)) == (1, 2, 10, 1)


@pytest.mark.parametrize("operation", [REPLACE, DELETE])
def test_a_compaction_or_retention_in_the_middle_of_a_copy_does_not_end_it(
    operation: SnapshotOperation,
) -> None:
    lines = (snapshot(1), snapshot(2, incomplete=True), snapshot(3, operation))
    assert planned(changelog(*lines, retention={3: 1}), after=1) is None
    finished = changelog(*lines, snapshot(4), retention={3: 1})
    assert taken(planned(finished, after=1)) == (1, 4, 20, 0)


@given(
    rows=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    incomplete=st.lists(st.booleans(), min_size=12, max_size=12),
    max_rows=st.integers(1, 120),
)
def test_consecutive_ranges_read_every_row_once_and_end_complete(
    rows: list[int], incomplete: list[bool], max_rows: int
) -> None:
    flags = [*incomplete[: len(rows) - 1], False]
    lines = [
        snapshot(number, rows=count, incomplete=flag)
        for number, (count, flag) in enumerate(zip(rows, flags, strict=True), start=2)
    ]
    facts = changelog(snapshot(1), *lines)
    settings = replace(SETTINGS, max_rows=max_rows)
    after, total = 1, 0
    while (plan := planned(facts, after, settings)) is not None:
        ends = [each.id for each in lines if each.id > after and not each.incomplete]
        assert plan.through in ends
        assert plan.rows <= max_rows or plan.through == ends[0]
        after, total = plan.through, total + plan.rows
    assert (after, total) == (lines[-1].id, sum(rows))


# Where the marker and the history do not meet.


def test_expiry_exactly_up_to_the_marker_loses_nothing() -> None:
    facts = changelog(snapshot(5), snapshot(6))
    assert taken(planned(facts, after=4)) == (4, 6, 20, 0)


def test_expiry_past_the_marker_is_never_skipped_over() -> None:
    with pytest.raises(
        errors.PositionLostError, match="snapshot 3, merged last, is expired"
    ) as lost:
        planned(changelog(snapshot(5), snapshot(6)), after=3)
    assert "history begins at 5" in str(lost.value)
    assert lost.value.table == "shop.users_changelog"
    assert lost.value.next_step == "frazil resync shop.users"


def test_a_changelog_that_was_rolled_back_stops() -> None:
    with pytest.raises(errors.RolledBackError, match="snapshot 9") as refused:
        planned(changelog(*appends(1, 1)), after=9)
    assert refused.value.next_step == "frazil resync shop.users"


def test_a_changelog_that_was_emptied_stops() -> None:
    with pytest.raises(errors.RolledBackError, match="snapshot 9"):
        planned(changelog(), after=9)


def test_a_changelog_that_is_another_table_stops() -> None:
    there = mirror(merged_through("1", source="changelog-0"))
    with pytest.raises(errors.TableReplacedError, match="merged from changelog-0") as refused:
        plan_merge(changelog(*appends(1, 1)), there, SETTINGS)
    assert refused.value.next_step == "frazil resync shop.users"


@pytest.mark.parametrize("position", ["0/1A2B", "", {"topic/0": 5}])
def test_a_marker_that_names_no_snapshot_stops(position: Position) -> None:
    with pytest.raises(errors.MarkerLostError, match="does not name a snapshot"):
        plan_merge(changelog(snapshot(1)), mirror(merged_through(position)), SETTINGS)


def test_rows_without_a_marker_stop() -> None:
    with pytest.raises(errors.MarkerLostError, match="5 rows and no marker") as refused:
        plan_merge(changelog(snapshot(1)), mirror(None), SETTINGS)
    assert refused.value.next_step == "frazil position set shop.users --role merge"


# What may happen to a changelog besides appends.


def test_retention_of_merged_changes_is_skipped() -> None:
    facts = changelog(*appends(1, 1, 1), snapshot(4, DELETE), snapshot(5), retention={4: 2})
    assert taken(planned(facts, after=2)) == (2, 5, 11, 0)


def test_retention_is_judged_where_the_marker_itself_was_expired() -> None:
    facts = changelog(snapshot(5), snapshot(6, DELETE), retention={6: 4})
    assert taken(planned(facts, after=4)) == (4, 6, 10, 0)


@pytest.mark.parametrize(
    "retention", [{4: 3}, {4: 4}, {}], ids=["unmerged", "its own", "single rows"]
)
def test_a_removal_of_what_may_not_be_merged_stops(retention: dict[int, int]) -> None:
    facts = changelog(*appends(1, 1, 1), snapshot(4, DELETE), retention=retention)
    with pytest.raises(errors.ForeignChangeError, match="snapshot 4 removed changes") as refused:
        planned(facts, after=2)
    assert refused.value.table == "shop.users_changelog"


def test_without_sequence_numbers_no_removal_can_be_judged() -> None:
    lines = [replace(each, sequence=0) for each in (*appends(1, 1), snapshot(3, DELETE))]
    with pytest.raises(errors.ForeignChangeError):
        planned(changelog(*lines, retention={3: 0}), after=1)
    # A delete that removed nothing is harmless all the same.
    assert taken(planned(changelog(*lines, retention={3: -1}), after=1)) == (1, 3, 1, 0)


@pytest.mark.parametrize("removes", [False, True])
def test_an_overwrite_in_a_range_stops_with_its_snapshot(removes: bool) -> None:  # noqa: FBT001
    facts = changelog(*appends(1, 1), snapshot(3, OVERWRITE, removes=removes), retention={3: 0})
    with pytest.raises(errors.ForeignChangeError, match="snapshot 3 is an overwrite"):
        planned(facts, after=1)


def test_what_comes_before_a_foreign_change_is_merged_first_if_it_fills_a_range() -> None:
    facts = changelog(*appends(1, 100), snapshot(3, OVERWRITE), snapshot(4, rows=100))
    settings = replace(SETTINGS, max_rows=50)
    assert taken(planned(facts, after=1, settings=settings)) == (1, 2, 100, 2)


def test_what_retention_left_makes_no_mirror_but_a_mirror_that_has_merged_goes_on() -> None:
    trimmed = replace(changelog(*appends(10, 20, 30)), trimmed=1)
    with pytest.raises(errors.PositionLostError):
        plan_merge(trimmed, None, SETTINGS)
    with pytest.raises(errors.PositionLostError):
        plan_merge(trimmed, mirror(merged_through("2")), SETTINGS, rebuild=True)
    assert taken(planned(trimmed, after=2)) == (2, 3, 30, 0)


def test_a_copy_that_is_newer_than_what_retention_removed_makes_a_mirror() -> None:
    first, copy = appends(10, 20)
    copied = changelog(first, replace(copy, restart="0001"))
    plan = plan_merge(replace(copied, trimmed=1), None, SETTINGS)
    assert plan is not None
    assert plan.through == 2
    kept = replace(SETTINGS, deletes=Deletes.IGNORE)
    with pytest.raises(errors.PositionLostError):
        plan_merge(replace(copied, trimmed=1), None, kept)
