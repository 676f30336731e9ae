"""The verb ``merge``: mirrors brought up to date, once or on their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.process.role import run_role
from frazil.cli.results.merge_results import HEADER, result_json, result_row
from frazil.pipeline.build_run import MERGE_ROLE, build_merge_run
from frazil.pipeline.tables.merge_settings import check_merges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.pipeline.build_run import PipelineRun, RunContext
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.telemetry.redaction import Redactor


def run_merges(
    document: Path | None,
    tables: Sequence[str],
    output: OutputFormat,
    invocation: Invocation,
    *,
    once: bool,
) -> ExitCode:
    """Merge until stopped; with ``once``, until nothing is left, and print what was done."""
    loaded = invocation.load(document)
    check_merges(loaded.config, tables)
    role = _MergeRole(tables, output, invocation.redactor, once=once)
    return run_role(role, document, invocation, loaded, once=once)


class _MergeRole:
    names = MERGE_ROLE

    def __init__(
        self, tables: Sequence[str], output: OutputFormat, redactor: Redactor, *, once: bool
    ) -> None:
        self._tables = tables
        self._output = output
        self._redactor = redactor
        self._once = once

    def build(self, context: RunContext) -> PipelineRun:
        return build_merge_run(context, self._tables, waits=not self._once)

    def print_results(self, run: PipelineRun) -> None:
        _print_results(run.merge_statuses, self._output, self._redactor)


def _print_results(
    statuses: Sequence[MergeStatus], output: OutputFormat, redactor: Redactor
) -> None:
    if output is OutputFormat.JSON:
        write_json([result_json(each, redactor) for each in statuses])
    else:
        write_table([result_row(each, redactor) for each in statuses], header=HEADER)
