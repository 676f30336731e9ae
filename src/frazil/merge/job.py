"""The Spark job of one merge: reads a range of the changelog, runs the tasks, collects results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.spark.task_errors import PAYLOAD, collect, running_tasks
from frazil.errors import MalformedChangeError, MissingImageError
from frazil.merge.planning.changes import (
    HI,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    naming_repairs,
)
from frazil.merge.reading.changelog_reader import (
    in_key_order,
    lists_of,
    mark_null_lists,
    prepare_changes,
)
from frazil.merge.reading.range_preparation import (
    deletes_of_truncate,
    load_range_facts,
    plan_preparation,
    sequence_literal,
    spread,
    spread_by_hash,
    without_truncated,
)
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.policy import Deletes, Order
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from frazil.merge.planning.changes import SequenceValue
    from frazil.merge.reading.changelog_reader import ReadLayout
    from frazil.merge.reading.range_preparation import RangeFacts, RangePreparation
    from frazil.merge.writing.task import MergeJob
    from frazil.merge.writing.task_result import TaskResult
    from frazil.model.schema.types import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """The results of all tasks of a merge, and the totals of the range."""

    results: tuple[TaskResult, ...]
    empties_mirror: bool
    rows: int
    lowest: SequenceValue | None
    highest: SequenceValue | None
    truncated: SequenceValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRange:
    """A range of the changelog and how it is distributed over tasks; lives on the driver.

    ``mirror_rows`` reads the planned snapshot of the mirror, at least its key and the sequence
    that decides what is late. ``highest_merged`` is the highest sequence merged before and
    ``truncated`` the last TRUNCATE. ``merged_changes`` reads the changes merged before, under the
    schema of ``changelog``. With ``replaces_mirror`` the range has the complete table, and nothing
    of the mirror is kept.
    """

    table: str
    changelog: DataFrame
    layout: ReadLayout
    sequence_type: Scalar
    bits: int
    order: Order
    deletes: Deletes
    highest_merged: SequenceValue | None
    truncated: SequenceValue | None
    default_sequence: SequenceValue | None
    merged_changes: Callable[[], DataFrame]
    mirror_rows: Callable[[], DataFrame]
    mirror_key: tuple[tuple[str, Scalar], ...]
    mirror_sequence: str | None
    run: str
    replaces_mirror: bool = False

    def empties_mirror(self) -> bool:
        """Whether the range leaves none of the mirror's rows; may read the entire range."""
        if self.replaces_mirror:
            return True
        facts = load_range_facts(prepare_changes(self.changelog, self.layout), table=self.table)
        return self._preparation(facts).empties_mirror

    def merge(self, job: MergeJob) -> RangeResult:
        """Run the tasks; only if one reports an obstacle, inspect the range and run them again.

        Obstacles are rare, and inspecting the range costs a seventh of its merge.
        """
        result = self._merge(job)
        return replace(result, empties_mirror=True) if self.replaces_mirror else result

    def _merge(self, job: MergeJob) -> RangeResult:
        changes = prepare_changes(self.changelog, self.layout)
        spread_out = replace(job, run=self.run if self.bits else None, bits=self.bits)
        try:
            results = self._run(spread_by_hash(changes, self.bits), spread_out)
        except (MalformedChangeError, MissingImageError):
            # A task knows only its own rows: others may be malformed as well, or a TRUNCATE may
            # remove the malformed ones.
            if self.bits == 0:
                raise
        else:
            if all(each.obstacle is None for each in results):
                return _direct_result(results, job)
        return self._merge_prepared(changes, spread_out)

    def _merge_prepared(self, changes: DataFrame, job: MergeJob) -> RangeResult:
        facts = load_range_facts(changes, table=self.table)
        preparation = self._preparation(facts)
        merged = self.highest_merged
        if self.order is Order.APPEND and merged is not None and facts.lowest == merged:
            changes = self._with_merged(changes, preparation, merged)
            # Changes that were merged before may be linked too.
            reads = self.layout.reads
            can_link = reads.unchanged is not None and reads.previous_key is not None
            preparation = replace(preparation, has_linked=can_link)
        prepared = replace(
            job,
            # The comparison with merged changes is part of these rows.
            admission=replace(job.admission, highest_merged=None),
            linked_task=preparation.linked_task,
            mirror_is_empty=preparation.empties_mirror,
        )
        rows = self._rows(changes, preparation)
        results = self._run(spread(rows, preparation), prepared)
        return _prepared_result(results, preparation, facts)

    def _with_merged(
        self, changes: DataFrame, preparation: RangePreparation, highest_merged: SequenceValue
    ) -> DataFrame:
        """The changes and those merged before that have the highest sequence.

        The latter are only compared with, except after a TRUNCATE of that sequence that empties
        the mirror: the TRUNCATE precedes them, so they are merged again.
        """
        before = self.merged_changes()
        at = sequence_literal(highest_merged, self.sequence_type)
        known = prepare_changes(
            before.where(sf.col(quote(self.layout.reads.sequence.name)) == at), self.layout
        ).where(sf.col(HI).isNotNull())
        at_truncate = preparation.truncated == highest_merged
        is_emptied = preparation.empties_mirror and at_truncate
        if not at_truncate:
            known = known.join(
                _concerned(changes.where(sf.col(SEQUENCE) == at)), [HI, LO], "left_semi"
            )
        news, olds = (sf.lit(each).alias(MERGED) for each in (False, not is_emptied))
        names = [sf.col(quote(name)) for name in changes.columns]
        return changes.select(news, *names).unionByName(known.select(olds, *names))

    def _preparation(self, facts: RangeFacts) -> RangePreparation:
        return plan_preparation(
            facts,
            bits=self.bits,
            order=self.order,
            deletes=self.deletes,
            merged=self.highest_merged,
            truncated=self.truncated,
        )

    def _rows(self, changes: DataFrame, preparation: RangePreparation) -> DataFrame:
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
        """The keys that a TRUNCATE removes from the mirror, or that precede it in this range."""
        at = sequence_literal(truncated, self.sequence_type)
        mirror = self.mirror_rows()
        if self.order is Order.PER_KEY and self.mirror_sequence is not None:
            known = sf.col(quote(self.mirror_sequence))
            if (default := self.default_sequence) is not None:
                known = sf.coalesce(known, sequence_literal(default, self.sequence_type))
            mirror = mirror.where(known < at)
        hi, lo = key_hash_columns([(sf.col(quote(name)), type_) for name, type_ in self.mirror_key])
        key = [sf.col(quote(name)) for name, _ in self.mirror_key]
        met = mirror.select(hi.alias(HI), lo.alias(LO), *key)
        if self.deletes is Deletes.SOFT:
            earlier = changes.where(sf.col(HI).isNotNull() & (sf.col(SEQUENCE) < at))
            met = met.unionByName(earlier.select(HI, LO, *key))
        # A TRUNCATE precedes changes of the same sequence.
        newer = changes.where(sf.col(SEQUENCE) == at).select(HI, LO).distinct()
        return met.join(newer, [HI, LO], "left_anti")

    def _run(self, rows: DataFrame, job: MergeJob) -> tuple[TaskResult, ...]:
        sent = mark_null_lists(rows, lists_of(self.layout))
        named = replace(job, names=tuple(sent.columns))
        with naming_repairs(self.table), running_tasks(self.table, "merging"):
            return tuple(collect(in_key_order(sent).mapInArrow(named.run_task, PAYLOAD)))


def _concerned(changes: DataFrame) -> DataFrame:
    """The keys of these changes, and those that rows moved away from."""
    keys = changes.select(HI, LO)
    if PREVIOUS_HI in changes.columns:
        keys = keys.union(changes.select(PREVIOUS_HI, PREVIOUS_LO))
    return keys.distinct()


def _direct_result(results: tuple[TaskResult, ...], job: MergeJob) -> RangeResult:
    truncated = next((each.truncated for each in results if each.truncated is not None), None)
    return RangeResult(
        results=results,
        empties_mirror=truncated is not None and job.admission.deletes is Deletes.APPLY,
        rows=sum(each.rows for each in results),
        lowest=min((each.lowest for each in results if each.lowest is not None), default=None),
        highest=max((each.highest for each in results if each.highest is not None), default=None),
        truncated=truncated,
    )


def _prepared_result(
    results: tuple[TaskResult, ...], preparation: RangePreparation, facts: RangeFacts
) -> RangeResult:
    return RangeResult(
        results=results,
        empties_mirror=preparation.empties_mirror,
        rows=facts.rows,
        lowest=facts.lowest,
        highest=facts.highest,
        truncated=preparation.truncated,
    )
