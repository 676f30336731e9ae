"""The admission of changes to the fold, and what a TRUNCATE leaves."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.errors import MalformedChangeError, NullKeyError
from frazil.merge.planning.changes import ACTION, DELETE, HI, SEQUENCE, TRUNCATE, UPSERT
from frazil.merge.report import MergeAction
from frazil.merge.writing.admission import AdmissionRules, ChangeAdmission
from frazil.merge.writing.task_result import Obstacle
from frazil.model.policy import Deletes, Order

SentChange = tuple[int | None, int, int | None]


def batch(*changes: SentChange) -> pa.RecordBatch:
    """Changes as hash, action and sequence."""
    hashes, actions, sequences = zip(*changes, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(hashes, pa.int64()),
            pa.array(actions, pa.int8()),
            pa.array(sequences, pa.int64()),
        ],
        names=[HI, ACTION, SEQUENCE],
    )


def gate(
    *,
    order: Order = Order.APPEND,
    deletes: Deletes = Deletes.APPLY,
    truncated: int | None = None,
    is_only_task: bool = True,
    highest_merged: int | None = None,
) -> ChangeAdmission:
    rules = AdmissionRules(
        order=order,
        deletes=deletes,
        truncated=truncated,
        is_only_task=is_only_task,
        highest_merged=highest_merged,
    )
    return ChangeAdmission(rules)


def admitted(found: pa.RecordBatch | None) -> list[tuple[int, int]]:
    if found is None:
        return []
    columns = (found.column(name).to_pylist() for name in (HI, SEQUENCE))
    return list(zip(*columns, strict=True))


def test_a_truncate_of_the_range_takes_what_is_older_and_leaves_what_has_its_sequence() -> None:
    some = gate()
    found = some.admit(batch((None, TRUNCATE, 5), (1, UPSERT, 4), (2, UPSERT, 5), (3, DELETE, 6)))
    assert admitted(found) == [(2, 5), (3, 6)]
    assert some.empties_mirror
    seen = some.seen()
    assert (seen.rows, seen.lowest, seen.highest, seen.truncated) == (4, 4, 6, 5)
    assert seen.counts[MergeAction.LATE] == 0
    assert seen.obstacle is None


def test_the_last_of_several_truncates_counts() -> None:
    some = gate()
    found = some.admit(batch((None, TRUNCATE, 7), (None, TRUNCATE, 5), (1, UPSERT, 6)))
    assert admitted(found) == []
    some.admit(batch((None, TRUNCATE, 6), (1, UPSERT, 8)))
    assert some.seen().truncated == 7


def test_what_is_older_than_a_truncate_merged_before_is_late_with_order_per_key() -> None:
    changes = batch((1, UPSERT, 4), (2, UPSERT, 5), (3, UPSERT, 6))
    some = gate(order=Order.PER_KEY, truncated=5)
    assert admitted(some.admit(changes)) == [(2, 5), (3, 6)]
    assert some.seen().counts[MergeAction.LATE] == 1
    # With order append nothing is late: it is out of order, which the driver refuses.
    some = gate(truncated=5)
    assert len(admitted(some.admit(changes))) == 3
    assert some.seen().counts[MergeAction.LATE] == 0


@pytest.mark.parametrize(
    ("rules", "obstacle"),
    [
        (gate(), None),
        (gate(is_only_task=False), Obstacle.TRUNCATE),
        (gate(deletes=Deletes.SOFT), Obstacle.TRUNCATE),
        (gate(order=Order.PER_KEY), Obstacle.TRUNCATE),
        (gate(deletes=Deletes.IGNORE, order=Order.PER_KEY, is_only_task=False), None),
        (gate(highest_merged=5), Obstacle.EQUAL_SEQUENCE),
        (gate(highest_merged=4), None),
        (gate(highest_merged=6), None),
    ],
)
def test_a_truncate_that_one_task_cannot_act_on_is_an_obstacle(
    rules: ChangeAdmission, obstacle: Obstacle | None
) -> None:
    found = rules.admit(batch((None, TRUNCATE, 5), (1, UPSERT, 6)))
    assert admitted(found) == ([(1, 6)] if obstacle is None else [])
    assert rules.seen().obstacle is obstacle


@pytest.mark.fault("N29")
def test_a_change_of_the_highest_sequence_merged_is_an_obstacle_wherever_it_comes() -> None:
    some = gate(highest_merged=5)
    assert admitted(some.admit(batch((1, UPSERT, 6)))) == [(1, 6)]
    assert some.admit(batch((2, UPSERT, 5))) is None
    assert some.seen().obstacle is Obstacle.EQUAL_SEQUENCE


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((1, None, 5), MalformedChangeError),
        ((1, UPSERT, None), MalformedChangeError),
        ((None, UPSERT, 5), NullKeyError),
    ],
)
def test_an_invalid_change_is_refused(change: SentChange, error: type[Exception]) -> None:
    some = gate()
    some.admit(batch((None, TRUNCATE, 1)))
    with pytest.raises(error):
        some.admit(batch(change, (2, UPSERT, 6)))
