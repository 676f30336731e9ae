"""Merges runs of a mirror's key index in the background; they land like a compaction.

A merge of the mirror merges small runs only. Larger ones are merged here, from the index of one
snapshot: entries are hints, so that those of rows deleted meanwhile do no harm, and every row that
came meanwhile is in runs that came with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.session import job_description
from frazil.errors import MarkerLostError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.maintain.compaction.landing import Abandoned, Landed
from frazil.maintain.compaction.sites import MirrorSite
from frazil.merge.index_operations import load_current_target
from frazil.merge.target import plan_growth
from frazil.mirror.index.loading import KeyIndex, load_index
from frazil.mirror.index.run_merging import plan_run_merge
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.key_index import IndexRun
    from frazil.model.table_name import TableName

_log = get_logger(__name__)
# A merge begins to merge runs above its limit: before that, the background has its turn.
_HEADROOM = 2
# One run instead of another one gains nothing.
_WORTHWHILE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRuns:
    """One run instead of several, which waits to land."""

    table: TableName
    snapshot_id: int
    replaced: tuple[IndexRun, ...]
    run: IndexRun


def plan_index_upkeep(index: KeyIndex, max_runs: int) -> tuple[IndexRun, ...]:
    """The runs that are to be merged now; none when there are few enough."""
    runs = index.manifest.runs
    chosen = plan_run_merge([run.entries for run in runs], max(max_runs - _HEADROOM, 1))
    return tuple(runs[at] for at in chosen)


def load_due_runs(lake: Lake, settings: MergeSettings) -> tuple[IndexRun, ...]:
    """The runs of a mirror that are to be merged; reads the head of the index, and no more."""
    try:
        target = load_current_target(lake, settings)
    except MarkerLostError:
        # Nothing was merged yet.
        return ()
    found = load_index(target.mirror.table.iter_ancestry(), target.inputs, target.expected)
    if not isinstance(found, KeyIndex):
        return ()
    return plan_index_upkeep(found, settings.index.max_runs)


def merge_index_runs(
    session: SparkSession, lake: Lake, settings: MergeSettings, *, slots: int = 1
) -> MergedRuns | None:
    """Write the merged run; None when nothing is due or the index must be rebuilt.

    At most ``slots`` tasks run at a time, and leave the others to merges.
    """
    version = MirrorSite(session, lake, settings).load()
    head, index = version.target.head, version.index
    if head is None or index is None:
        return None
    chosen = plan_index_upkeep(index, settings.index.max_runs)
    if not chosen:
        return None
    pinned = pinned_session(session)
    with job_description(pinned, f"index {settings.mirror}, {len(chosen)} runs"):
        growth = plan_growth(pinned, version.target, settings)
        run = growth.merge(chosen, index.manifest.files, slots=slots)
    return MergedRuns(table=settings.mirror, snapshot_id=head.id, replaced=chosen, run=run)


def land_runs(
    merged: MergedRuns, site: MirrorSite, retry: RetryPolicy | None = None
) -> Landed | Abandoned:
    """Commit the run instead of those that it replaces; rows, files and marker stay.

    Raises CommitConflictError when other commits were faster each time.
    """
    return repeat_on_conflict(
        partial(_attempt, merged, site),
        retry or RetryPolicy(),
        clock=SystemClock(),
        randomness=SystemRandomness(),
    )


def _attempt(merged: MergedRuns, site: MirrorSite) -> Landed | Abandoned:
    version = site.load()
    index = version.index
    if index is None:
        return Abandoned("the index is built again")
    if not _descends(version.target.mirror.table.iter_ancestry(), merged.snapshot_id):
        # Rows that were deleted then, and whose entries it lacks, may live.
        return Abandoned("the table was rolled back")
    names = {run.name for run in index.manifest.runs}
    # A merge may have merged the smallest of them meanwhile. Then their entries are in two runs,
    # which does no harm, and the large ones are not merged in vain.
    gone = {run.name for run in merged.replaced} & names
    if len(gone) < _WORTHWHILE:
        return Abandoned("the runs were merged by another process")
    kept = tuple(run for run in index.manifest.runs if run.name not in gone)
    runs = (*kept, merged.run) if merged.run.parts else kept
    after = replace(index, manifest=replace(index.manifest, runs=runs))
    snapshot = version.commit_index(FileChanges(), after).marker.snapshot
    _log.info("index runs merged", table=str(merged.table), replaced=len(gone), runs=len(runs))
    return Landed(
        snapshot_id=0 if snapshot is None else snapshot.id,
        files_added=len(merged.run.parts),
        files_removed=sum(len(run.parts) for run in merged.replaced if run.name in gone),
        late_deletes=0,
        bytes_added=merged.run.bytes,
        bytes_removed=sum(run.bytes for run in merged.replaced if run.name in gone),
    )


def _descends(ancestry: Iterable[SnapshotFacts], snapshot_id: int) -> bool:
    return any(each.id == snapshot_id for each in ancestry)
