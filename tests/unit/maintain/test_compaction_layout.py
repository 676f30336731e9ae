"""The translation of deletes against a model that moves rows one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.deletes.deletion_vector import DeletionVector
from frazil.maintain.compaction.layout import (
    RestoredRowsError,
    RewriteLayout,
    SourceRows,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Row = tuple[int, int]


def vector(positions: set[int]) -> DeletionVector:
    return DeletionVector.from_positions(np.array(sorted(positions), np.int64))


@st.composite
def rewrites(draw: DrawFn) -> tuple[RewriteLayout, list[DeletionVector | None], list[set[int]]]:
    """A layout, what is deleted now, and what must be deleted in the new files."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    then = [draw(st.sets(st.integers(0, size - 1))) for size in sizes]
    more = [draw(st.none() | st.sets(st.integers(0, size - 1))) for size in sizes]
    later = [
        None if found is None else found | dead for found, dead in zip(more, then, strict=True)
    ]
    rows: list[Row] = [
        (file, position)
        for file, size in enumerate(sizes)
        for position in range(size)
        if position not in then[file]
    ]
    count = draw(st.integers(1, 4))
    is_moved = draw(st.booleans())
    owners = [draw(st.integers(0, count - 1)) for _ in rows]
    if not is_moved:
        owners.sort()
    written = draw(st.permutations(rows)) if is_moved else rows
    places: dict[Row, Row] = {}
    targets = [0] * count
    for row, owner in zip(written, owners, strict=True):
        places[row] = (owner, targets[owner])
        targets[owner] += 1
    expected: list[set[int]] = [set() for _ in range(count)]
    for (file, position), (owner, place) in places.items():
        dead = later[file]
        if dead is None or position in dead:
            expected[owner].add(place)
    starts = [sum(targets[:owner]) for owner in range(count)]
    ranks = [starts[owner] + place for owner, place in (places[row] for row in rows)]
    layout = RewriteLayout(
        tuple(SourceRows(f"f{at}", size, vector(then[at])) for at, size in enumerate(sizes)),
        tuple(targets),
        np.array(ranks, np.uint32) if is_moved else None,
    )
    return layout, [None if each is None else vector(each) for each in later], expected


@given(rewrites())
def test_a_row_is_deleted_in_the_new_files_exactly_if_it_was_deleted_later(
    rewrite: tuple[RewriteLayout, list[DeletionVector | None], list[set[int]]],
) -> None:
    layout, now, expected = rewrite
    found = [set(each.positions().tolist()) for each in layout.translate(now)]
    assert found == expected


@given(rewrites())
def test_the_translation_of_what_was_deleted_already_is_nothing(
    rewrite: tuple[RewriteLayout, list[DeletionVector | None], list[set[int]]],
) -> None:
    layout, _, _ = rewrite
    found = layout.translate([each.dead for each in layout.sources])
    assert not any(each.cardinality for each in found)


def test_a_row_that_came_back_is_not_in_the_new_files() -> None:
    layout = RewriteLayout((SourceRows("f", 3, vector({1})),), (2,))
    with pytest.raises(RestoredRowsError):
        layout.translate([vector({0})])


def test_a_delete_beyond_the_file_is_refused() -> None:
    layout = RewriteLayout((SourceRows("f", 3, vector(set())),), (3,))
    with pytest.raises(RestoredRowsError):
        layout.translate([vector({7})])


def test_new_files_have_all_rows_that_lived() -> None:
    with pytest.raises(ValueError, match="all rows that lived"):
        RewriteLayout((SourceRows("f", 3, vector({1})),), (3,))
    with pytest.raises(ValueError, match="a new rank"):
        RewriteLayout((SourceRows("f", 3, vector({1})),), (2,), np.zeros(3, np.uint32))


def test_a_million_late_deletes_are_translated_in_vectors() -> None:
    rows = 4_000_000
    dead = DeletionVector.from_positions(np.arange(0, rows, 20))
    late = dead.union(DeletionVector.from_positions(np.arange(0, rows, 4)))
    kept = rows - rows // 20
    for ranks in (None, np.arange(kept, dtype=np.uint32)[::-1]):
        layout = RewriteLayout((SourceRows("f", rows, dead),), (kept,), ranks)
        (found,) = layout.translate([late])
        assert found.cardinality == rows // 4 - rows // 20
