"""Runners of jobs that remove: snapshots, manifests, files of merged changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.upkeep_commit import FileRemoval
from frazil.errors import CommitConflictError
from frazil.maintain.jobs import JobOutcome
from frazil.model.table_facts import TRIMMED_PROPERTY, UPKEEP_KEY, trimmed_through

if TYPE_CHECKING:
    from frazil.clients.iceberg.table import LakeTable
    from frazil.maintain.jobs import ExpireJob, ManifestsJob, RetentionJob

# A commit of another writer takes a fraction of a second; the next look comes in minutes.
_ATTEMPTS = 3


def run_expiry(table: LakeTable, job: ExpireJob) -> JobOutcome:
    """Expire the snapshots of the job and nothing else."""
    removed = table.upkeep().expire(job.snapshots)
    table.show_latest()
    return JobOutcome(job=job, snapshots_removed=len(job.snapshots), files_removed=removed)


def run_manifests(table: LakeTable, job: ManifestsJob) -> JobOutcome:
    """Rewrite the manifests; a merge takes it for a compaction."""
    replaced = table.upkeep().rewrite_manifests()
    table.show_latest()
    return JobOutcome(job=job, files_removed=replaced, bytes_read=job.cost_bytes)


def run_retention(table: LakeTable, job: RetentionJob) -> JobOutcome:
    """Remove the job's files as one delete snapshot, which the merge recognises by its files.

    Rows older than what every mirror has merged are not read again. What was removed is written
    down in the same commit: no mirror is made of the rest.
    """
    wanted = {file.location for file in job.files}
    for attempt in range(_ATTEMPTS):
        state = table.load_state()
        live = () if state.head is None else table.load_live_files(state.head.id)
        files = [each for each in live if each.location in wanted and each.sequence <= job.merged]
        if not files:
            return JobOutcome(job=job, is_done=attempt == 0)
        highest = max(each.sequence for each in files)
        trimmed = max(highest, trimmed_through(state.properties) or 0)
        removal = FileRemoval(
            removed=tuple(each.descriptor for each in files),
            # The merge learns from it how old the files were, without listing them.
            summary={UPKEEP_KEY: job.kind.value, TRIMMED_PROPERTY: str(highest)},
            properties={TRIMMED_PROPERTY: str(trimmed)},
        )
        try:
            table.upkeep().commits.remove_files(removal)
        except CommitConflictError:
            continue
        table.show_latest()
        return JobOutcome(
            job=job,
            files_removed=len(files),
            bytes_removed=sum(each.size for each in files),
            rows_removed=sum(each.rows for each in files),
        )
    return JobOutcome(job=job, is_done=False)
