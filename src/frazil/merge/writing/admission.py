"""Admits changes to the fold: refuses invalid ones, drops those without effect, and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.merge.planning.changes import (
    ACTION,
    HI,
    SEQUENCE,
    TRUNCATE,
    UNCHANGED,
    SequenceValue,
    comparable,
    lowest_and_highest,
    missing_sequences,
    null_keys,
    partial_rows,
    scalar_like,
    unknown_operations,
)
from frazil.merge.report import MergeAction
from frazil.merge.writing.task_result import Obstacle, TaskResult
from frazil.model.policy import Deletes, Order

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """The rules of one merge; ``truncated`` is the last TRUNCATE that was merged before.

    ``is_only_task`` says that one task gets the entire range, and so may apply a TRUNCATE.
    ``highest_merged`` is the highest sequence merged before, if a change with that sequence must
    be compared with the merged ones.
    """

    order: Order
    deletes: Deletes
    truncated: SequenceValue | None
    is_only_task: bool
    highest_merged: SequenceValue | None = None


class ChangeAdmission:
    """Takes batches in key order; those without a hash come first, a TRUNCATE among them."""

    def __init__(self, admission: AdmissionRules) -> None:
        self._rules = admission
        self._rows = 0
        self._late = 0
        self._null_keys = 0
        self._truncated: SequenceValue | None = None
        self._lowest: SequenceValue | None = None
        self._highest: SequenceValue | None = None

    @property
    def empties_mirror(self) -> bool:
        """Whether a TRUNCATE of this range removes all rows of the mirror."""
        return self._truncated is not None and self._rules.deletes is Deletes.APPLY

    @property
    def is_blocked(self) -> bool:
        """Whether the range must be prepared on the driver first."""
        return self._obstacle is not None

    @property
    def _obstacle(self) -> Obstacle | None:
        if self._lowest is not None and self._lowest == self._rules.highest_merged:
            return Obstacle.EQUAL_SEQUENCE
        soft = self._rules.deletes is Deletes.SOFT
        late = self._rules.order is Order.PER_KEY and self._rules.deletes is Deletes.APPLY
        if self._truncated is not None and (soft or late or not self._rules.is_only_task):
            return Obstacle.TRUNCATE
        return None

    def admit(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows to fold; raises for changes that cannot be merged."""
        self._rows += batch.num_rows
        self._refuse_nulls(batch)
        self._track_sequences(batch.column(SEQUENCE))
        is_hashed = batch.column(HI).is_valid().to_numpy(zero_copy_only=False)
        if not is_hashed.all():
            self._take_unhashed(batch.filter(pa.array(~is_hashed)))
            batch = batch.filter(pa.array(is_hashed))
        if batch.num_rows == 0 or self.is_blocked:
            return None
        self._refuse_null_keys()
        return self._effective(batch)

    def seen(self) -> TaskResult:
        """The totals, once all batches were admitted."""
        self._refuse_null_keys()
        return TaskResult(
            rows=self._rows,
            counts={MergeAction.LATE: self._late},
            lowest=self._lowest,
            highest=self._highest,
            truncated=self._truncated,
            obstacle=self._obstacle,
        )

    def _refuse_nulls(self, batch: pa.RecordBatch) -> None:
        if unknown := batch.column(ACTION).null_count:
            raise unknown_operations(unknown)
        if unordered := batch.column(SEQUENCE).null_count:
            raise missing_sequences(unordered)
        if self._rules.order is Order.PER_KEY and UNCHANGED in batch.schema.names:
            lengths = pc.fill_null(pc.list_value_length(batch.column(UNCHANGED)), 0)
            if partial := int(np.count_nonzero(lengths.to_numpy(zero_copy_only=False))):
                raise partial_rows(partial)

    def _track_sequences(self, sequences: pa.Array) -> None:
        if len(sequences) == 0:
            return
        lowest, highest = lowest_and_highest(sequences)
        self._lowest = lowest if self._lowest is None else min(self._lowest, lowest)
        self._highest = highest if self._highest is None else max(self._highest, highest)

    def _take_unhashed(self, batch: pa.RecordBatch) -> None:
        is_truncate = pc.equal(batch.column(ACTION), TRUNCATE).to_numpy(zero_copy_only=False)
        self._null_keys += int(np.count_nonzero(~is_truncate))
        if is_truncate.any() and self._rules.deletes is not Deletes.IGNORE:
            _, last = lowest_and_highest(batch.column(SEQUENCE).filter(pa.array(is_truncate)))
            self._truncated = last if self._truncated is None else max(self._truncated, last)

    def _refuse_null_keys(self) -> None:
        if self._null_keys:
            raise null_keys(self._null_keys)

    def _effective(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows that are not older than a TRUNCATE, of this range or merged before."""
        if self._truncated is not None:
            batch = batch.filter(pa.array(~_below(batch, self._truncated)))
        if self._rules.truncated is not None and self._rules.order is Order.PER_KEY:
            late = _below(batch, self._rules.truncated)
            self._late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        return batch if batch.num_rows else None


def _below(batch: pa.RecordBatch, sequence: SequenceValue) -> NDArray[np.bool_]:
    values = batch.column(SEQUENCE)
    below = pc.less(comparable(values), scalar_like(sequence, values))
    found: NDArray[np.bool_] = below.to_numpy(zero_copy_only=False)
    return found
