"""Questions about a table's history that need no table."""

from __future__ import annotations

import pytest

from frazil.clients.iceberg.snapshot_range import check_range
from frazil.clients.iceberg.table_state import SnapshotFacts
from frazil.clients.iceberg.validity import is_valid
from frazil.errors import ForeignChangeError, RolledBackError
from frazil.model.marker import Marker, SnapshotRef
from frazil.model.table_facts import SnapshotOperation

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


def test_a_marker_of_the_head_or_an_ancestor_is_valid() -> None:
    history = line(APPEND, APPEND, APPEND)
    assert is_valid(written_by(3), history)
    assert is_valid(written_by(1), history)


def test_a_marker_of_a_snapshot_that_is_not_in_the_line_is_not_valid() -> None:
    assert not is_valid(written_by(9), line(APPEND, APPEND))
    assert not is_valid(written_by(9), [])


def test_a_marker_whose_snapshot_expired_is_valid_if_all_that_is_left_is_newer() -> None:
    kept = line(APPEND, APPEND, oldest_parent=77)
    older = [SnapshotFacts(s.id + 100, s.parent, s.sequence + 100, s.operation, {}) for s in kept]
    assert is_valid(written_by(77, sequence=50), older)
    # Rolled back to before the marker: what is left is older, cut or not.
    assert not is_valid(written_by(77, sequence=500), older)


def test_a_replaced_table_has_a_history_that_begins_anew() -> None:
    assert not is_valid(written_by(77, sequence=0), line(APPEND, APPEND))


def test_a_marker_that_names_no_snapshot_is_not_valid() -> None:
    marker = Marker(pipeline="p", source="s", position="1", batch="b")
    assert not is_valid(marker, line(APPEND))


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
