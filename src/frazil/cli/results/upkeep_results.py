"""What ``maintain`` and ``plan`` print about the upkeep of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.maintain.jobs import describe_job, job_document
from frazil.model.humanize import counted, duration, size

if TYPE_CHECKING:
    from frazil.maintain.maintainer import UpkeepPlan
    from frazil.pipeline.status.upkeep_status import UpkeepStatus

HEADER = ("TABLE", "JOB", "WHY, COST AND GAIN")
RESULT_HEADER = (
    "TABLE", "FILES", "SMALL", "SIZE", "DELETED ROWS", "SNAPSHOTS", "LAST JOB", "PROBLEM",
)  # fmt: skip


def job_rows(plan: UpkeepPlan) -> list[tuple[str, str, str]]:
    """The jobs of one table, or one line that it needs none."""
    table = str(plan.table.name)
    rows = [(table, job.kind.value, describe_job(job)) for job in plan.jobs]
    rows += [(table, "kept", text) for text in lagging_lines(plan)]
    return rows or [(table, "-", f"nothing: {counted(plan.health.files, 'file')} in good order")]


def lagging_lines(plan: UpkeepPlan) -> list[str]:
    """The mirrors for which changes are kept longer than the settings say."""
    return [
        f"{mirror} has not merged changes of {duration(seconds)} ago: they stay for it"
        for mirror, seconds in plan.lagging
    ]


def jobs_json(plan: UpkeepPlan) -> dict[str, object]:
    """The same for programs, with the table's health."""
    health = plan.health
    return {
        "table": str(plan.table.name),
        "role": plan.table.role.value,
        "files": health.files,
        "small_files": health.small_files,
        "bytes": health.bytes,
        "dead_rows_ratio": health.dead_ratio,
        "delete_files": health.delete_files,
        "manifests": health.manifests,
        "snapshots": health.snapshots,
        "jobs": [job_document(job) for job in plan.jobs],
        "kept_for": [mirror for mirror, _ in plan.lagging],
    }


def health_row(status: UpkeepStatus) -> tuple[str, ...]:
    """One table after it was looked after."""
    return (
        status.table,
        str(status.files),
        str(status.small_files),
        size(status.bytes),
        f"{status.dead_ratio:.0%}",
        str(status.snapshots),
        status.last_job or "-",
        status.problem or "",
    )


def health_json(status: UpkeepStatus) -> dict[str, object]:
    """The same for programs."""
    return {
        "table": status.table,
        "role": status.role,
        "files": status.files,
        "small_files": status.small_files,
        "bytes": status.bytes,
        "dead_rows_ratio": status.dead_ratio,
        "snapshots": status.snapshots,
        "manifests": status.manifests,
        "last_job": status.last_job,
        "problem": status.problem,
    }
