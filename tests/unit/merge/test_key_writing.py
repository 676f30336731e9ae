"""Folded keys and a mirror of real files: where rows go, what dies, what is remembered."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.merge.writing.key_writer import ORDINALS_A_BLOCK
from frazil.model.key_index import TOMBSTONE
from frazil.model.policy import Deletes
from tests.support.sampling import examples
from tests.unit.merge.folder_mirror import DEL, UP, SentChange, Table

if TYPE_CHECKING:
    from frazil.codec.key_index.entries import Entries
    from frazil.merge.writing.task_result import TaskResult


def _keys(entries: Entries) -> list[int]:
    if entries.lo is None:
        return [int(each) for each in entries.hi]
    return [2 * hi + lo for hi, lo in zip(entries.hi.tolist(), entries.lo.tolist(), strict=True)]


def counts(written: TaskResult) -> dict[str, int]:
    return {action.value: count for action, count in written.counts.items() if count}


@pytest.mark.parametrize("wide", [True, False])
def test_rows_are_written_in_order_replaced_and_removed(tmp_path: Path, *, wide: bool) -> None:
    table = Table(tmp_path, per_key=False, wide=wide)
    first = table.merge((1, UP, 1, "a"), (2, UP, 2, "b"), (3, UP, 3, "c"))
    assert (counts(first), list(first.ordinals)) == ({"insert": 3}, [0])
    # Names fall in the order of the file; the last key comes when no more of it can follow.
    assert first.entries.position.tolist() == [0, 1, 2]
    assert (_keys(first.entries), first.entries.lo is None) == ([2, 1, 3], not wide)
    assert first.entries.sequence is None
    again = table.merge((1, UP, 4, "z"), (2, DEL, 5, None), (4, DEL, 6, None), (5, UP, 7, "e"))
    assert counts(again) == {"insert": 1, "update": 1, "delete": 1, "none": 1}
    assert again.deleted[0].positions().tolist() == [0, 1]
    assert TOMBSTONE not in again.entries.file.tolist()
    assert {key: row[0] for key, row in table.rows().items()} == {1: "z", 3: "c", 5: "e"}


def test_columns_that_were_left_out_come_from_the_row_or_stop_the_merge(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"), (2, UP, 1, "b"))
    table.merge((1, UP, 2, "z"), (2, UP, 3, "y"), unchanged={2: [3]})
    assert {key: row[:2] for key, row in table.rows().items()} == {
        1: ("z", "note a"),
        2: ("y", "note y"),
    }
    with pytest.raises(MissingImageError, match=r"^t: 1 changes"):
        table.merge((9, UP, 4, "x"), unchanged={4: [3]})
    with pytest.raises(MissingImageError):
        table.merge((1, UP, 4, "x"), unchanged={4: [3]}, empty=True)


def test_a_merge_that_changes_no_row_writes_nothing(tmp_path: Path) -> None:
    written = Table(tmp_path, per_key=False).merge((1, DEL, 1, None))
    assert (counts(written), written.files, written.deleted) == ({"none": 1}, (), {})
    assert (len(written.entries), len(written.ordinals)) == (0, 0)


def test_in_an_emptied_mirror_nothing_is_found(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    written = table.merge((1, UP, 2, "z"), (2, DEL, 2, None), empty=True)
    assert (counts(written), written.deleted) == ({"insert": 1, "none": 1}, {})


@pytest.mark.fault("N29")
def test_what_is_not_newer_is_late_and_deletes_are_remembered(tmp_path: Path) -> None:
    table = Table(tmp_path)
    first = table.merge((1, UP, 5, "a"), (2, UP, 5, "b"), (3, DEL, 5, None))
    assert first.entries.sequence is not None
    assert sorted(first.entries.sequence.to_pylist()) == [5, 5, 5]
    late = table.merge((1, UP, 4, "x"), (2, UP, 5, "b"), (3, UP, 4, "x"), (4, UP, 1, "d"))
    assert counts(late) == {"late": 3, "insert": 1}
    assert late.deleted == {}
    gone = table.merge((1, DEL, 6, None), (3, DEL, 5, None))
    assert counts(gone) == {"delete": 1, "late": 1}
    assert (gone.entries.file.tolist(), _keys(gone.entries)) == ([TOMBSTONE], [1])
    table.merge((1, UP, 6 - 1, "x"))
    assert {key: row[0] for key, row in table.rows().items()} == {2: "b", 4: "d"}


@pytest.mark.fault("N29")
@pytest.mark.parametrize(
    "changes",
    [
        [(1, UP, 5, "x")],
        [(1, DEL, 5, None)],
        [(3, UP, 5, "x")],
        [(1, UP, 5, "x"), (1, UP, 6, "y")],
        [(1, UP, 5, "a"), (1, UP, 6, "y"), (3, UP, 5, "x"), (3, DEL, 7, None)],
    ],
)
def test_a_contradiction_is_found_even_before_a_newer_change(
    changes: list[SentChange], tmp_path: Path
) -> None:
    table = Table(tmp_path)
    table.merge((1, UP, 5, "a"), (3, DEL, 5, None))
    with pytest.raises(DuplicateKeyError, match="1 keys have different changes"):
        table.merge(*changes)


def _story(table: Table, *merges: list[SentChange]) -> object:
    """Counts of every merge and the rows in the end, or where it was refused."""
    outcomes: list[object] = []
    for changes in merges:
        try:
            outcomes.append(counts(table.merge(*changes)))
        except DuplicateKeyError as error:
            return [*outcomes, error.message, sorted(table.rows().items())]
    return [*outcomes, sorted(table.rows().items())]


_CHANGES = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from([UP, UP, DEL]),
        st.integers(1, 4),
        st.sampled_from(["a", "a", "a", "b"]),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: (each[0], each[2]),
).map(lambda outcomes: sorted(outcomes, key=lambda each: (each[0], each[2])))


@pytest.mark.fault("N29")
@examples(60)
@given(first=_CHANGES, second=_CHANGES, deletes=st.sampled_from(Deletes), chunk=st.integers(1, 3))
def test_what_comes_of_changes_does_not_depend_on_how_a_task_cuts_them(
    first: list[SentChange], second: list[SentChange], deletes: Deletes, chunk: int
) -> None:
    stories = []
    for size in (1_000, chunk):
        with TemporaryDirectory() as folder:
            stories.append(_story(Table(Path(folder), deletes, chunk=size), first, second))
    # An error is raised at the first chunk that has one: how many more keys have one is unknown.
    whole, cut = (re.sub(r"\d+ keys", "keys", repr(each)) for each in stories)
    assert whole == cut


@pytest.mark.fault("N29")
@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_a_contradiction_is_found_in_whichever_chunk_the_newer_change_comes(
    chunk: int, tmp_path: Path
) -> None:
    table = Table(tmp_path, chunk=chunk)
    table.merge((1, UP, 5, "a"), (2, UP, 5, "a"))
    with pytest.raises(DuplicateKeyError, match="1 keys have different changes"):
        table.merge((1, UP, 4, "x"), (1, UP, 5, "other"), (1, UP, 6, "y"), (2, UP, 6, "z"))


@pytest.mark.fault("N29")
def test_a_replay_before_a_newer_change_and_older_changes_have_no_effect(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.merge((1, UP, 5, "a"), (3, DEL, 5, None))
    table.merge(
        (1, UP, 4, "x"), (1, UP, 5, "a"), (1, UP, 6, "y"), (3, DEL, 5, None), (3, UP, 6, "z")
    )
    assert {key: row[0] for key, row in table.rows().items()} == {1: "y", 3: "z"}


def test_a_soft_delete_keeps_the_newest_row_and_is_nothing_without_one(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.SOFT)
    table.merge((1, UP, 5, "a"), (2, UP, 5, "b"))
    written = table.merge(
        (1, UP, 4, "late"), (1, DEL, 7, None), (2, UP, 6, "c"), (2, DEL, 7, None), (4, DEL, 7, None)
    )
    assert counts(written) == {"delete": 2, "none": 1}
    assert table.rows() == {1: ("a", "note a", 7, True), 2: ("c", "note c", 7, True)}
    assert written.entries.file.tolist().count(TOMBSTONE) == 1
    assert counts(table.merge((1, DEL, 7, None), (4, DEL, 7, None))) == {"late": 2}
    table.merge((1, UP, 8, "back"))
    assert table.rows()[1] == ("back", "note back", 8, False)


def test_a_row_that_another_engine_doubled_is_removed_twice_and_counted(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    table.merge((1, UP, 1, "a"), empty=True)
    written = table.merge((1, UP, 2, "b"))
    assert (written.surplus_rows, counts(written)) == (1, {"update": 1})
    assert sorted(written.deleted) == [0, 1]


def test_file_ordinals_continue(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    assert table.merge((2, UP, 2, "b")).entries.file.tolist() == [1]


@pytest.mark.fault("N29")
def test_an_ignored_delete_contradicts_nothing_that_was_merged(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.IGNORE)
    table.merge((1, UP, 5, "a"))
    table.merge((1, DEL, 5, None), (1, UP, 6, "b"), (2, DEL, 3, None))
    assert {key: row[0] for key, row in table.rows().items()} == {1: "b"}
    table.merge((1, DEL, 6, None))
    assert {key: row[0] for key, row in table.rows().items()} == {1: "b"}
    with pytest.raises(DuplicateKeyError):
        table.merge((1, UP, 6, "other"), (1, DEL, 7, None))


@pytest.mark.fault("N29")
def test_a_delete_comes_again_after_deletes_were_soft(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.SOFT)
    table.merge((1, UP, 5, "a"), (1, DEL, 6, None), (2, UP, 5, "b"))
    table.deletes = Deletes.APPLY
    assert counts(table.merge((1, DEL, 6, None))) == {"late": 1}
    with pytest.raises(DuplicateKeyError):
        table.merge((1, UP, 6, "other"))
    table.merge((1, DEL, 7, None))
    assert list(table.rows()) == [2]


def test_a_soft_delete_after_a_late_change_brings_no_row_back(tmp_path: Path) -> None:
    table = Table(tmp_path, deletes=Deletes.SOFT)
    table.merge((4, DEL, 5, None))
    written = table.merge((4, UP, 3, "late"), (4, DEL, 7, None))
    assert (table.rows(), counts(written)) == ({}, {"none": 1})
    assert counts(table.merge((4, UP, 6, "late"))) == {"late": 1}


@pytest.mark.parametrize("to", [3, 4, 5], ids=["same half", "same other half", "another hash"])
def test_a_row_that_moved_takes_its_columns_from_under_its_old_key(tmp_path: Path, to: int) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "x"), (2, UP, 1, "a"), (6, UP, 1, "b"))
    # One that stayed takes its own.
    table.merge(
        (2, DEL, 2, None),
        (to, UP, 3, "moved"),
        (6, UP, 4, "stayed"),
        unchanged={3: [3], 4: [3]},
        moved={3: 2},
    )
    assert {key: row[:2] for key, row in table.rows().items()} == {
        1: ("x", "note x"),
        to: ("moved", "note a"),
        6: ("stayed", "note b"),
    }


@pytest.mark.parametrize("other", [3, 4, 5], ids=["same half", "same other half", "another hash"])
def test_two_rows_that_swapped_keys_take_each_others_columns(tmp_path: Path, other: int) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((2, UP, 1, "a"), (other, UP, 1, "b"))
    table.merge(
        (2, DEL, 2, None),
        (2, UP, 5, "was b"),
        (other, DEL, 4, None),
        (other, UP, 7, "was a"),
        (9, UP, 3, "a on its way"),
        (9, DEL, 6, None),
        unchanged={3: [3], 5: [3], 7: [3]},
        moved={3: 2, 5: other, 7: 9},
    )
    assert {key: row[:2] for key, row in table.rows().items()} == {
        2: ("was b", "note b"),
        other: ("was a", "note a"),
    }


def test_a_row_that_moved_takes_nothing_from_a_mirror_that_was_emptied(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((2, UP, 1, "a"))
    with pytest.raises(MissingImageError):
        table.merge(
            (2, DEL, 2, None), (5, UP, 3, "m"), unchanged={3: [3]}, moved={3: 2}, empty=True
        )


@pytest.mark.fault("N31")
def test_the_files_of_a_task_are_numbered_in_its_own_block_and_found_there(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    table.merge((1, UP, 1, "a"))
    table.task = (2, 3)
    written = table.merge((2, UP, 2, "b"), (3, UP, 2, "c"))
    number = 1 + 2 * ORDINALS_A_BLOCK
    assert (list(written.ordinals), written.entries.file.tolist()) == ([number], [number] * 2)
    table.merge((2, UP, 3, "d"), (3, DEL, 3, None))
    assert {key: row[0] for key, row in table.rows().items()} == {1: "a", 2: "d"}


def test_updates_of_rows_that_are_not_there_are_counted(tmp_path: Path) -> None:
    table = Table(tmp_path, per_key=False)
    assert table.merge((1, UP, 1, "a"), (2, UP, 2, "b")).unknown_updates == 0
    updates = frozenset({3, 4, 5})
    written = table.merge(
        (1, UP, 3, "a"), (3, UP, 4, "c"), (4, DEL, 5, None), (5, UP, 6, "e"), updates=updates
    )
    assert written.unknown_updates == 1
    assert counts(written) == {"insert": 2, "update": 1, "none": 1}
