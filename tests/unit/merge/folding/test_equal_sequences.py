"""What comes again at the sequence that the mirror has: a replay, a contradiction, or late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import DuplicateKeyError
from frazil.merge.folding.change_rows import DELETE, SOFT_DELETE, UPSERT
from frazil.merge.writing.mirror_rows import Arrivals, ComparedContent, late_arrivals, not_newer
from frazil.mirror.index.locating import LocatedRows
from frazil.model.schema.types import Field, Primitive

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.fault("N29")

VALUE = Field(2, "v", Primitive.STRING)
FLAG = Field(3, "gone", Primitive.BOOLEAN)


def found(
    rows: list[tuple[int, int | None]], tombstones: list[tuple[int, int]] | None = None
) -> LocatedRows:
    """Rows and tombstones as key and sequence; the row's position is its number."""
    dead = tombstones or []
    return LocatedRows(
        np.array([key for key, _ in rows], np.intp),
        np.zeros(len(rows), np.int32),
        np.arange(len(rows), dtype=np.int64),
        pa.array([sequence for _, sequence in rows], pa.int64()),
        np.array([key for key, _ in dead], np.intp),
        pa.array([sequence for _, sequence in dead], pa.int64()),
    )


class Mirror:
    """Rows that are read back: the stored values, and which were read."""

    def __init__(self, *rows: tuple[str, bool]) -> None:
        self.rows = rows
        self.read_positions: list[int] = []

    def read(
        self, files: NDArray[np.int32], positions: NDArray[np.int64], fields: list[Field]
    ) -> dict[str, pa.Array]:
        assert len(files) == len(positions)
        self.read_positions += positions.tolist()
        values = {"v": 0, "gone": 1}
        chosen = [self.rows[at] for at in positions]
        return {each.name: pa.array([row[values[each.name]] for row in chosen]) for each in fields}


def arrivals(changes: list[tuple[int, str | None, int]], there: LocatedRows) -> Arrivals:
    actions, values, sequences = zip(*changes, strict=True)
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["v"])
    return Arrivals(np.array(actions, np.int8), pa.array(sequences, pa.int64()), rows, there)


def late(
    change: tuple[int, str | None, int], there: LocatedRows, *rows: tuple[str, bool], **content: Any
) -> bool:
    compared = ComparedContent(fields=(VALUE,), deleted=FLAG, **content)
    (found_late,) = late_arrivals(arrivals([change], there), compared, Mirror(*rows).read)
    return bool(found_late)


def test_older_is_late_newer_is_not_and_nothing_is_read_for_them() -> None:
    mirror = Mirror(("a", False), ("b", False), ("c", False))
    there = found([(0, 5), (1, 5), (2, None)])
    changes = arrivals([(UPSERT, "x", 4), (DELETE, None, 6), (UPSERT, "x", 1)], there)
    content = ComparedContent(fields=(VALUE,), deleted=FLAG)
    assert late_arrivals(changes, content, mirror.read).tolist() == [True, False, False]
    assert mirror.read_positions == []


def test_an_equal_change_is_a_replay_and_any_other_a_contradiction() -> None:
    row = found([(0, 5)])
    assert late((UPSERT, "a", 5), row, ("a", False))
    assert late((SOFT_DELETE, None, 5), row, ("a", True))
    for change, stored in (
        ((UPSERT, "b", 5), ("a", False)),
        ((UPSERT, None, 5), ("a", False)),
        ((DELETE, None, 5), ("a", False)),
        ((SOFT_DELETE, None, 5), ("a", False)),
        ((UPSERT, "a", 5), ("a", True)),
    ):
        with pytest.raises(DuplicateKeyError, match=r"^1 keys"):
            late(change, row, stored)


def test_a_tombstone_takes_a_delete_and_refuses_a_row() -> None:
    dead = found([], [(0, 5)])
    assert late((DELETE, None, 5), dead)
    assert late((UPSERT, "a", 4), dead)
    assert not late((UPSERT, "a", 6), dead)
    with pytest.raises(DuplicateKeyError):
        late((UPSERT, "a", 5), dead)
    # A row that is older than the tombstone says nothing.
    assert late((DELETE, None, 5), found([(0, 4)], [(0, 5)]), ("a", False))
    assert late((UPSERT, "b", 5), found([(0, 5)], [(0, 6)]), ("a", False))


def test_at_the_sequence_of_a_truncate_a_row_wins_over_what_that_deleted() -> None:
    assert not late((UPSERT, "a", 5), found([], [(0, 5)]), truncated=5)
    assert not late((UPSERT, "b", 5), found([(0, 5)]), ("a", True), truncated=5)
    assert late((UPSERT, "a", 5), found([(0, 5)]), ("a", False), truncated=5)
    with pytest.raises(DuplicateKeyError):
        late((UPSERT, "b", 5), found([(0, 5)]), ("a", False), truncated=5)
    with pytest.raises(DuplicateKeyError):
        late((DELETE, None, 5), found([(0, 5)]), ("a", False), truncated=5)


@pytest.mark.fault("N30")
def test_a_row_without_a_sequence_has_the_default_sequence() -> None:
    row = found([(0, None)])
    assert not late((UPSERT, "b", 1), row, ("a", False))
    assert late((UPSERT, "b", 4), row, ("a", False), default_sequence=5)
    # Merged before that sequence or at it: unknown, so a change of it is applied.
    for change in ((UPSERT, "a", 5), (UPSERT, "b", 5), (DELETE, None, 5), (SOFT_DELETE, None, 5)):
        assert not late(change, row, ("a", False), default_sequence=5)
    assert late((UPSERT, "a", 5), found([(0, 5)]), ("a", False), default_sequence=5)
    assert not late((UPSERT, "b", 6), row, ("a", False), default_sequence=5)
    assert not_newer(
        pa.array([4, 5, 6, None]), found([(at, None) for at in range(4)]), 5
    ).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_one_equal_row_of_two_is_enough() -> None:
    twice = found([(0, 5), (0, 5)])
    assert late((UPSERT, "a", 5), twice, ("b", False), ("a", False))


def test_every_contradicting_key_is_counted_once() -> None:
    there = found([(0, 5), (0, 5), (1, 5), (2, 5)], [(3, 5)])
    mirror = Mirror(("a", False), ("a", False), ("b", False), ("c", False))
    changes = [(UPSERT, "x", 5), (DELETE, None, 5), (UPSERT, "c", 5), (UPSERT, "d", 5)]
    content = ComparedContent(fields=(VALUE,), deleted=FLAG)
    with pytest.raises(DuplicateKeyError, match=r"^3 keys"):
        late_arrivals(arrivals(changes, there), content, mirror.read)


def test_what_was_found_of_a_key_is_found_for_each_of_its_changes() -> None:
    there = found([(0, 5), (2, 6), (2, 7)], [(1, 8)]).for_changes(np.array([0, 0, 1, 2, 2]))
    assert there.key.tolist() == [0, 1, 3, 3, 4, 4]
    assert there.position.tolist() == [0, 0, 1, 2, 1, 2]
    assert there.sequence is not None
    assert there.sequence.to_pylist() == [5, 5, 6, 7, 6, 7]
    assert there.tombstone_key.tolist() == [2]
