from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.merge.folding.arrow_fold import LinkedRowsError, SortedFolder
from frazil.merge.folding.change_rows import SOFT_DELETE, FoldColumn, FoldLayout
from frazil.merge.folding.fold import Change, ChangeAction, KeyAction, KeyOutcome, fold
from frazil.merge.planning.changes import (
    ACTION,
    HI,
    IS_UPDATE,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    UNCHANGED,
)
from frazil.model.policy import Deletes
from tests.support.sampling import examples
from tests.unit.merge.folding.arrow_batches import (
    SEQUENCES,
    batch_of,
    folded,
    in_order,
    layout,
    number_of,
    outcomes_in,
)
from tests.unit.merge.folding.histories import (
    KEY,
    OTHERS,
    delete,
    moved,
    transactions,
    upsert,
    wild_changes,
)

CANARY = "c0ffee-canary"
POLICIES = st.sampled_from(Deletes)
GONE: KeyOutcome[int, object] = KeyOutcome(KeyAction.DELETE)


def outcomes(
    *changes: Change[int, object], deletes: Deletes = Deletes.APPLY
) -> dict[int, KeyOutcome[int, object]]:
    """The outcomes, the same wherever the batches are cut."""
    batch = batch_of(in_order(changes))
    complete = outcomes_in(folded([batch], layout(deletes)))
    single = [batch.slice(row, 1) for row in range(batch.num_rows)]
    assert outcomes_in(folded(single, layout(deletes))) == complete
    return complete


def test_no_changes_have_no_outcome() -> None:
    empty = batch_of([])
    assert folded([], layout()) == []
    assert folded([empty, empty], layout()) == []


def test_the_last_change_wins() -> None:
    last = upsert(1, 3)
    found = outcomes(upsert(1, 1), upsert(1, 2), last)
    assert found == {1: KeyOutcome(KeyAction.UPSERT, last.values)}


def test_a_key_is_handed_out_when_the_next_one_begins() -> None:
    folder = SortedFolder(layout())
    assert folder.push(batch_of([upsert(0, 1)])) is None
    assert folder.push(batch_of([upsert(0, 2)])) is None
    first = folder.push(batch_of([upsert(0, 3), upsert(1, 1)]))
    assert first is not None
    assert (first.rows["id"].to_pylist(), first.rows_read) == ([0], 4)
    second = folder.finish()
    assert second is not None
    assert (second.rows["id"].to_pylist(), second.rows_read) == ([1], 0)
    assert folder.finish() is None


def test_a_folder_can_be_used_for_another_stream_once_it_is_finished() -> None:
    folder = SortedFolder(layout())
    for key in (5, 0):
        assert folder.push(batch_of([upsert(key, 1)])) is None
        result = folder.finish()
        assert result is not None
        assert result.rows["id"].to_pylist() == [key]


@pytest.mark.fault("E3")
def test_one_key_a_hundred_thousand_times_is_one_row_and_takes_the_memory_of_a_batch() -> None:
    text = pa.array(["x" * 1000] * 1000)
    before = pa.total_allocated_bytes()
    folder = SortedFolder(layout())
    for number in range(100):
        batch = one_key(range(number * 1000, (number + 1) * 1000), text)
        assert folder.push(batch) is None
        del batch
        assert pa.total_allocated_bytes() - before < 100_000
    last = folder.finish()
    assert last is not None
    assert (len(last), last.rows_read, last.repeats) == (1, 100_000, 0)
    assert last.sequence.to_pylist() == [99_999]


def one_key(sequences: range, text: pa.Array) -> pa.RecordBatch:
    zeros = pa.array(np.zeros(len(sequences), np.int64))
    left_out = pa.array([[2] if number % 3 else [4] for number in sequences], pa.list_(pa.int32()))
    return pa.RecordBatch.from_pydict(
        {
            HI: zeros, LO: zeros, ACTION: zeros.cast(pa.int8()),
            SEQUENCE: pa.array(sequences, pa.int64()), UNCHANGED: left_out,
            "id": zeros, "name": text, "tags": zeros, "code": text,
        }
    )  # fmt: skip


@pytest.mark.fault("E4")
def test_insert_delete_insert_of_one_key_leaves_the_last_row() -> None:
    last = upsert(1, 3)
    found = outcomes(upsert(1, 1), delete(1, 2), last)
    assert found == {1: KeyOutcome(KeyAction.UPSERT, last.values)}


def test_insert_and_delete_of_one_key_is_a_delete() -> None:
    assert outcomes(upsert(1, 1), delete(1, 2)) == {1: GONE}


def test_columns_come_from_the_last_change_that_sent_them_or_else_from_the_mirror() -> None:
    one, other = upsert(1, 1, unchanged={2, 3}), upsert(1, 2, unchanged={3, 4})
    row = KeyOutcome(KeyAction.UPSERT, {**other.values, 4: one.values[4]}, frozenset({3}), source=1)
    assert outcomes(one, other) == {1: row}


def test_a_null_was_sent_and_is_not_missing() -> None:
    null = upsert(1, 2, values=dict.fromkeys(OTHERS))
    assert outcomes(upsert(1, 1), null) == {1: KeyOutcome(KeyAction.UPSERT, null.values)}


def test_ids_of_the_key_and_of_unknown_columns_are_no_unchanged_columns() -> None:
    batch = batch_of([upsert(1, 1)])
    position = batch.schema.get_field_index(UNCHANGED)
    named = pa.array([[KEY, 77]], pa.list_(pa.int32()))
    batch = batch.set_column(position, UNCHANGED, named)
    (result,) = folded([batch], layout())
    assert (result.missing, result.needs_mirror.tolist()) == ({}, [False])


def test_values_hidden_under_a_null_are_not_unchanged_columns() -> None:
    batch = batch_of([upsert(0, 1), upsert(1, 2, unchanged={3})])
    position = batch.schema.get_field_index(UNCHANGED)
    values = pa.array([2, 2, 3], pa.int32())
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), values, mask=pa.array([True, False])
    )
    (*_, first, second) = folded([batch.set_column(position, UNCHANGED, hidden)], layout())
    assert first.missing == {}
    assert {id_: mask.tolist() for id_, mask in second.missing.items()} == {3: [True]}


def test_a_rename_in_between_changes_nothing_because_columns_go_by_id() -> None:
    names = ["key", "title", "labels", "number"]
    renamed = FoldLayout(
        tuple(FoldColumn(name, id_, id_ == KEY) for id_, name in enumerate(names, start=1))
    )
    batch = batch_of([upsert(1, 1), upsert(1, 2, unchanged={2})])
    batch = batch.rename_columns([*batch.schema.names[:-4], *names])
    (result,) = folded([batch], renamed)
    assert result.rows["title"].to_pylist() == ["1@1.2"]


def test_batches_need_only_the_columns_in_front_that_their_changelog_knows() -> None:
    plain = batch_of([upsert(0, 1), upsert(1, 2)])
    plain = plain.drop_columns([UNCHANGED, PREVIOUS_HI, PREVIOUS_LO, IS_UPDATE])
    (first, second) = folded([plain], layout())
    assert (first.rows["id"].to_pylist(), second.rows["id"].to_pylist()) == ([0], [1])
    assert first.is_update.tolist() == [False]


def test_the_last_change_says_whether_the_source_called_it_an_update() -> None:
    changes = [upsert(0, 1), upsert(0, 2), upsert(1, 3), delete(2, 4)]
    results = folded([batch_of(changes, updates=frozenset({2, 4}))], layout())
    found = [flag for result in results for flag in result.is_update.tolist()]
    assert found == [True, False, False]


# What cannot be folded here.


def test_a_key_change_that_left_columns_out_needs_the_linked_fold() -> None:
    drop, insert = moved(1, 2, 1, unchanged={4})
    with pytest.raises(LinkedRowsError, match=r"^1 rows"):
        outcomes(drop, insert)


def test_a_key_change_that_sent_every_column_is_an_ordinary_row() -> None:
    drop, insert = moved(1, 2, 1)
    assert outcomes(drop, insert) == {1: GONE, 2: KeyOutcome(KeyAction.UPSERT, insert.values)}


@pytest.mark.parametrize("size", [1, 9])
def test_columns_of_a_row_that_was_deleted_stop_the_fold(size: int) -> None:
    batch = batch_of([upsert(1, 1), delete(1, 2), upsert(1, 3, unchanged={2}), upsert(1, 4)])
    batches = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    with pytest.raises(MissingImageError, match=r"^1 keys .* no row to take the others from\.$"):
        folded(batches, layout())


def test_columns_left_out_by_the_first_change_after_another_keys_delete_are_in_the_mirror() -> None:
    partial = upsert(1, 2, unchanged={2})
    row = KeyOutcome(KeyAction.UPSERT, partial.values, frozenset({2}), source=1)
    assert outcomes(delete(0, 1), partial) == {0: GONE, 1: row}


def without_sequence(change: Change[int, object]) -> pa.RecordBatch:
    batch = batch_of([change])
    position = batch.schema.get_field_index(SEQUENCE)
    return batch.set_column(position, SEQUENCE, pa.nulls(1, pa.string()))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (batch_of([upsert(3, 1), upsert(2, 1)]), "sorted by key, both halves unsigned"),
        (batch_of([upsert(4, 1), upsert(3, 1)]), "sorted by key, both halves unsigned"),
        (batch_of([upsert(1, 2), upsert(1, 1)]), "sorted by sequence"),
        (without_sequence(upsert(1, 1)), "no sequence"),
        (batch_of([upsert(1, 2)]).select([*range(8), 9, 8, 10, 11]), "not in order"),
    ],
    ids=["signed", "signed lower half", "sequence", "no sequence", "columns"],
)
def test_invalid_batches_are_refused(batch: pa.RecordBatch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folded([batch], layout())


# Repetitions.


def test_repeated_changes_are_dropped_and_counted() -> None:
    changes = [upsert(1, 1), upsert(1, 2, unchanged={2}), delete(2, 3), upsert(3, 4)]
    thrice = batch_of(in_order(changes * 3))
    for size in (1, 5, 12):
        batches = [thrice.slice(start, size) for start in range(0, 12, size)]
        results = folded(batches, layout())
        assert outcomes_in(results) == outcomes(*changes)
        assert sum(result.rows_read for result in results) == 12
        assert sum(result.repeats for result in results) == 8


@pytest.mark.parametrize(
    "other",
    [
        upsert(1, 2, values={2: CANARY, 3: "1@2.3", 4: "1@2.4"}),
        upsert(1, 2, values={2: "1@2.2", 3: CANARY, 4: "1@2.4"}),
        upsert(1, 2, values={2: "1@2.2", 3: "1@2.3", 4: None}),
        upsert(1, 2, unchanged={2}),
        upsert(1, 2, previous=3),
        delete(1, 2),
    ],
    ids=["values", "nested values", "null", "columns sent", "previous key", "action"],
)
@pytest.mark.parametrize("size", [1, 9])
def test_different_changes_at_one_sequence_are_an_error(
    other: Change[int, object], size: int
) -> None:
    third = upsert(1, 2, values={})
    batch = batch_of([upsert(1, 1), upsert(1, 2), other, third, upsert(1, 3), upsert(2, 2)])
    batches = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    with pytest.raises(DuplicateKeyError, match=r"^1 keys ") as refusal:
        folded(batches, layout())
    assert CANARY not in str(refusal.value)


def test_values_of_columns_that_were_not_sent_are_ignored() -> None:
    partial = upsert(1, 1, unchanged={2})
    batch = batch_of([partial, partial])
    position = batch.schema.get_field_index("name")
    batch = batch.set_column(position, "name", pa.array(["some filler", None]))
    (result,) = folded([batch], layout())
    assert (result.repeats, result.rows["name"].to_pylist()) == (1, [None])


NESTED = pa.struct(
    [
        ("number", pa.float64()),
        ("map", pa.map_(pa.string(), pa.list_(pa.float32()))),
        ("pair", pa.list_(pa.int8(), 2)),
    ]
)
NAN = float("nan")
NESTED_VALUES = [
    None,
    {"number": None, "map": None, "pair": None},
    {"number": NAN, "map": [], "pair": [1, 2]},
    {"number": NAN, "map": [("a", [NAN, None])], "pair": [1, 2]},
    {"number": NAN, "map": [("a", [NAN, 1.0])], "pair": [1, 2]},
    {"number": NAN, "map": [("a", [NAN]), ("b", None)], "pair": [1, None]},
    {"number": 1.0, "map": [("a", [NAN]), ("b", [])], "pair": [1, None]},
]


@pytest.mark.parametrize("one", range(len(NESTED_VALUES)))
@pytest.mark.parametrize("other", range(len(NESTED_VALUES)))
def test_nested_values_are_compared_to_the_last_element(one: int, other: int) -> None:
    columns = (FoldColumn("id", 1, always_sent=True), FoldColumn("nested", 2))
    batch = pa.RecordBatch.from_pydict(
        {
            HI: pa.array([0, 1, 1]), LO: pa.array([0, 0, 0]),
            ACTION: pa.array([0, 0, 0], pa.int8()), SEQUENCE: pa.array([1, 2, 2]),
            "id": pa.array([5, 6, 6]),
            "nested": pa.array([None, NESTED_VALUES[one], NESTED_VALUES[other]], NESTED),
        }
    )  # fmt: skip
    if one == other:
        assert sum(result.repeats for result in folded([batch], FoldLayout(columns))) == 1
    else:
        with pytest.raises(DuplicateKeyError):
            folded([batch], FoldLayout(columns))


# Deletes that are not applied.


def test_keys_with_only_ignored_deletes_have_no_outcome() -> None:
    complete = upsert(1, 2)
    changes = [delete(0, 1), complete, delete(1, 3), delete(3, 4)]
    results = folded([batch_of(changes)], layout(Deletes.IGNORE))
    assert outcomes_in(results) == {1: KeyOutcome(KeyAction.UPSERT, complete.values)}
    sequences = [text for result in results for text in result.sequence.to_pylist()]
    assert sequences == [SEQUENCES["text"].value(2)]


@pytest.mark.fault("N29")
def test_an_ignored_delete_is_nothing_also_at_the_sequence_of_an_upsert() -> None:
    # Nothing of it is left for a later merge to compare with, so one merge does not either.
    last = upsert(1, 2)
    for repeated in ([upsert(1, 1), delete(1, 2), last], [upsert(1, 1), last, delete(1, 2)]):
        batch = batch_of(repeated)
        for batches in ([batch], [batch.slice(0, 2), batch.slice(2)]):
            found = outcomes_in(folded(batches, layout(Deletes.IGNORE)))
            assert found == {1: KeyOutcome(KeyAction.UPSERT, last.values)}
        assert fold(repeated, deletes=Deletes.IGNORE).by_key == found


@pytest.mark.fault("N29")
@pytest.mark.parametrize("size", [1, 2, 9])
def test_what_was_merged_before_is_compared_with_and_has_no_outcome(size: int) -> None:
    before, again, other = upsert(1, 5), upsert(1, 5), upsert(2, 5)
    batch = with_merged([before, again, other], [True, False, False])
    batches = [batch.slice(at, size) for at in range(0, 3, size)]
    assert outcomes_in(folded(batches, layout())) == {2: KeyOutcome(KeyAction.UPSERT, other.values)}
    for contradiction in (upsert(1, 5, values={2: "other"}), delete(1, 5)):
        batch = with_merged([before, contradiction], [True, False])
        with pytest.raises(DuplicateKeyError, match=r"^1 keys"):
            folded([batch.slice(at, size) for at in range(0, 2, size)], layout())


@pytest.mark.fault("N29")
def test_a_newer_change_takes_what_it_left_out_from_the_one_that_was_merged_before() -> None:
    before, newer = upsert(1, 5), upsert(1, 6, unchanged={2})
    batch = with_merged([before, upsert(1, 5), newer], [True, False, False])
    expected = {**newer.values, 2: before.values[2]}
    assert outcomes_in(folded([batch], layout())) == {1: KeyOutcome(KeyAction.UPSERT, expected)}


def with_merged(changes: list[Change[int, object]], merged: list[bool]) -> pa.RecordBatch:
    batch = batch_of(changes)
    columns = [pa.array(merged), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[MERGED, *batch.schema.names])


def test_a_soft_delete_keeps_the_row_of_the_batch_or_else_of_the_mirror() -> None:
    complete = upsert(1, 1)
    found = outcomes(complete, delete(1, 2), delete(2, 3), deletes=Deletes.SOFT)
    assert found == {
        1: KeyOutcome(KeyAction.SOFT_DELETE, complete.values),
        2: KeyOutcome(KeyAction.SOFT_DELETE, {KEY: 2}, OTHERS, source=2),
    }


def test_a_soft_delete_in_a_table_of_keys_says_whether_the_mirror_must_have_the_row() -> None:
    columns = FoldLayout((FoldColumn("id", 1, always_sent=True),), Deletes.SOFT)
    batch = batch_of([delete(0, 1), upsert(1, 2), delete(1, 3)])
    batch = batch.drop_columns(["name", "tags", "code"])
    for size in (1, 3):
        results = folded([batch.slice(start, size) for start in range(0, 3, size)], columns)
        flags = [flag for result in results for flag in result.needs_mirror.tolist()]
        assert flags == [True, False]
        assert {int(kind) for result in results for kind in result.action} == {SOFT_DELETE}


# All histories.


def cut(data: st.DataObject, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    cuts = data.draw(st.sets(st.integers(0, batch.num_rows), max_size=6))
    bounds = [0, *sorted(cuts), batch.num_rows]
    return [batch.slice(start, end - start) for start, end in pairwise(bounds)]


def with_repeats(
    data: st.DataObject, changes: list[Change[int, object]]
) -> list[Change[int, object]]:
    """The changes with some repeated."""
    again = data.draw(st.lists(st.sampled_from(changes), max_size=4)) if changes else []
    return [*changes, *again]


@examples(300)
@given(data=st.data(), deletes=POLICIES, sequence=st.sampled_from(sorted(SEQUENCES)))
def test_every_history_split_anywhere_folds_as_specified(
    data: st.DataObject, deletes: Deletes, sequence: str
) -> None:
    history = data.draw(transactions(partial_moves=False))
    changes = [each for group in history for each in group if isinstance(each, Change)]
    repeated = with_repeats(data, changes)
    batch = batch_of(in_order(repeated), sequence=SEQUENCES[sequence])
    results = folded(cut(data, batch), layout(deletes))
    assert outcomes_in(results) == fold(changes, deletes=deletes).by_key
    if deletes is not Deletes.IGNORE:
        assert sum(result.rows_read for result in results) == len(repeated)
        assert sum(result.repeats for result in results) == len(repeated) - len(changes)
    effective = [
        c for c in changes if deletes is not Deletes.IGNORE or c.action is ChangeAction.UPSERT
    ]
    latest = {change.key: number_of(change) for change in effective}
    expected = [SEQUENCES[sequence].value(latest[key]) for key in sorted(latest)]
    assert [each for result in results for each in result.sequence.to_pylist()] == expected


@examples(300)
@given(data=st.data(), deletes=POLICIES, changes=wild_changes())
def test_anything_folds_or_fails_as_specified(
    data: st.DataObject, deletes: Deletes, changes: list[Change[int, object]]
) -> None:
    repeated = with_repeats(data, changes)
    if changes and data.draw(st.integers(0, 9)) == 0:
        victim = data.draw(st.sampled_from(changes))
        repeated.append(upsert(victim.key, number_of(victim), values=dict.fromkeys(OTHERS)))
    batches = cut(data, batch_of(in_order(repeated)))
    try:
        expected = fold(repeated, deletes=deletes).by_key
    except (DuplicateKeyError, MissingImageError):
        with pytest.raises((DuplicateKeyError, MissingImageError)):
            folded(batches, layout(deletes))
    else:
        assert outcomes_in(folded(batches, layout(deletes))) == expected
