"""Questions about a table's history that need no table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.clients.iceberg.commit.metadata_log import Validity, judge_marker
from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, check_range
from frazil.errors import ForeignChangeError, RolledBackError
from frazil.model.marker import Marker, SnapshotRef
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

APPEND, REPLACE = SnapshotOperation.APPEND, SnapshotOperation.REPLACE


def line(*operations: SnapshotOperation, oldest_parent: int | None = None) -> list[SnapshotFacts]:
    """Snapshots 1, 2, 3 … of these operations, newest first as histories are read."""
    snapshots = [
        SnapshotFacts(
            id=number,
            parent=number - 1 if number > 1 else oldest_parent,
            sequence=number,
            operation=operation,
            summary={},
        )
        for number, operation in enumerate(operations, start=1)
    ]
    return snapshots[::-1]


def written_by(snapshot: int, sequence: int | None = None) -> Marker:
    ref = SnapshotRef(snapshot, snapshot if sequence is None else sequence)
    return Marker(pipeline="p", source="s", position="1", batch="b", snapshot=ref)


def snapshots(*parents: tuple[int, int | None]) -> list[SnapshotFacts]:
    """A line, newest first, given as pairs of id and parent; ids rise with sequence numbers."""
    return [
        SnapshotFacts(id=each, parent=parent, sequence=each, operation=APPEND, summary={})
        for each, parent in parents
    ]


def test_a_marker_of_the_head_or_an_ancestor_is_valid() -> None:
    history = line(APPEND, APPEND, APPEND)
    assert judge_marker(written_by(3), history) is Validity.VALID
    assert judge_marker(written_by(1), history) is Validity.VALID


def test_a_marker_of_a_snapshot_that_is_not_an_ancestor_is_rolled_back() -> None:
    assert judge_marker(written_by(9), line(APPEND, APPEND)) is Validity.ROLLED_BACK
    assert judge_marker(written_by(9), []) is Validity.ROLLED_BACK


@pytest.mark.fault("N26")
def test_a_history_that_ends_before_the_markers_snapshot_proves_nothing() -> None:
    # 3 wrote the marker; 4 and 5 are its descendants, or came after a rollback to 2.
    assert judge_marker(written_by(3), snapshots((5, 4))) is Validity.UNPROVEN
    # The very snapshot is the missing parent: it is not listed, so nothing is known below it.
    assert judge_marker(written_by(3), snapshots((4, 3))) is Validity.UNPROVEN


@pytest.mark.fault("N26")
def test_a_history_known_past_expiry_separates_a_rollback_from_a_compaction() -> None:
    compacted = snapshots((6, 5), (5, 4), (4, 3), (3, 2))
    assert judge_marker(written_by(3), compacted) is Validity.VALID
    rolled_back = snapshots((6, 5), (5, 4), (4, 2), (2, 1))
    assert judge_marker(written_by(3), rolled_back) is Validity.ROLLED_BACK
    # Cut below the marker's sequence number: everything further down is older still.
    assert judge_marker(written_by(3), snapshots((5, 2), (2, 1))) is Validity.ROLLED_BACK
    # A replaced table begins a line of its own.
    replaced = snapshots((6, 5), (5, None))
    assert judge_marker(written_by(3), replaced) is Validity.ROLLED_BACK


def test_a_snapshot_that_was_proven_before_ends_the_search() -> None:
    cut = snapshots((9, 8), (8, 7))
    assert judge_marker(written_by(3), cut, descendant=8) is Validity.VALID
    assert judge_marker(written_by(3), cut, descendant=6) is Validity.UNPROVEN
    # Rolled back to before it: what was proven of another line says nothing.
    older = snapshots((9, 2), (2, 1))
    assert judge_marker(written_by(3), older, descendant=8) is Validity.ROLLED_BACK


def test_the_history_is_read_no_further_than_needed() -> None:
    def ancestry() -> Iterator[SnapshotFacts]:
        yield from snapshots((4, 3), (3, 2))
        pytest.fail("read on after the answer was known")

    assert judge_marker(written_by(3), ancestry()) is Validity.VALID


def test_tables_without_sequence_numbers_are_judged_by_their_ancestry_alone() -> None:
    def unnumbered(*parents: tuple[int, int | None]) -> list[SnapshotFacts]:
        return [replace(each, sequence=0) for each in snapshots(*parents)]

    marker = written_by(3, sequence=0)
    assert judge_marker(marker, unnumbered((4, 3), (3, None))) is Validity.VALID
    assert judge_marker(marker, unnumbered((4, 2), (2, None))) is Validity.ROLLED_BACK
    assert judge_marker(marker, unnumbered((4, 2))) is Validity.UNPROVEN


def test_a_marker_that_names_no_snapshot_is_rolled_back() -> None:
    marker = Marker(pipeline="p", source="s", position="1", batch="b")
    assert judge_marker(marker, line(APPEND)) is Validity.ROLLED_BACK


def ids(history: list[SnapshotFacts], after: int | None, through: int) -> list[int]:
    found = check_range(history, after=after, through=through, table="a.t")
    return [snapshot.id for snapshot in found]


def test_a_range_is_what_came_after_one_up_to_the_other_oldest_first() -> None:
    history = line(APPEND, APPEND, REPLACE, APPEND)
    assert ids(history, 1, 4) == [2, 3, 4]
    assert ids(history, 4, 4) == []
    assert ids(history, None, 2) == [1, 2]


def test_a_range_may_begin_at_the_snapshot_that_was_expired_last() -> None:
    history = line(APPEND, APPEND, oldest_parent=77)
    assert ids(history, 77, 2) == [1, 2]
    for after, through in ((76, 2), (77, 77)):
        with pytest.raises(RolledBackError, match="not in the history"):
            ids(history, after, through)


@pytest.mark.parametrize("operation", [SnapshotOperation.DELETE, SnapshotOperation.OVERWRITE])
def test_a_range_with_anything_but_appends_and_compactions_is_refused(
    operation: SnapshotOperation,
) -> None:
    history = line(APPEND, operation, APPEND)
    with pytest.raises(ForeignChangeError, match=f"snapshot 2 is a {operation}, not an append"):
        ids(history, 1, 3)
    # What lies outside the range is not its business, and a full read sees the result.
    assert ids(history, 2, 3) == [3]
    assert ids(history, None, 3) == [1, 2, 3]


@pytest.mark.parametrize(("after", "through"), [(9, 2), (1, 9)])
def test_a_range_that_is_not_in_the_line_is_refused(after: int, through: int) -> None:
    with pytest.raises(RolledBackError, match="snapshot 9 is not in the history"):
        ids(line(APPEND, APPEND), after, through)


def test_a_range_backwards_is_refused() -> None:
    with pytest.raises(RolledBackError, match="snapshot 2 is newer than snapshot 1"):
        ids(line(APPEND, APPEND), 2, 1)
