"""What the maintenance loop learns becomes status, metrics and log events; only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil import errors
from frazil.changelog.mirror_record import forget_statement
from frazil.maintain.jobs import describe_job
from frazil.model.humanize import duration
from frazil.pipeline.status.upkeep_status import UpkeepStatus
from frazil.telemetry import metric_names as ours
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.maintain.jobs import JobOutcome
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.pipeline.status.board import StatusBoard
    from frazil.telemetry.metrics import Metrics

_log = get_logger(__name__)


class UpkeepRecorder:
    """Records what a maintenance loop reports; its methods are the loop's receivers."""

    def __init__(self, metrics: Metrics, board: StatusBoard) -> None:
        self._metrics = metrics
        self._board = board

    def record_plan(self, plan: UpkeepPlan) -> None:
        """A table that was looked at."""
        table, health = str(plan.table.name), plan.health
        for kind, count in (
            ("small", health.small_files),
            ("large", health.files - health.small_files),
            ("delete", health.delete_files),
        ):
            self._metrics.set(ours.TABLE_FILES, count, table=table, **{"class": kind})
        self._metrics.set(ours.TABLE_DEAD_ROWS, health.dead_ratio, table=table)
        self._metrics.set(ours.TABLE_SNAPSHOTS, health.snapshots, table=table)
        self._metrics.set(ours.TABLE_BYTES, health.bytes, table=table)
        own = {str(each) for each in plan.table.mirrors}
        for mirror, seconds in plan.lagging:
            _log.warning(
                "changes are kept for a mirror that does not merge them",
                table=table,
                mirror=mirror,
                age=duration(seconds),
                remedy="frazil status"
                if mirror in own
                else f"if it is gone: {forget_statement(plan.table.name, mirror)}",
            )
        self._board.upkeep.record(
            UpkeepStatus(
                table=table,
                role=plan.table.role.value,
                files=health.files,
                small_files=health.small_files,
                bytes=health.bytes,
                dead_ratio=health.dead_ratio,
                snapshots=health.snapshots,
                manifests=health.manifests,
                next_job=f"{plan.jobs[0].kind}: {describe_job(plan.jobs[0])}"
                if plan.jobs
                else None,
                lagging=tuple(mirror for mirror, _ in plan.lagging),
            )
        )

    def record_outcome(self, plan: UpkeepPlan, outcome: JobOutcome) -> None:
        """A job that did not fail."""
        table, kind = str(plan.table.name), outcome.job.kind.value
        result = "ok" if outcome.is_done else "conflict"
        self._metrics.add(ours.MAINTENANCE_JOBS, table=table, job=kind, outcome=result)
        self._metrics.observe(ours.MAINTENANCE_DURATION, outcome.seconds, job=kind)
        for direction, count in (
            ("read", outcome.bytes_read),
            ("written", outcome.bytes_written),
            ("removed", outcome.bytes_removed),
        ):
            self._metrics.add(ours.MAINTENANCE_BYTES, count, job=kind, direction=direction)
        _log.info(
            "maintained" if outcome.is_done else "maintenance is tried again later",
            table=table,
            job=kind,
            snapshots_removed=outcome.snapshots_removed,
            files_added=outcome.files_added,
            files_removed=outcome.files_removed,
            rows_removed=outcome.rows_removed,
            bytes_written=outcome.bytes_written,
            bytes_removed=outcome.bytes_removed,
            seconds=round(outcome.seconds, 3),
        )
        self._board.upkeep.record_done(table, kind)

    def record_error(self, table: str, error: Exception) -> None:
        """A table that failed, or without a name all of them; the next look tries again."""
        code = error.code if isinstance(error, errors.FrazilError) else None
        if code is not None:
            self._metrics.add(ours.ERRORS, code=code)
        reason = error.reason if isinstance(error, errors.FrazilError) else type(error).__name__
        _log.warning("maintenance failed", table=table, code=code, reason=reason)
        if table:
            self._metrics.add(ours.MAINTENANCE_FAILURES, table=table)
            self._board.upkeep.record_problem(table, reason)
