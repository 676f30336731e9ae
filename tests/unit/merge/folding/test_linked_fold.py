from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.merge.folding.arrow_fold import fold_linked
from frazil.merge.folding.fold import (
    Change,
    FoldResult,
    KeyAction,
    KeyOutcome,
    fold,
)
from frazil.merge.planning.changes import MERGED
from frazil.model.policy import Deletes
from tests.support.merge.folded_mirror import Row, mirror_after
from tests.support.sampling import examples
from tests.unit.merge.folding.arrow_batches import SEQUENCES, batch_of, layout, outcomes_in
from tests.unit.merge.folding.histories import (
    delete,
    moved,
    shuffled,
    transactions,
    upsert,
    wild_changes,
)

POLICIES = st.sampled_from(Deletes)
GONE: KeyOutcome[int, object] = KeyOutcome(KeyAction.DELETE)


def outcomes(
    *changes: Change[int, object], deletes: Deletes = Deletes.APPLY
) -> dict[int, KeyOutcome[int, object]]:
    table = pa.Table.from_batches([batch_of(changes)])
    return outcomes_in([fold_linked(table, layout(deletes))])


def test_no_changes_have_no_outcome() -> None:
    assert outcomes() == {}
    assert len(fold_linked(batch_of([]).schema.empty_table(), layout())) == 0


def test_a_key_change_takes_what_was_not_sent_from_the_row_under_its_old_key() -> None:
    complete = upsert(2, 1)
    drop, insert = moved(2, 3, 2, unchanged={4})
    values = {**insert.values, 4: complete.values[4]}
    assert outcomes(insert, drop, complete) == {2: GONE, 3: KeyOutcome(KeyAction.UPSERT, values)}


def test_a_row_that_goes_from_two_to_three_and_back_is_still_the_mirrors_row() -> None:
    there, back = moved(2, 3, 1, unchanged={4}), moved(3, 2, 3, unchanged={4})
    row = KeyOutcome(KeyAction.UPSERT, back[1].values, frozenset({4}), source=2)
    assert outcomes(*there, *back) == {2: row, 3: GONE}


def test_two_keys_swapped_through_a_third_name_each_others_row_in_the_mirror() -> None:
    first, second = moved(1, 5, 1, unchanged={4}), moved(2, 1, 3, unchanged={4})
    found = outcomes(*first, *second, *moved(5, 2, 5, unchanged={4}))
    assert (found[1].source, found[2].source, found[5]) == (2, 1, GONE)


def test_changes_in_many_chunks_are_one_table() -> None:
    changes = [*moved(2, 3, 1, unchanged={4}), *moved(3, 2, 3, unchanged={4}), upsert(0, 9)]
    chunks = [batch_of([change]) for change in reversed(changes)]
    result = fold_linked(pa.Table.from_batches(chunks * 2), layout())
    assert outcomes_in([result]) == outcomes(*changes)
    assert (result.rows_read, result.repeats) == (10, 5)


def test_columns_of_a_row_that_was_not_there_stop_the_fold() -> None:
    changes = [delete(1, 1), delete(1, 2), upsert(2, 3, unchanged={2}, previous=1)]
    with pytest.raises(MissingImageError, match=r"^1 keys"):
        outcomes(*changes)


def test_different_changes_at_one_sequence_are_an_error() -> None:
    changes = [*moved(1, 2, 1, unchanged={4}), upsert(2, 2, unchanged={4}, previous=3)]
    with pytest.raises(DuplicateKeyError, match=r"^1 keys"):
        outcomes(*changes)


@examples(300)
@given(data=st.data(), deletes=POLICIES, sequence=st.sampled_from(sorted(SEQUENCES)))
def test_every_history_folds_as_specified(
    data: st.DataObject, deletes: Deletes, sequence: str
) -> None:
    history = data.draw(transactions())
    changes = [each for group in history for each in group if isinstance(each, Change)]
    repeated = data.draw(shuffled([*changes, *changes[::3]]))
    table = pa.Table.from_batches([batch_of(repeated, sequence=SEQUENCES[sequence])])
    result = fold_linked(table, layout(deletes))
    assert outcomes_in([result]) == fold(changes, deletes=deletes).by_key
    if deletes is not Deletes.IGNORE:
        assert (result.rows_read, result.repeats) == (len(repeated), len(repeated) - len(changes))


@examples(300)
@given(deletes=POLICIES, changes=wild_changes(links=True))
def test_anything_folds_or_fails_as_specified(
    deletes: Deletes, changes: list[Change[int, object]]
) -> None:
    try:
        expected = fold(changes, deletes=deletes).by_key
    except MissingImageError as error:
        with pytest.raises(MissingImageError, match=re.escape(error.message)):
            outcomes(*changes, deletes=deletes)
    else:
        assert outcomes(*changes, deletes=deletes) == expected


# --- a change that was merged before comes once more: the mirror has what it did ---


def news_of(
    merged: list[Change[int, object]],
    sent: list[Change[int, object]],
    deletes: Deletes = Deletes.APPLY,
) -> FoldResult[int, object]:
    """What the changes make of a mirror that has the merged ones already."""
    batch = batch_of([*sent, *merged])
    flags = pa.array([False] * len(sent) + [True] * len(merged))
    table = pa.Table.from_batches([batch.add_column(0, MERGED, flags)])
    return FoldResult(outcomes_in([fold_linked(table, layout(deletes))]))


@pytest.mark.fault("N29")
def test_a_replayed_key_change_finds_its_row_under_the_new_key() -> None:
    _, insert = moved(2, 3, 1, unchanged={4})
    update = upsert(3, 3, unchanged={4})
    found = news_of([insert], [insert, update])
    row = KeyOutcome(KeyAction.UPSERT, update.values, frozenset({4}), source=3)
    assert found.by_key == {3: row}
    drop, again = moved(3, 5, 3, unchanged={4})
    found = news_of([insert], [insert, drop, again])
    assert found.by_key == {
        3: GONE,
        5: KeyOutcome(KeyAction.UPSERT, again.values, frozenset({4}), 3),
    }


@pytest.mark.fault("N29")
def test_keys_swapped_at_one_sequence_and_replayed_do_not_take_each_others_columns() -> None:
    swap = [upsert(2, 5, unchanged={4}, previous=3), upsert(3, 5, unchanged={4}, previous=2)]
    mirror: dict[int, Row[object]] = {key: Row(upsert(key, 1).values) for key in (2, 3)}
    update = upsert(3, 6, unchanged={4})
    once = mirror_after(mirror, fold([*swap, update]))
    twice = mirror_after(mirror_after(mirror, fold(swap)), news_of(swap, [*swap, update]))
    assert once == twice


@pytest.mark.fault("N29")
def test_a_row_that_the_merged_half_of_a_sequence_has_replaced_is_missing() -> None:
    taken = upsert(2, 5)
    with pytest.raises(MissingImageError, match=r"^1 keys"):
        news_of([taken], [upsert(3, 5, unchanged={4}, previous=2)])
    # With a sequence of its own it comes after it.
    later = upsert(3, 6, unchanged={4}, previous=2)
    assert news_of([taken], [taken, later]).by_key[3].values[4] == taken.values[4]


@pytest.mark.fault("N29")
@examples(300)
@given(data=st.data(), deletes=POLICIES)
def test_a_history_repeated_from_its_last_merged_change_ends_the_same(
    data: st.DataObject, deletes: Deletes
) -> None:
    history = data.draw(transactions())
    changes = [each for sent in history for each in sent if isinstance(each, Change)]
    cut = data.draw(st.integers(1, len(changes)))
    once = mirror_after({}, fold(changes, deletes=deletes))
    first = mirror_after({}, fold(changes[:cut], deletes=deletes))
    if cut < len(changes) and changes[cut].previous_key is not None:
        # The halves of a key change come in one snapshot.
        return
    sent = data.draw(shuffled(changes[cut - 1 :]))
    assert mirror_after(first, news_of(changes[cut - 1 : cut], sent, deletes)) == once
