"""The verbs ``run``, ``ingest`` and ``merge``: roles of the pipeline, once or until stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.process.role import ProcessRole, run_role
from frazil.cli.process.source_readiness import refuse_unready
from frazil.cli.results import merge_results
from frazil.cli.results.ingest_results import IngestTally
from frazil.pipeline.build_run import (
    INGEST_ROLE,
    MERGE_ROLE,
    build_ingest_run,
    build_merge_run,
    build_run,
)
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.merge_settings import check_merges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.pipeline.build_run import PipelineRun, RunContext
    from frazil.pipeline.status.values import TableStatus
    from frazil.telemetry.redaction import Redactor

HEADER = ("TABLE", "PHASE", "CAPTURED", "MERGED", "MIRROR", "PROBLEM")


def run_pipeline(invocation: Invocation, *, once: bool) -> ExitCode:
    """Run until stopped; with ``once``, until mirrors have all that is there now."""
    loaded, redactor = invocation.load(invocation.document), invocation.redactor
    # Mistakes are reported now, not after the seconds that Spark needs to start.
    if loaded.config.source is not None:
        configured_source(loaded.config).validate()
    check_merges(loaded.config, ())
    unready = refuse_unready(loaded.config, redactor, once=once)
    if unready is not None:
        return unready

    def print_results(run: PipelineRun) -> None:
        tables = run.board.now().tables
        if invocation.output is OutputFormat.JSON:
            write_json([_as_json(each, redactor) for each in tables])
        else:
            write_table([_row(each, redactor) for each in tables], header=HEADER)

    names = MERGE_ROLE if loaded.config.source is None else INGEST_ROLE + MERGE_ROLE
    role = ProcessRole(names, build_run, print_results)
    return run_role(role, invocation.document, invocation, loaded, once=once)


def run_ingest(invocation: Invocation, *, once: bool) -> ExitCode:
    """Capture until stopped; with ``once``, all that is there now, and print what was done."""
    loaded, redactor = invocation.load(invocation.document), invocation.redactor
    # Mistakes are reported now, not after the seconds that Spark needs to start.
    configured_source(loaded.config).validate()
    unready = refuse_unready(loaded.config, redactor, once=once)
    if unready is not None:
        return unready
    tally = IngestTally()

    def build(context: RunContext) -> PipelineRun:
        return build_ingest_run(context, also=tally.record_report)

    def print_results(run: PipelineRun) -> None:
        table_states = {} if run.capture is None else run.capture.ingester.table_states
        tally.print(table_states, invocation.output, redactor)

    role = ProcessRole(INGEST_ROLE, build, print_results)
    return run_role(role, invocation.document, invocation, loaded, once=once)


def run_merges(tables: Sequence[str], invocation: Invocation, *, once: bool) -> ExitCode:
    """Merge until stopped; with ``once``, until nothing is left, and print what was done."""
    loaded = invocation.load(invocation.document)
    check_merges(loaded.config, tables)

    def build(context: RunContext) -> PipelineRun:
        return build_merge_run(context, tables, waits=not once)

    def print_results(run: PipelineRun) -> None:
        merge_results.print_results(run.merge_statuses, invocation.output, invocation.redactor)

    role = ProcessRole(MERGE_ROLE, build, print_results)
    return run_role(role, invocation.document, invocation, loaded, once=once)


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
