"""The Spark side of one merge: from a range of the changelog to what its tasks have done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.spark.task_errors import running_tasks
from frazil.clients.spark.task_values import PAYLOAD, collect
from frazil.errors import MalformedChangeError, MissingImageError
from frazil.merge.planning.change_columns import HI, LO, MERGED, SEQUENCE
from frazil.merge.planning.refusals import naming_repairs
from frazil.merge.reading.changelog_reader import in_key_order, prepare_changes
from frazil.merge.reading.null_lists import lists_of, mark_null_lists
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

    from frazil.merge.planning.sequences import SequenceValue
    from frazil.merge.reading.changelog_reader import ReadLayout
    from frazil.merge.reading.range_preparation import RangeFacts, RangePreparation
    from frazil.merge.writing.task import MergeJob
    from frazil.merge.writing.task_result import TaskResult
    from frazil.model.schema.types import Scalar


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
    sequence that decides what is late; ``merged`` is the highest sequence that was merged before,
    ``truncated`` the last TRUNCATE. ``merged_changes`` reads what was merged before under the
    names that ``changelog`` has; None when that cannot be told any more. With ``replaces_mirror``
    the range has the whole table, and nothing of the mirror stays.
    """

    table: str
    changelog: DataFrame
    layout: ReadLayout
    sequence_type: Scalar
    bits: int
    order: Order
    deletes: Deletes
    merged: SequenceValue | None
    truncated: SequenceValue | None
    floor: SequenceValue | None
    merged_changes: Callable[[], DataFrame | None]
    mirror_rows: Callable[[], DataFrame]
    mirror_key: tuple[tuple[str, Scalar], ...]
    mirror_sequence: str | None
    run: str
    replaces_mirror: bool = False

    def empties_mirror(self) -> bool:
        """Whether nothing of what the mirror holds is left; may look at all of the range."""
        if self.replaces_mirror:
            return True
        facts = load_range_facts(prepare_changes(self.changelog, self.layout), table=self.table)
        return self._preparation(facts).empties_mirror

    def merge(self, job: MergeJob) -> Merged:
        """Run the tasks at once; only where one meets an obstacle, look at the range first.

        Nearly no range has one, and a look at all of it costs as much as a seventh of its merge.
        """
        merged = self._merge(job)
        return replace(merged, empties_mirror=True) if self.replaces_mirror else merged

    def _merge(self, job: MergeJob) -> Merged:
        changes = prepare_changes(self.changelog, self.layout)
        spread_out = replace(job, run=self.run if self.bits else None, bits=self.bits)
        try:
            results = self._run(spread_by_hash(changes, self.bits), spread_out)
        except (MalformedChangeError, MissingImageError):
            # A task knows of its own rows: others may be as bad, or a TRUNCATE among them may
            # leave nothing of those it complains of.
            if self.bits == 0:
                raise
        else:
            if all(each.obstacle is None for each in results):
                return _direct(results, job)
        return self._merge_prepared(changes, spread_out)

    def _merge_prepared(self, changes: DataFrame, job: MergeJob) -> Merged:
        facts = load_range_facts(changes, table=self.table)
        preparation = self._preparation(facts)
        if self.order is Order.APPEND and self.merged is not None and facts.lowest == self.merged:
            changes = self._with_merged(changes, preparation, self.merged)
            # Among those that were merged before, some may be linked too.
            can_link = None not in {self.layout.unchanged, self.layout.previous_key}
            preparation = replace(preparation, has_linked=can_link)
        prepared = replace(
            job,
            # Whatever is compared with what was merged before is compared here.
            admission=replace(job.admission, merged=None),
            linked_task=preparation.linked_task,
            mirror_is_empty=preparation.empties_mirror,
        )
        rows = self._rows(changes, preparation)
        results = self._run(spread(rows, preparation), prepared)
        return _prepared(results, preparation, facts)

    def _with_merged(
        self, changes: DataFrame, preparation: RangePreparation, merged: SequenceValue
    ) -> DataFrame:
        """The changes with those that were merged before and have the highest sequence as well.

        They are only compared with. But a TRUNCATE of that sequence comes before them: they are
        what it leaves of the mirror, and where that is emptied they are merged once more.
        """
        before = self.merged_changes()
        if before is None:
            return changes
        at = sequence_literal(merged, self.sequence_type)
        known = prepare_changes(
            before.where(sf.col(quote(self.layout.sequence)) == at), self.layout
        ).where(sf.col(HI).isNotNull())
        at_truncate = preparation.truncated == merged
        is_emptied = preparation.empties_mirror and at_truncate
        if not at_truncate:
            again = changes.where(sf.col(SEQUENCE) == at).select(HI, LO).distinct()
            known = known.join(again, [HI, LO], "left_semi")
        news, olds = (sf.lit(each).alias(MERGED) for each in (False, not is_emptied))
        names = [sf.col(quote(name)) for name in changes.columns]
        return changes.select(news, *names).unionByName(known.select(olds, *names))

    def _preparation(self, facts: RangeFacts) -> RangePreparation:
        return plan_preparation(
            facts,
            bits=self.bits,
            order=self.order,
            deletes=self.deletes,
            merged=self.merged,
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
        """The keys that a TRUNCATE found in the mirror, or written before it in this range."""
        at = sequence_literal(truncated, self.sequence_type)
        mirror = self.mirror_rows()
        if self.order is Order.PER_KEY and self.mirror_sequence is not None:
            known = sf.col(quote(self.mirror_sequence))
            if self.floor is not None:
                known = sf.coalesce(known, sequence_literal(self.floor, self.sequence_type))
            mirror = mirror.where(known < at)
        hi, lo = key_hash_columns([(sf.col(quote(name)), type_) for name, type_ in self.mirror_key])
        key = [sf.col(quote(name)) for name, _ in self.mirror_key]
        met = mirror.select(hi.alias(HI), lo.alias(LO), *key)
        if self.deletes is Deletes.SOFT:
            earlier = changes.where(sf.col(HI).isNotNull() & (sf.col(SEQUENCE) < at))
            met = met.unionByName(earlier.select(HI, LO, *key))
        # It comes first at its sequence: what is told of a key there is newer.
        newer = changes.where(sf.col(SEQUENCE) == at).select(HI, LO).distinct()
        return met.join(newer, [HI, LO], "left_anti")

    def _run(self, rows: DataFrame, job: MergeJob) -> tuple[TaskResult, ...]:
        sent = mark_null_lists(rows, lists_of(self.layout))
        named = replace(job, names=tuple(sent.columns))
        with naming_repairs(self.table), running_tasks(self.table, "merging"):
            return tuple(collect(in_key_order(sent).mapInArrow(named.run_task, PAYLOAD)))


def _direct(results: tuple[TaskResult, ...], job: MergeJob) -> Merged:
    truncated = next((each.truncated for each in results if each.truncated is not None), None)
    return Merged(
        results=results,
        empties_mirror=truncated is not None and job.admission.deletes is Deletes.APPLY,
        rows=sum(each.rows for each in results),
        lowest=min((each.lowest for each in results if each.lowest is not None), default=None),
        highest=max((each.highest for each in results if each.highest is not None), default=None),
        truncated=truncated,
    )


def _prepared(
    results: tuple[TaskResult, ...], preparation: RangePreparation, facts: RangeFacts
) -> Merged:
    return Merged(
        results=results,
        empties_mirror=preparation.empties_mirror,
        rows=facts.rows,
        lowest=facts.lowest,
        highest=facts.highest,
        truncated=preparation.truncated,
    )
