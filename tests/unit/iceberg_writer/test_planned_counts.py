"""A staged snapshot has the files of its plan, or does not become a commit."""

from __future__ import annotations

import pytest

from frazil.clients.iceberg.commit.strict_commit import FileChanges, unplanned_counts
from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
from frazil.model.table_facts import SnapshotOperation

NAMES = ("added-data-files", "added-delete-files", "deleted-data-files", "removed-delete-files")
CHANGES = FileChanges(added=("a", "b"), added_deletes=("d",), removed_deletes=("e", "f"))
PLANNED = {"added-data-files": 2, "added-delete-files": 1, "removed-delete-files": 2}


def snapshot(**counts: int) -> SnapshotFacts:
    summary = {name.replace("_", "-"): str(count) for name, count in counts.items()}
    return SnapshotFacts(
        id=2, parent=1, sequence=2, operation=SnapshotOperation.OVERWRITE, summary=summary
    )


def staged(counts: dict[str, int]) -> SnapshotFacts:
    return snapshot(**{name.replace("-", "_"): count for name, count in counts.items()})


def test_a_snapshot_with_the_planned_files_is_accepted() -> None:
    assert unplanned_counts(staged(PLANNED), CHANGES, None) == ()


@pytest.mark.fault("X8")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", [-1, 1])
def test_any_other_number_of_files_is_refused_by_name(name: str, by: int) -> None:
    counts = {**PLANNED, name: PLANNED.get(name, 0) + by}

    (unplanned,) = unplanned_counts(staged(counts), CHANGES, None)

    assert unplanned.startswith(f"{name} is ")


def test_with_a_removed_data_file_iceberg_may_drop_deletes_that_only_it_needed() -> None:
    changes = FileChanges(removed=("a",), removed_deletes=("d",))

    assert unplanned_counts(staged({"deleted-data-files": 1}), changes, None) == ()
    assert unplanned_counts(staged({"removed-delete-files": 1}), changes, None) != ()


def test_a_replacement_removes_every_file_that_was_there() -> None:
    changes = FileChanges(added=("a",), replaces_everything=True)
    head = snapshot(total_data_files=3)
    counts = {"added-data-files": 1, "deleted-data-files": 3}

    assert unplanned_counts(staged(counts), changes, head) == ()
    assert unplanned_counts(staged({**counts, "deleted-data-files": 2}), changes, head) != ()
    assert unplanned_counts(staged({"added-data-files": 1}), changes, None) == ()
