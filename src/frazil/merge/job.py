"""The Spark side of one merge: from a range of the changelog to what its tasks have done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.task_errors import running_tasks
from frazil.merge.change_columns import HI, LO, SEQUENCE
from frazil.merge.preparing import (
    deletes_of_truncate,
    load_range_facts,
    plan_preparation,
    spread,
    without_truncated,
)
from frazil.merge.reading import in_key_order, prepare_changes
from frazil.merge.sequences import spark_literal
from frazil.merge.task_result import TaskResult
from frazil.mirror.key_expressions import key_hash_columns
from frazil.mirror.run_building import collect
from frazil.model.policy import Deletes, Order
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from frazil.merge.preparing import Preparation, RangeFacts
    from frazil.merge.reading import ReadLayout
    from frazil.merge.sequences import SequenceValue
    from frazil.merge.task import MergeJob
    from frazil.model.schema import Scalar

_PAYLOAD = "payload binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What all tasks of a merge have done, and what the range was."""

    results: tuple[TaskResult, ...]
    empties_mirror: bool
    rows: int
    lowest: SequenceValue | None
    highest: SequenceValue | None
    truncated: SequenceValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRange:
    """A range as it is read, with what decides how it is spread; lives on the driver.

    ``mirror_rows`` reads the mirror as it was planned on, at least the columns of the key and the
    sequence that it keeps; ``merged`` is the highest sequence that was merged before.
    """

    table: str
    changelog: DataFrame
    layout: ReadLayout
    sequence_type: Scalar
    bits: int
    order: Order
    deletes: Deletes
    merged: SequenceValue | None
    mirror_rows: Callable[[], DataFrame]
    mirror_key: tuple[tuple[str, Scalar], ...]
    mirror_sequence: str | None
    run: str

    def merge(self, job: MergeJob) -> Merged:
        """Run the tasks: one that sees the range for the first time, or many that are prepared."""
        changes = prepare_changes(self.changelog, self.layout)
        if self.bits == 0:
            results = self._run(changes.coalesce(1), job)
            if all(each.obstacle is None for each in results):
                return _direct(results, job)
        return self._merge_prepared(changes, job)

    def _merge_prepared(self, changes: DataFrame, job: MergeJob) -> Merged:
        facts = load_range_facts(changes, table=self.table)
        preparation = plan_preparation(
            facts, bits=self.bits, order=self.order, deletes=self.deletes, merged=self.merged
        )
        prepared = replace(
            job,
            admission=replace(job.admission, is_prepared=True),
            run=self.run if self.bits else None,
            bits=self.bits,
            linked_task=preparation.linked_task,
            mirror_is_empty=preparation.empties_mirror,
        )
        rows = self._rows(changes, preparation)
        results = self._run(spread(rows, preparation), prepared)
        return _prepared(results, preparation, facts)

    def _rows(self, changes: DataFrame, preparation: Preparation) -> DataFrame:
        rows = without_truncated(
            changes, preparation, deletes=self.deletes, type_=self.sequence_type
        )
        if preparation.truncated is None or preparation.empties_mirror:
            return rows
        met = self._met_by_truncate(changes, preparation.truncated)
        deletes = deletes_of_truncate(
            changes,
            met,
            preparation.truncated,
            key=[name for name, _ in self.mirror_key],
            sequence=self.mirror_sequence,
            type_=self.sequence_type,
        )
        return rows.unionByName(deletes)

    def _met_by_truncate(self, changes: DataFrame, truncated: SequenceValue) -> DataFrame:
        """The keys that a TRUNCATE found in the mirror, or written before it in this range."""
        at = sf.lit(spark_literal(truncated, self.sequence_type))
        mirror = self.mirror_rows()
        if self.mirror_sequence is not None:
            mirror = mirror.where(sf.col(quote(self.mirror_sequence)) < at)
        hi, lo = key_hash_columns([(sf.col(quote(name)), type_) for name, type_ in self.mirror_key])
        key = [sf.col(quote(name)) for name, _ in self.mirror_key]
        met = mirror.select(hi.alias(HI), lo.alias(LO), *key)
        if self.deletes is Deletes.SOFT:
            earlier = changes.where(sf.col(HI).isNotNull() & (sf.col(SEQUENCE) < at))
            met = met.unionByName(earlier.select(HI, LO, *key))
        return met

    def _run(self, rows: DataFrame, job: MergeJob) -> tuple[TaskResult, ...]:
        ordered = in_key_order(rows)
        named = replace(job, names=tuple(ordered.columns))
        with running_tasks(self.table, "merging"):
            # Numbered on their way to Python: Spark takes a name with a dot in it for a path.
            numbered = ordered.toDF(*(f"_{at}" for at in range(len(ordered.columns))))
            return tuple(collect(numbered.mapInArrow(named.run_task, _PAYLOAD)))


def _direct(results: tuple[TaskResult, ...], job: MergeJob) -> Merged:
    (result,) = results or (TaskResult(),)
    empties = result.truncated is not None and job.admission.deletes is Deletes.APPLY
    return Merged(
        results=results,
        empties_mirror=empties,
        rows=result.rows,
        lowest=result.lowest,
        highest=result.highest,
        truncated=result.truncated,
    )


def _prepared(
    results: tuple[TaskResult, ...], preparation: Preparation, facts: RangeFacts
) -> Merged:
    return Merged(
        results=results,
        empties_mirror=preparation.empties_mirror,
        rows=facts.rows,
        lowest=facts.lowest,
        highest=facts.highest,
        truncated=preparation.truncated,
    )
