"""Performs one merge: a range of the changelog becomes one commit to the mirror."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import FileChanges, StatisticsFile
from frazil.codec.key_index.entries import Entries
from frazil.errors import (
    CommitConflictError,
    DamagedIndexError,
    OutOfOrderError,
    StaleIndexError,
)
from frazil.hooks import Failpoint, failpoint
from frazil.merge.planning.changes import encode_sequence
from frazil.merge.report import MergeCommit, MergePhase, PhaseTimer
from frazil.merge.writing.delete_writer import DeleteWriter, WrittenDeletes
from frazil.merge.writing.task_result import total_counts, total_seconds, union_of_deleted
from frazil.mirror.index.keeping import write_index_head
from frazil.mirror.index.loading import HEAD_PROPERTY, KeyIndex, Unusable
from frazil.model.key_index import IndexedFile, IndexRun, Repair, RepairReason
from frazil.model.policy import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.merge.job import MergeRange, RangeResult
    from frazil.merge.planning.plan import MergePlan
    from frazil.merge.target import MergeTarget
    from frazil.merge.writing.task import MergeJob
    from frazil.merge.writing.task_result import TaskResult
    from frazil.mirror.index.keeping import IndexGrowth, IndexKeeper
    from frazil.model.marker import Marker, SnapshotRef


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWork:
    """The input of one merge, built by ``assembly``; lives on the driver."""

    target: MergeTarget
    range_: MergeRange
    keeper: IndexKeeper
    growth: IndexGrowth
    make_job: Callable[[KeyIndex], MergeJob]
    plan: MergePlan
    # The marker before and after; the sequences of ``goal`` are only known from the tasks.
    before: Marker | None
    goal: Marker
    properties: Mapping[str, str]
    clock: Clock


@dataclass(frozen=True, slots=True)
class _WrittenMerge:
    """What a merge wrote, ready to be committed."""

    result: RangeResult
    deletes: WrittenDeletes
    index: KeyIndex
    repairs: tuple[Repair, ...] = ()


def apply_merge(work: MergeWork) -> MergeCommit:
    """Merge the range in one commit.

    Raises CommitConflictError when the mirror has changed since it was planned: the caller plans
    again. Files of a commit that did not land are left to maintenance.
    """
    timer = PhaseTimer(work.clock)
    start = work.clock.monotonic()
    head = work.target.head
    if (None if head is None else head.id) != work.plan.head:
        message = "the table has a newer head."
        raise CommitConflictError(message, table=work.range_.table)
    with timer.timed(MergePhase.INDEX):
        index, repair = _current_index(work, head)
    repairs = [] if repair is None else [repair]
    while True:
        try:
            written = _merge(work, index, timer)
            with timer.timed(MergePhase.COMMIT):
                receipt = _commit(work, written)
        except (DamagedIndexError, StaleIndexError) as error:
            # Tasks detect a damaged run, the commit a stale file table. An index that was just
            # rebuilt from the files can be neither.
            if head is None or any(each.rebuilt for each in repairs):
                raise
            _refuse_if_overtaken(work, error)
            with timer.timed(MergePhase.INDEX):
                index, repair = _rebuilt_index(
                    work, head, Unusable(RepairReason.DAMAGED, error.message)
                )
            repairs.append(repair)
        else:
            seconds = work.clock.monotonic() - start
            return _report(work, replace(written, repairs=tuple(repairs)), receipt, timer, seconds)


def _current_index(work: MergeWork, head: SnapshotFacts | None) -> tuple[KeyIndex, Repair | None]:
    """The index of the head; an empty one for a range that leaves nothing of what it describes."""
    if head is None or work.range_.replaces_mirror:
        return work.keeper.empty(head), None
    found = work.keeper.find(head, work.target.mirror.table.iter_ancestry())
    return (found, None) if isinstance(found, KeyIndex) else _rebuilt_index(work, head, found)


def _rebuilt_index(work: MergeWork, head: SnapshotFacts, why: Unusable) -> tuple[KeyIndex, Repair]:
    """Read the added files or all of the mirror, unless the range empties it.

    A mirror that is emptied may be damaged: keys may be duplicated, files may be missing.
    """
    if work.range_.empties_mirror():
        return work.keeper.empty(head), Repair(why.reason, why.detail, 0, rebuilt=True)
    return work.keeper.repair(why, head)


def _refuse_if_overtaken(work: MergeWork, error: FrazilError) -> None:
    """Raise if the table has a newer head: files of the planned one may have been removed."""
    now = work.target.mirror.table.load_state().head
    if now is None or now.id != work.plan.head:
        message = "the table has a newer head."
        raise CommitConflictError(message, table=work.range_.table) from error


def _merge(work: MergeWork, index: KeyIndex, timer: PhaseTimer) -> _WrittenMerge:
    result = work.range_.merge(work.make_job(index))
    deletes, grown = _next_state(work, index, result, timer)
    failpoint(Failpoint.MERGE_WRITTEN)
    _refuse_disorder(work, result)
    return _WrittenMerge(result, deletes, grown)


def _next_state(
    work: MergeWork, index: KeyIndex, result: RangeResult, timer: PhaseTimer
) -> tuple[WrittenDeletes, KeyIndex]:
    """Deletes and index after the merge; writes all their files except the index head."""
    with timer.timed(MergePhase.WRITE):
        deletes = _write_deletes(work, index, result)
    base = _restarted(index) if result.empties_mirror else index
    new = [_indexed(each, at) for each in result.results for at in range(len(each.files))]
    highest = max((each.ordinal for each in new), default=-1)
    parts = tuple(each.part for each in result.results if each.part is not None)
    runs = (IndexRun(work.range_.run, work.range_.bits, parts),) if parts else ()
    entries = [each.entries for each in result.results]
    with timer.timed(MergePhase.INDEX):
        grown = work.growth.grown(
            base,
            files=(*deletes.files, *new),
            next_ordinal=max(base.manifest.next_ordinal, highest + 1),
            entries=Entries.concatenate(entries or [Entries.empty()]),
            new_runs=runs,
        )
    return deletes, grown


def _write_deletes(work: MergeWork, index: KeyIndex, result: RangeResult) -> WrittenDeletes:
    if result.empties_mirror:
        head = work.target.head
        return WrittenDeletes((), (), (), (), head.count("total-data-files") if head else 0, 0)
    target = work.target
    writer = DeleteWriter(
        target.state.format_version,
        target.inputs,
        target.outputs,
        target.name_delete_file,
        hidden_folder=f"{target.state.location}/_deletes",
    )
    return writer.write(index.manifest.files, union_of_deleted(result.results))


def _restarted(index: KeyIndex) -> KeyIndex:
    """The index of an emptied mirror; ordinals continue, so that old entries match no new file."""
    manifest = replace(index.manifest, files=(), runs=(), young_entries=0, idle_deletes=0)
    return KeyIndex(manifest, Entries.empty(), None)


def _indexed(result: TaskResult, at: int) -> IndexedFile:
    file = result.files[at]
    described = json.loads(file.descriptor)
    return IndexedFile(
        ordinal=result.ordinals[at],
        location=file.location,
        rows=file.rows,
        size=file.size,
        spec_id=file.spec_id,
        partition=json.dumps(described["partition"], separators=(",", ":"), ensure_ascii=False),
    )


def _refuse_disorder(work: MergeWork, result: RangeResult) -> None:
    """With order append, a later snapshot never holds an older change."""
    highest = work.range_.highest_merged
    if work.range_.order is not Order.APPEND or highest is None or result.lowest is None:
        return
    if result.lowest < highest:  # type: ignore[operator]
        message = "the range holds a change that is older than what was merged before."
        raise OutOfOrderError(
            message, table=work.range_.table, next_step="set order: per_key for this table"
        )


def _commit(work: MergeWork, written: _WrittenMerge) -> Receipt:
    target, result = work.target, written.result
    location = target.name_head()

    def write_head(snapshot: SnapshotRef) -> StatisticsFile:
        head = write_index_head(written.index, snapshot.id, location, target.outputs)
        failpoint(Failpoint.INDEX_WRITTEN)
        return head

    return target.mirror.apply(
        _file_changes(target, written),
        start=None if work.before is None else work.before.position,
        goal=_goal(work, result),
        replaces=work.plan.replaces,
        planned_on=work.plan.head,
        schema=work.plan.schema.wanted,
        properties=work.properties,
        summary={HEAD_PROPERTY: location},
        statistics=write_head,
    )


def _file_changes(target: MergeTarget, written: _WrittenMerge) -> FileChanges:
    added = tuple(file.descriptor for each in written.result.results for file in each.files)
    has_files = target.head is not None and target.head.count("total-data-files") > 0
    if written.result.empties_mirror and has_files:
        return FileChanges(added=added, replaces_everything=True)
    return FileChanges(
        added=added,
        added_deletes=written.deletes.added,
        removed=written.deletes.removed_files,
        removed_deletes=written.deletes.removed,
    )


def _goal(work: MergeWork, result: RangeResult) -> Marker:
    """The marker with the highest sequence and the last TRUNCATE of the range."""
    before = work.range_.highest_merged
    ends = [each for each in (before, result.highest) if each is not None]
    truncates = [each for each in (work.range_.truncated, result.truncated) if each is not None]
    return replace(
        work.goal,
        sequence=encode_sequence(max(ends)) if ends else None,
        truncated=encode_sequence(max(truncates)) if truncates else None,
    )


def _report(
    work: MergeWork, written: _WrittenMerge, receipt: Receipt, timer: PhaseTimer, seconds: float
) -> MergeCommit:
    result, deletes, manifest = written.result, written.deletes, written.index.manifest
    phases = total_seconds(result.results)
    for phase, spent in timer.seconds.items():
        phases[phase] = phases.get(phase, 0.0) + spent
    files = [file for each in result.results for file in each.files]
    snapshot = receipt.marker.snapshot
    return MergeCommit(
        after=work.plan.after,
        through=work.plan.through,
        snapshot_id=0 if snapshot is None else snapshot.id,
        rows_read=result.rows,
        seconds=seconds,
        counts=total_counts(result.results),
        phases=phases,
        repairs=written.repairs,
        truncated=result.empties_mirror,
        unknown_updates=sum(each.unknown_updates for each in result.results),
        surplus_rows=sum(each.surplus_rows for each in result.results),
        rows_written=sum(file.rows for file in files),
        files_added=len(files),
        files_removed=len(deletes.removed_files),
        files_touched=deletes.touched,
        bytes_written=sum(file.size for file in files) + deletes.bytes_written,
        file_sizes=tuple(file.size for file in files),
        index_entries=manifest.entries,
        index_bytes=sum(run.bytes for run in manifest.runs),
        schema_changes=work.plan.schema.changes,
    )
