"""The verb ``run``: ingest and merges in one process, once or until stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.process.role import run_role
from frazil.cli.process.source_readiness import refuse_unready
from frazil.pipeline.build_run import INGEST_ROLE, MERGE_ROLE, build_run
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.merge_settings import check_merges

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.config import Config
    from frazil.pipeline.build_run import PipelineRun, RunContext
    from frazil.pipeline.status.values import TableStatus
    from frazil.telemetry.redaction import Redactor

HEADER = ("TABLE", "PHASE", "CAPTURED", "MERGED", "MIRROR", "PROBLEM")


def run_pipeline(
    document: Path | None, output: OutputFormat, invocation: Invocation, *, once: bool
) -> ExitCode:
    """Run until stopped; with ``once``, until mirrors have all that is there now."""
    loaded = invocation.load(document)
    # Mistakes are reported now, not after the seconds that Spark needs to start.
    if loaded.config.source is not None:
        configured_source(loaded.config).validate()
    check_merges(loaded.config, ())
    unready = refuse_unready(loaded.config, invocation.redactor, once=once)
    if unready is not None:
        return unready
    role = _RunRole(loaded.config, output, invocation.redactor)
    return run_role(role, document, invocation, loaded, once=once)


class _RunRole:
    def __init__(self, config: Config, output: OutputFormat, redactor: Redactor) -> None:
        self._output = output
        self._redactor = redactor
        self.names = MERGE_ROLE if config.source is None else INGEST_ROLE + MERGE_ROLE

    def build(self, context: RunContext) -> PipelineRun:
        return build_run(context)

    def print_results(self, run: PipelineRun) -> None:
        tables = run.board.now().tables
        if self._output is OutputFormat.JSON:
            write_json([_as_json(each, self._redactor) for each in tables])
        else:
            write_table([_row(each, self._redactor) for each in tables], header=HEADER)


def _row(table: TableStatus, redactor: Redactor) -> tuple[str, ...]:
    return (
        table.table,
        table.phase.value,
        f"{sum(table.captured.values()):,}",
        f"{sum(table.merged.values()):,}",
        table.mirror or "-",
        redactor.redact(_problem(table)),
    )


def _as_json(table: TableStatus, redactor: Redactor) -> dict[str, object]:
    return {
        "table": table.table,
        "phase": table.phase.value,
        "captured": dict(table.captured),
        "merged": dict(table.merged),
        "changelog": table.changelog,
        "mirror": table.mirror,
        "problem": redactor.redact(_problem(table)) or None,
    }


def _problem(table: TableStatus) -> str:
    problem = table.trouble
    if problem is None:
        return ""
    return f"{problem.code or 'defect'}: {problem.reason} Next: {problem.remedy}"
