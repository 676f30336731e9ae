from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.merge.folding.fold import (
    Change,
    KeyAction,
    KeyOutcome,
    TruncateChange,
    fold,
)
from frazil.model.policy import Deletes
from tests.support.merge.folded_mirror import Row, mirror_after
from tests.support.sampling import examples
from tests.unit.merge.folding.histories import (
    KEY,
    KEYS,
    OTHERS,
    delete,
    moved,
    shuffled,
    transactions,
    upsert,
    wild_changes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.merge.folding.histories import AnyChange

    Mirror = dict[int, Row[object]]

CANARY = "c0ffee-canary"
GONE: KeyOutcome[int, object] = KeyOutcome(KeyAction.DELETE)


def outcomes(
    *changes: AnyChange, deletes: Deletes = Deletes.APPLY
) -> dict[int, KeyOutcome[int, object]]:
    return dict(fold(changes, deletes=deletes).by_key)


def written(change: Change[int, object], **others: object) -> KeyOutcome[int, object]:
    """The outcome that is a change's own row, with other values for some columns."""
    ids = {f"c{id_}": id_ for id_ in OTHERS}
    values = {**change.values, **{ids[name]: value for name, value in others.items()}}
    return KeyOutcome(KeyAction.UPSERT, values)


def test_the_last_change_wins_whatever_the_order_they_are_given_in() -> None:
    first, second, third = upsert(1, 1), upsert(1, 2), upsert(1, 3)
    assert outcomes(third, first, second) == {1: written(third)}


def test_an_insert_of_a_key_that_is_there_replaces_its_row() -> None:
    again = upsert(1, 2)
    assert outcomes(upsert(1, 1), again) == {1: written(again)}
    partial = upsert(1, 1, unchanged={2})
    assert outcomes(partial, again) == {1: written(again)}


def test_one_key_ten_thousand_times_is_one_row() -> None:
    changes = [upsert(1, number, unchanged={2, 3}, values={4: number}) for number in range(10_000)]
    row = KeyOutcome(KeyAction.UPSERT, {KEY: 1, 4: 9_999}, frozenset({2, 3}), source=1)
    assert outcomes(*changes) == {1: row}


def test_insert_delete_insert_of_one_key_leaves_the_last_row() -> None:
    last = upsert(1, 3)
    assert outcomes(upsert(1, 1), delete(1, 2), last) == {1: written(last)}
    mirror = after({}, [upsert(1, 1)], [delete(1, 2)], [last])
    assert mirror == {1: Row(last.values)}


@pytest.mark.fault("N13")
def test_insert_and_delete_of_a_key_that_the_mirror_has_removes_it() -> None:
    changes = [upsert(1, 1), delete(1, 2)]
    assert outcomes(*changes) == {1: GONE}
    assert after({1: Row({KEY: 1, 2: "old"})}, changes) == {}


@pytest.mark.fault("E5")
def test_a_delete_of_an_unknown_key_changes_nothing() -> None:
    assert after({}, [delete(1, 1)]) == {}


def test_columns_that_were_not_sent_come_from_the_image_before() -> None:
    complete, partial = upsert(1, 1), upsert(1, 2, unchanged={2})
    assert outcomes(complete, partial) == {1: written(partial, c2=complete.values[2])}


def test_columns_that_no_change_has_sent_come_from_the_mirror() -> None:
    one, other = upsert(1, 1, unchanged={2, 3}), upsert(1, 2, unchanged={3, 4})
    expected = KeyOutcome(
        KeyAction.UPSERT, {**other.values, 4: one.values[4]}, frozenset({3}), source=1
    )
    assert outcomes(one, other) == {1: expected}


def test_partial_images_that_complete_each_other_need_no_mirror() -> None:
    one, other = upsert(1, 1, unchanged={2}), upsert(1, 2, unchanged={3, 4})
    kept = {f"c{id_}": one.values[id_] for id_ in (3, 4)}
    assert outcomes(one, other) == {1: written(other, **kept)}


def test_a_null_was_sent_and_is_not_filled() -> None:
    null = upsert(1, 2, values=dict.fromkeys(OTHERS))
    assert outcomes(upsert(1, 1), null) == {1: written(null)}


def test_a_column_keeps_its_id_when_it_is_renamed_between_change_and_merge() -> None:
    mirror: Mirror = {1: Row({KEY: 1, 2: "kept", 3: "old", 4: "old"})}
    merged = after(mirror, [upsert(1, 1, unchanged={2})])
    assert merged[1].values[2] == "kept"


# Key changes.


def test_a_key_change_takes_what_was_not_sent_from_the_row_under_its_old_key() -> None:
    complete = upsert(2, 1)
    drop, insert = moved(2, 3, 2, unchanged={4})
    assert outcomes(complete, drop, insert) == {2: GONE, 3: written(insert, c4=complete.values[4])}


def test_a_key_change_of_a_row_in_the_mirror_names_the_old_key() -> None:
    drop, insert = moved(2, 3, 1, unchanged={4})
    moved_row = KeyOutcome(KeyAction.UPSERT, insert.values, frozenset({4}), source=2)
    assert outcomes(drop, insert) == {2: GONE, 3: moved_row}


def test_a_row_that_goes_from_two_to_three_and_back_is_still_the_mirrors_row() -> None:
    there, back = moved(2, 3, 1, unchanged={4}), moved(3, 2, 3, unchanged={4})
    row = KeyOutcome(KeyAction.UPSERT, back[1].values, frozenset({4}), source=2)
    assert outcomes(*there, *back) == {2: row, 3: GONE}


def test_a_key_changed_twice_follows_the_row_to_its_first_key() -> None:
    first, second = moved(1, 2, 1, unchanged={2, 4}), moved(2, 3, 3, unchanged={3, 4})
    row = KeyOutcome(
        KeyAction.UPSERT, {**second[1].values, 3: first[1].values[3]}, frozenset({4}), source=1
    )
    assert outcomes(*first, *second) == {1: GONE, 2: GONE, 3: row}


def test_two_keys_swapped_through_a_third_keep_their_own_columns() -> None:
    changes = [
        *moved(1, 9, 1, unchanged={4}),
        *moved(2, 1, 3, unchanged={4}),
        *moved(9, 2, 5, unchanged={4}),
    ]
    found = outcomes(*changes)
    assert (found[1].source, found[2].source, found[9]) == (2, 1, GONE)
    mirror: Mirror = {key: Row({KEY: key, 2: "", 3: "", 4: f"of {key}"}) for key in (1, 2)}
    merged = after(mirror, changes)
    assert {key: row.values[4] for key, row in merged.items()} == {1: "of 2", 2: "of 1"}


def test_a_key_change_then_a_partial_update_then_a_delete_removes_both_keys() -> None:
    changes = [*moved(1, 2, 1, unchanged={4}), upsert(2, 3, unchanged={3, 4}), delete(2, 4)]
    assert outcomes(*changes) == {1: GONE, 2: GONE}


def test_a_key_change_then_a_partial_update_keeps_the_row_of_the_old_key() -> None:
    drop, insert = moved(1, 2, 1, unchanged={4})
    update = upsert(2, 3, unchanged={3, 4})
    row = KeyOutcome(
        KeyAction.UPSERT, {**update.values, 3: insert.values[3]}, frozenset({4}), source=1
    )
    assert outcomes(drop, insert, update) == {1: GONE, 2: row}


def test_a_key_that_is_only_respelled_keeps_its_row() -> None:
    drop, insert = moved(1, 1, 1, unchanged={4})
    row = KeyOutcome(KeyAction.UPSERT, insert.values, frozenset({4}), source=1)
    assert outcomes(drop, insert) == {1: row}


def test_the_old_key_may_be_given_away_before_the_row_arrives_under_its_new_one() -> None:
    drop, insert = moved(1, 2, 1, unchanged={4})
    heir = upsert(1, 3)
    assert outcomes(drop, insert, heir)[2].source == 1
    assert outcomes(drop, insert, heir)[1] == written(heir)


def test_both_halves_of_a_key_change_may_have_one_sequence() -> None:
    complete, drop = upsert(1, 1), delete(1, 2)
    insert = upsert(2, 2, unchanged={4}, previous=1)
    expected = {1: GONE, 2: written(insert, c4=complete.values[4])}
    assert outcomes(complete, drop, insert) == outcomes(insert, drop, complete) == expected


def test_all_changes_of_one_sequence_see_the_state_before_it() -> None:
    complete, heir = upsert(1, 1), upsert(1, 2)
    insert = upsert(2, 2, unchanged={4}, previous=1)
    expected = {1: written(heir), 2: written(insert, c4=complete.values[4])}
    assert outcomes(complete, heir, insert) == outcomes(insert, heir, complete) == expected


# Rows that are not there.


@pytest.mark.parametrize(
    "changes",
    [
        [delete(1, 1), upsert(1, 2, unchanged={2})],
        [upsert(1, 1), delete(1, 2), upsert(1, 3, unchanged={2})],
        [delete(1, 1), delete(1, 2), upsert(2, 3, unchanged={2}, previous=1)],
        [TruncateChange(1), upsert(1, 2, unchanged={2})],
        [upsert(1, 1), TruncateChange(2), upsert(1, 3, unchanged={2})],
        [TruncateChange(1), *moved(1, 2, 2, unchanged={2})],
        [delete(1, 1), TruncateChange(2), upsert(2, 3, unchanged={2}, previous=1)],
    ],
    ids=[
        "after a delete", "after insert and delete", "moved after two deletes", "after a truncate",
        "inserted before a truncate", "moved after a truncate", "moved across a truncate",
    ],
)  # fmt: skip
def test_columns_of_a_row_that_was_not_there_stop_the_fold(changes: list[AnyChange]) -> None:
    with pytest.raises(MissingImageError, match=r"^1 keys .* no row to take the others from\.$"):
        outcomes(*changes)


def test_a_row_inserted_after_a_delete_can_be_updated_in_part() -> None:
    complete, partial = upsert(1, 2), upsert(1, 3, unchanged={2})
    expected = {1: written(partial, c2=complete.values[2])}
    assert outcomes(delete(1, 1), complete, partial) == expected


def test_columns_of_a_row_that_is_not_in_the_mirror_stop_the_merge() -> None:
    changes = [upsert(1, 1, unchanged={2}), *moved(7, 2, 2, unchanged={2}), upsert(3, 4)]
    with pytest.raises(MissingImageError, match=r"^2 keys"):
        after({}, changes)


# Truncates.


def test_a_truncate_drops_what_came_before_it_and_the_mirror() -> None:
    kept = upsert(1, 4)
    changes: list[AnyChange] = [upsert(1, 1), upsert(2, 2), TruncateChange(3), kept]
    found = fold(changes)
    assert (found.by_key, found.truncated) == ({1: written(kept)}, 3)
    assert after({5: Row({KEY: 5})}, changes) == {1: Row(kept.values)}


def test_the_last_of_two_truncates_counts() -> None:
    changes: list[AnyChange] = [TruncateChange(4), upsert(1, 3), TruncateChange(2), upsert(2, 1)]
    found = fold(changes)
    assert (found.by_key, found.truncated) == ({}, 4)


def test_a_truncate_drops_only_what_is_older() -> None:
    older, equal = upsert(1, 1), upsert(2, 2)
    assert outcomes(older, equal, TruncateChange(2)) == {2: written(equal)}
    assert outcomes(TruncateChange(2), equal, older) == {2: written(equal)}


def test_changes_before_a_truncate_may_contradict_each_other() -> None:
    clash = [upsert(1, 1), upsert(1, 1, values={})]
    assert outcomes(*clash, delete(1, 2), upsert(1, 3, unchanged={2}), TruncateChange(4)) == {}


# Repetitions.


def test_a_change_that_is_repeated_counts_once() -> None:
    changes = [upsert(1, 1), upsert(1, 2, unchanged={2}), *moved(1, 2, 3, unchanged={2})]
    assert outcomes(*changes, *changes, *changes) == outcomes(*changes)


@pytest.mark.parametrize(
    "other",
    [
        upsert(1, 2, values={2: CANARY, 3: 1, 4: 1}),
        upsert(1, 2, unchanged={2}),
        upsert(1, 2, previous=7),
        delete(1, 2),
    ],
    ids=["values", "columns sent", "previous key", "action"],
)
def test_different_changes_at_one_sequence_are_an_error(
    other: Change[int, object],
) -> None:
    third = upsert(1, 2, values={})
    changes = [upsert(1, 1), upsert(1, 2), other, third, upsert(1, 3), upsert(2, 2)]
    with pytest.raises(DuplicateKeyError, match=r"^1 keys ") as refusal:
        outcomes(*changes)
    assert CANARY not in str(refusal.value)


# Deletes that are not applied.


def test_ignored_deletes_and_truncates_leave_every_row_visible() -> None:
    complete, partial = upsert(1, 1), upsert(1, 4, unchanged={2})
    changes: list[AnyChange] = [complete, delete(1, 2), TruncateChange(3), partial, delete(2, 5)]
    found = fold(changes, deletes=Deletes.IGNORE)
    assert found.by_key == {1: written(partial, c2=complete.values[2])}
    assert found.truncated is None


def test_an_ignored_delete_of_a_key_change_leaves_the_row_under_both_keys() -> None:
    complete = upsert(1, 1)
    drop, insert = moved(1, 2, 2, unchanged={4})
    found = outcomes(complete, drop, insert, deletes=Deletes.IGNORE)
    assert found == {1: written(complete), 2: written(insert, c4=complete.values[4])}


def test_a_soft_delete_keeps_the_row_of_the_batch() -> None:
    complete = upsert(1, 1)
    found = outcomes(complete, delete(1, 2), deletes=Deletes.SOFT)
    assert found == {1: KeyOutcome(KeyAction.SOFT_DELETE, complete.values)}
    assert after({}, [complete, delete(1, 2)], deletes=Deletes.SOFT) == {
        1: Row(complete.values, deleted=True)
    }


def test_a_soft_delete_keeps_the_row_of_the_mirror() -> None:
    found = outcomes(delete(1, 1), deletes=Deletes.SOFT)
    assert found == {1: KeyOutcome(KeyAction.SOFT_DELETE, {KEY: 1}, OTHERS, source=1)}
    old = {KEY: 1, 2: "a", 3: "b", 4: None}
    assert after({1: Row(old)}, [delete(1, 1)], deletes=Deletes.SOFT) == {1: Row(old, deleted=True)}


def test_a_soft_delete_of_a_partial_image_takes_the_rest_from_the_mirror() -> None:
    partial = upsert(1, 1, unchanged={2})
    found = outcomes(partial, delete(1, 2), deletes=Deletes.SOFT)
    assert found == {1: KeyOutcome(KeyAction.SOFT_DELETE, partial.values, frozenset({2}), source=1)}


def test_a_soft_delete_of_an_unknown_key_is_nothing() -> None:
    assert after({}, [delete(1, 1)], deletes=Deletes.SOFT) == {}


def test_an_upsert_after_a_soft_delete_is_a_live_row() -> None:
    again = upsert(1, 2)
    found = after({1: Row({KEY: 1}, deleted=True)}, [delete(1, 1), again], deletes=Deletes.SOFT)
    assert found == {1: Row(again.values)}


def test_a_key_change_with_soft_deletes_keeps_the_old_row_and_moves_its_columns() -> None:
    old = {KEY: 1, 2: "a", 3: "b", 4: "c"}
    drop, insert = moved(1, 2, 1, unchanged={4})
    found = after({1: Row(old)}, [drop, insert], deletes=Deletes.SOFT)
    assert found == {1: Row(old, deleted=True), 2: Row({**insert.values, 4: "c"})}


def test_with_soft_deletes_a_truncate_must_be_given_as_deletes() -> None:
    with pytest.raises(ValueError, match="DELETEs"):
        fold([TruncateChange(1)], deletes=Deletes.SOFT)


# All histories.


def after(
    mirror: Mirror, *batches: Iterable[AnyChange], deletes: Deletes = Deletes.APPLY
) -> Mirror:
    """The mirror after one merge for each batch."""
    for batch in batches:
        mirror = mirror_after(mirror, fold(batch, deletes=deletes))
    return mirror


def replayed(mirror: Mirror, changes: Iterable[AnyChange], deletes: Deletes) -> Mirror:
    """The mirror after one change at a time, in the most direct way."""
    table = dict(mirror)
    removed: dict[int, Row[object] | None] = {}
    for change in changes:
        if deletes is Deletes.IGNORE and not is_upsert(change):
            continue
        if isinstance(change, TruncateChange):
            table.clear()
            removed.clear()
        elif is_upsert(change):
            table[change.key] = Row(completed(change, table, removed))
        elif deletes is Deletes.APPLY:
            removed[change.key] = table.pop(change.key, None)
        elif change.key in table:
            table[change.key] = Row(table[change.key].values, deleted=True)
    return table


def is_upsert(change: AnyChange) -> bool:
    return isinstance(change, Change) and change.action.name == "UPSERT"


def completed(
    change: Change[int, object], table: Mirror, removed: dict[int, Row[object] | None]
) -> dict[int, object]:
    row = dict(change.values)
    if change.unchanged:
        old = table.get(change.key)
        if change.previous_key is not None:
            old = table.get(change.previous_key) or removed.get(change.previous_key)
        if old is None:
            raise LookupError
        row.update({id_: old.values[id_] for id_ in change.unchanged})
    return row


POLICIES = st.sampled_from([Deletes.APPLY, Deletes.APPLY, Deletes.IGNORE, Deletes.SOFT])
MIRRORS = st.sets(KEYS).map(
    lambda keys: {
        key: Row({KEY: key, **{id_: f"mirror {key}.{id_}" for id_ in OTHERS}}) for key in keys
    }
)


@examples(300)
@given(data=st.data(), deletes=POLICIES)
def test_merges_split_anywhere_are_equal_to_one_merge_and_a_replay(
    data: st.DataObject, deletes: Deletes
) -> None:
    history = data.draw(transactions(truncates=deletes is not Deletes.SOFT))
    cuts = data.draw(st.sets(st.integers(1, len(history))))
    expected = replayed({}, [change for each in history for change in each], deletes)
    bounds = [0, *sorted(cuts), len(history)]
    batches = [
        data.draw(shuffled([change for each in history[start:end] for change in each]))
        for start, end in pairwise(bounds)
    ]
    assert after({}, *batches, deletes=deletes) == expected
    assert after({}, [change for batch in batches for change in batch], deletes=deletes) == expected


@examples(300)
@given(mirror=MIRRORS, changes=wild_changes(links=True), deletes=POLICIES)
def test_the_fold_completes_what_a_replay_can_complete(
    mirror: Mirror, changes: list[AnyChange], deletes: Deletes
) -> None:
    try:
        expected = replayed(mirror, changes, deletes)
    except LookupError:
        return
    assert after(mirror, changes, deletes=deletes) == expected
