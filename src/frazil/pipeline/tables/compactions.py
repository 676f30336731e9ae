"""Performs compactions and index upkeep of a pipeline's tables, as the document wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import CommitConflictError, ConfigError
from frazil.maintain.compaction.compactor import RewriteOptions
from frazil.maintain.compaction.index_runs import load_due_runs
from frazil.maintain.compaction.landing import Abandoned, Landed
from frazil.maintain.compaction.running import TableCompaction
from frazil.maintain.facts import KeptRole
from frazil.maintain.jobs import CompactJob, IndexJob, JobOutcome
from frazil.model.humanize import counted
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.merge_settings import load_merges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.maintain.compaction.landing_queue import LandingQueue
    from frazil.maintain.maintainer import JobRunner
    from frazil.maintain.table_set import KeptTable
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.table_name import TableName

    QueueOf = Callable[[str], LandingQueue]


class Compactions:
    """The runners of two types of job; lives on the driver.

    ``queue_of`` has, by the mirror's name in the document, what its merges land.
    """

    def __init__(
        self, session: Session, lake: Lake, config: Config, *, queue_of: QueueOf | None = None
    ) -> None:
        self._session = session
        self._lake = lake
        self._config = config
        self._queue_of = queue_of

    @property
    def runners(self) -> Mapping[type, JobRunner]:
        """What performs each type of job."""
        return {CompactJob: self._compact, IndexJob: self._merge_runs}

    def load_index_jobs(self, table: KeptTable) -> tuple[IndexJob, ...]:
        """The upkeep that a mirror's index needs now."""
        if table.role is not KeptRole.MIRROR or not table.settings.enabled:
            return ()
        _, settings = self._merge_of(table.name)
        due = () if settings is None else load_due_runs(self._lake, settings)
        if not due:
            return ()
        return (
            IndexJob(
                table=table.name,
                reason=f"{counted(len(due), 'run')} of the key index",
                cost_bytes=sum(run.bytes for run in due),
                gain=f"{counted(len(due), 'run')} become 1",
            ),
        )

    def _compact(self, table: LakeTable, job: CompactJob) -> JobOutcome:
        del table
        files = {each.location for each in job.files}
        options = RewriteOptions(
            target_bytes=job.target_bytes, order=job.order, slots=self._slots()
        )
        try:
            report = self._compaction_of(job.table).compact(files, options)
        except CommitConflictError:
            return JobOutcome(job=job, is_done=False)
        rewrite, landing = report.rewrite, report.landing
        if rewrite is None or not isinstance(landing, Landed):
            return JobOutcome(job=job, is_done=False, given_up=_reason(landing))
        return JobOutcome(
            job=job,
            files_added=landing.files_added,
            files_removed=landing.files_removed,
            bytes_read=rewrite.bytes_read,
            bytes_written=rewrite.bytes_written,
            bytes_removed=landing.bytes_removed,
        )

    def _merge_runs(self, table: LakeTable, job: IndexJob) -> JobOutcome:
        del table
        try:
            landing = self._compaction_of(job.table).merge_runs(slots=self._slots())
        except CommitConflictError:
            return JobOutcome(job=job, is_done=False)
        if not isinstance(landing, Landed):
            return JobOutcome(job=job, is_done=False, given_up=_reason(landing))
        return JobOutcome(
            job=job,
            files_added=landing.files_added,
            bytes_read=landing.bytes_removed,
            bytes_written=landing.bytes_added,
        )

    def _compaction_of(self, table: TableName) -> TableCompaction:
        mirror, settings = self._merge_of(table)
        queue_of = self._queue_of
        return TableCompaction(
            session=self._session,
            lake=self._lake,
            table=table,
            settings=settings,
            is_ledger=table == ledger_name(self._config),
            queue=None if mirror is None or queue_of is None else queue_of(mirror),
        )

    def _merge_of(self, table: TableName) -> tuple[str | None, MergeSettings | None]:
        """The mirror's name in the document and how it is merged; nothing for another table.

        Loaded every time: a key column may have been renamed at the source.
        """
        try:
            merges = load_merges(self._lake, self._config, ())
        except ConfigError:
            # A document without mirrors has tables of records.
            return None, None
        for name, settings in merges.items():
            if settings.mirror == table:
                return name, settings
        return None, None

    def _slots(self) -> int:
        """The tasks that may run at a time: a share of the session's."""
        total = self._session.sparkContext.defaultParallelism
        return max(1, total * self._config.maintenance.share // 100)


def _reason(landing: Landed | Abandoned | None) -> str:
    return landing.reason if isinstance(landing, Abandoned) else ""
