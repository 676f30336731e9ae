"""The outcome of each table of a merge, as a line of text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.merge.report import MergeAction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.merge.report import MergeCommit, MergeReport
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.telemetry.redaction import Redactor

HEADER = (
    "TABLE", "STATE", "COMMITS", "CHANGES", "INSERTED", "UPDATED", "DELETED", "LATE", "SECONDS",
    "PROBLEM",
)  # fmt: skip
_COUNTED = (MergeAction.INSERT, MergeAction.UPDATE, MergeAction.DELETE, MergeAction.LATE)


def print_results(
    statuses: Sequence[MergeStatus], output: OutputFormat, redactor: Redactor
) -> None:
    """Every table that is merged, also those that got nothing."""
    if output is OutputFormat.JSON:
        write_json([result_json(each, redactor) for each in statuses])
    else:
        write_table([result_row(each, redactor) for each in statuses], header=HEADER)


def result_row(status: MergeStatus, redactor: Redactor) -> tuple[str, ...]:
    """One line of text."""
    report = status.report
    numbers = ["-"] * (3 + len(_COUNTED))
    if report is not None:
        counts = [str(report.counts[action]) for action in _COUNTED]
        read = str(report.rows_read)
        numbers = [str(len(report.commits)), read, *counts, f"{report.seconds:.1f}"]
    return (status.table, status.phase.value, *numbers, _problem(status, redactor))


def result_json(status: MergeStatus, redactor: Redactor) -> dict[str, object]:
    """One JSON object."""
    problem = None
    if status.error is not None:
        problem = {
            "code": status.code,
            "message": redactor.redact(status.reason or ""),
            "remedy": redactor.redact(status.remedy or ""),
        }
    return {
        "table": status.table,
        "state": status.phase.value,
        "since": status.since.isoformat(),
        "failures": status.failures,
        "merged": None if status.report is None else report_json(status.report),
        "problem": problem,
    }


def report_json(report: MergeReport) -> dict[str, object]:
    """Every fact of a report."""
    return {
        "changelog": str(report.changelog),
        "mirror": str(report.mirror),
        "rows_read": report.rows_read,
        "seconds": round(report.seconds, 3),
        "counts": {action.value: keys for action, keys in report.counts.items()},
        "commits": [_commit_json(commit) for commit in report.commits],
    }


def _commit_json(commit: MergeCommit) -> dict[str, object]:
    return {
        # As text, because many readers of JSON round such numbers.
        "snapshot": str(commit.snapshot_id),
        "from": None if commit.after is None else str(commit.after),
        "through": str(commit.through),
        "rows_read": commit.rows_read,
        "seconds": round(commit.seconds, 3),
        "phases": {phase.value: round(seconds, 3) for phase, seconds in commit.phases.items()},
        "counts": {action.value: keys for action, keys in commit.counts.items()},
        "truncated": commit.truncated,
        "unknown_updates": commit.unknown_updates,
        "surplus_rows": commit.surplus_rows,
        "rows_written": commit.rows_written,
        "files_added": commit.files_added,
        "files_removed": commit.files_removed,
        "files_touched": commit.files_touched,
        "bytes_written": commit.bytes_written,
        "index_entries": commit.index_entries,
        "index_bytes": commit.index_bytes,
        "schema_changes": list(commit.schema_changes),
        "repairs": [
            {
                "reason": repair.reason.value,
                "detail": repair.detail,
                "files_read": repair.files_read,
                "rebuilt": repair.rebuilt,
            }
            for repair in commit.repairs
        ],
    }


def _problem(status: MergeStatus, redactor: Redactor) -> str:
    if status.error is None:
        return ""
    reason = redactor.redact(status.reason or "")
    return f"{status.code}: {reason}" if status.code is not None else reason
