from __future__ import annotations

import pickle
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.entries import Entries, bucket_of, rank_sequences
from tests.support.sampling import examples
from tests.unit.codec.key_index.index_rows import entries_of, rows_of

# Few enough that they meet, and on both sides of the sign.
HALVES = st.sampled_from([0, 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
ROWS = st.lists(st.tuples(HALVES, HALVES, st.integers(0, 2), st.integers(0, 3)), max_size=30)


@given(ROWS)
@examples(60)
def test_entries_are_sorted_as_unsigned_numbers(rows: list[tuple[int, int, int, int]]) -> None:
    entries = entries_of(rows)
    assert rows_of(entries.sorted()) == sorted(rows)
    assert entries.sorted().is_sorted
    hashes = [row[:2] for row in rows]
    assert entries.is_sorted == (hashes == sorted(hashes))


def test_other_columns_go_with_their_entry() -> None:
    entries = entries_of([(3, 0, 1, 1), (1, 0, 2, 2), (3, 0, 0, 9)], sequence=True)
    assert rows_of(entries.sorted()) == [
        (1, 0, 2, 2, "0001", 1),
        (3, 0, 0, 9, "0002", 2),
        (3, 0, 1, 1, "0000", 0),
    ]


@given(ROWS, st.integers(0, 4))
@examples(60)
def test_buckets_are_the_topmost_bits_and_cover_everything(
    rows: list[tuple[int, int, int, int]], bits: int
) -> None:
    entries = entries_of(rows).sorted()
    slices = list(entries.bucket_slices(bits))
    assert [row for _, at in slices for row in rows_of(entries.take(at))] == rows_of(entries)
    for bucket, at in slices:
        assert {bucket_of(int(hi), bits) for hi in entries.hi[at]} == {bucket}


def test_taking_by_mask_by_position_and_by_slice() -> None:
    entries = entries_of([(1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)], sequence=True)
    first, second, third = rows_of(entries)
    assert rows_of(entries.take(np.array([True, False, True]))) == [first, third]
    assert rows_of(entries.take(np.array([2, 0]))) == [third, first]
    assert rows_of(entries.take(slice(1, 9))) == [second, third]
    assert rows_of(entries.take(slice(2, 1))) == []


def test_parts_with_and_without_lower_halves_go_together() -> None:
    full = entries_of([(1, 7, 0, 0)])
    halved = Entries(full.hi, None, full.file, full.position)
    both = Entries.concatenate([Entries.empty(), halved, full])
    assert rows_of(both) == [(1, 0, 0, 0), (1, 7, 0, 0)]
    assert Entries.concatenate([halved, halved]).lo is None
    assert Entries.concatenate([]).lo is None
    assert len(Entries.concatenate([Entries.empty()])) == 0
    assert Entries.concatenate([full, Entries.empty()]) is full


def test_sequences_are_in_all_parts_or_in_none() -> None:
    with_one, without = entries_of([(1, 1, 1, 1)], sequence=True), entries_of([(1, 1, 1, 1)])
    with pytest.raises(ValueError, match="some entries carry sequences"):
        Entries.concatenate([with_one, without])
    both = Entries.concatenate([with_one, Entries.empty(), with_one])
    assert rows_of(both) == rows_of(with_one) * 2


def test_a_sequence_that_was_widened_meanwhile_is_still_one() -> None:
    column = np.zeros(1, np.int64)
    narrow, wide = (
        Entries(column.astype(np.uint64), None, column.astype(np.int32), column, sequence)
        for sequence in (
            pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
            pa.array([Decimal("2.5")], pa.decimal128(20, 1)),
        )
    )
    both = Entries.concatenate([narrow, wide])
    assert both.sequence is not None
    assert both.sequence.type == pa.decimal128(20, 1)


def test_columns_that_do_not_belong_together_are_refused() -> None:
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="one length"):
        Entries(one.astype(np.uint64), None, one.astype(np.int32), two)
    with pytest.raises(ValueError, match="only where entries carry sequences"):
        Entries(one.astype(np.uint64), None, one.astype(np.int32), one, None, one)
    # Rows only: nothing was recorded.
    rows = Entries(one.astype(np.uint64), None, one.astype(np.int32), one, pa.array(["a"]))
    assert rows.recorded is not None
    assert rows.recorded.tolist() == [0]


def test_entries_cross_to_tasks_and_back() -> None:
    entries = entries_of([(2**64 - 1, 1, 1, 1), (2, 2, 2, 2)], sequence=True)
    for each in (entries, entries.take(slice(1, 2)), Entries.empty()):
        assert rows_of(pickle.loads(pickle.dumps(each))) == rows_of(each)


@pytest.mark.parametrize(
    "sequence",
    [
        pa.array(["b", "a", None, "b", "ab"]),
        pa.array([3, 1, None, 3, 2]),
        pa.array([Decimal(3), Decimal(1), None, Decimal(3), Decimal(2)], pa.decimal128(20, 2)),
        pa.array([datetime(2020, 1, day) for day in (3, 1)], pa.timestamp("us")),  # noqa: DTZ001
    ],
    ids=["text", "numbers", "decimals", "times"],
)
def test_ranks_compare_as_the_sequences_do(sequence: Any) -> None:
    ranks = rank_sequences(sequence)
    values = sequence.to_pylist()
    for left, first in zip(values, ranks, strict=True):
        for right, second in zip(values, ranks, strict=True):
            expected = (left is not None, left) > (right is not None, right)
            if None not in {left, right} or left is not right:
                assert (first > second) == expected
