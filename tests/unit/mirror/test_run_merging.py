from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.file_system import InputFiles
from frazil.codec.key_index.entries import Entries
from frazil.errors import DamagedIndexError
from frazil.mirror.index.run_merging import merge_entries
from frazil.model.key_index import TOMBSTONE
from tests.support.sampling import examples
from tests.unit.codec.key_index.index_rows import entries_of, rows_of
from tests.unit.mirror.index_files import data_file, position_deletes, vectors

if TYPE_CHECKING:
    from frazil.model.key_index import IndexedFile

INPUTS = InputFiles({})
KEYS = st.sampled_from([0, 5, 2**63, 2**64 - 1])
ROW = st.tuples(KEYS, st.sampled_from([0, 9]), st.integers(0, 3), st.integers(0, 5))
# Key, file, position, sequence, recorded; file three is not in the table.
DEAD = {(0, 1), (0, 2), (1, 0)}


def files_in(folder: Path) -> list[IndexedFile]:
    names = [data_file(at).location for at in (0, 1)]
    pointers = vectors(folder, {names[0]: [1, 2], names[1]: [0]})
    return [
        data_file(0, pointers[names[0]]),
        data_file(1, pointers[names[1]]),
        data_file(2),
    ]


def with_sequences(rows: list[tuple[int, int, int, int | None, int]]) -> Entries:
    key, file, position, sequence, recorded = zip(*rows, strict=True) if rows else ((),) * 5
    return Entries(
        np.array(key, np.uint64),
        None,
        np.array(file, np.int32),
        np.array(position, np.int64),
        pa.array(sequence, pa.int64()),
        np.array(recorded, np.int64),
    )


@given(st.lists(st.lists(ROW, max_size=15), max_size=4))
@examples(60)
def test_live_rows_are_there_once_and_in_order(
    parts: list[list[tuple[int, int, int, int]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        merged = merge_entries(
            [entries_of(part) for part in parts], files=files_in(Path(folder)), inputs=INPUTS
        )
    expected = {row for part in parts for row in part if row[2:] not in DEAD and row[2] < 3}
    assert rows_of(merged) == sorted(expected)


CHANGE = st.one_of(
    st.tuples(KEYS, st.just(TOMBSTONE), st.just(-1), st.integers(0, 6), st.integers(1, 9)),
    st.tuples(
        KEYS, st.integers(0, 3), st.integers(0, 5), st.none() | st.integers(0, 6), st.just(0)
    ),
)


def expected_of(
    rows: list[tuple[int, int, int, int | None, int]], before: int | None
) -> set[tuple[int, int, int, int | None]]:
    """The rules of the merge, spelt out one row at a time."""
    alive = [
        row
        for row in rows
        if (row[1] == TOMBSTONE and (before is None or row[4] >= before))
        or (0 <= row[1] < 3 and row[1:3] not in DEAD)
    ]
    kept = set()
    for key, file, position, sequence, _ in alive:
        # A tombstone is replaced by anything newer, and to a row that is as new.
        known = [each for each in alive if each[0] == key and each[3] is not None]
        yields = sequence is not None and any(
            (each[3] or 0) > sequence or (each[3] == sequence and each[1] != TOMBSTONE)
            for each in known
        )
        if file != TOMBSTONE or not yields:
            kept.add((key, file, position, sequence))
    return kept


@given(st.lists(st.lists(CHANGE, max_size=12), max_size=3), st.none() | st.integers(0, 10))
@examples(80)
def test_of_tombstones_the_newest_is_kept_until_it_expires(
    parts: list[list[tuple[int, int, int, int | None, int]]], before: int | None
) -> None:
    # One row has one sequence, whichever run has it.
    first_seen: dict[tuple[int, int], tuple[int, int, int, int | None, int]] = {}
    consistent = [
        [row if row[1] == TOMBSTONE else first_seen.setdefault(row[1:3], row) for row in part]
        for part in parts
    ]
    with tempfile.TemporaryDirectory() as folder:
        merged = merge_entries(
            [with_sequences(part) for part in consistent],
            files=files_in(Path(folder)),
            inputs=INPUTS,
            tombstones_before=before,
        )
    found = [(row[0], row[2], row[3], row[4]) for row in rows_of(merged)] if len(merged) else []
    rows = [row for part in consistent for row in part]
    assert len(found) == len(set(found))
    assert set(found) == expected_of(rows, before)
    assert merged.is_sorted


def test_of_equal_tombstones_the_one_that_expires_last_is_kept() -> None:
    parts = [with_sequences([(7, TOMBSTONE, -1, 5, recorded)]) for recorded in (10, 30, 20)]
    merged = merge_entries(parts, files=[], inputs=INPUTS)
    assert merged.recorded is not None
    assert merged.recorded.tolist() == [30]


def test_a_tombstone_without_sequences_means_nothing() -> None:
    entries = Entries(
        np.zeros(1, np.uint64), None, np.full(1, TOMBSTONE, np.int32), np.zeros(1, np.int64)
    )
    assert len(merge_entries([entries], files=[data_file(0)], inputs=INPUTS)) == 0
    assert len(merge_entries([], files=[data_file(0)], inputs=INPUTS)) == 0


def test_deletes_that_are_lost_stop_the_merge(tmp_path: Path) -> None:
    pointer = position_deletes(tmp_path, data_file(0).location, [1])
    Path(pointer.location).unlink()
    with pytest.raises(DamagedIndexError, match=str(tmp_path)):
        merge_entries([entries_of([(1, 0, 0, 0)])], files=[data_file(0, pointer)], inputs=INPUTS)
