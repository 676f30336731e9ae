"""The verb ``ingest``: changes of the source captured, once or until stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.process.role import run_role
from frazil.cli.process.source_readiness import refuse_unready
from frazil.cli.results.ingest_results import IngestTally
from frazil.pipeline.build_run import INGEST_ROLE, build_ingest_run
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.cli.output import OutputFormat
    from frazil.pipeline.build_run import PipelineRun, RunContext
    from frazil.telemetry.redaction import Redactor


def run_ingest(
    document: Path | None, output: OutputFormat, invocation: Invocation, *, once: bool
) -> ExitCode:
    """Capture until stopped; with ``once``, all that is there now, and print what was done."""
    loaded = invocation.load(document)
    # Mistakes are reported now, not after the seconds that Spark needs to start.
    configured_source(loaded.config).validate()
    unready = refuse_unready(loaded.config, invocation.redactor, once=once)
    if unready is not None:
        return unready
    role = _IngestRole(output, invocation.redactor)
    return run_role(role, document, invocation, loaded, once=once)


class _IngestRole:
    names = INGEST_ROLE

    def __init__(self, output: OutputFormat, redactor: Redactor) -> None:
        self._output = output
        self._redactor = redactor
        self._tally = IngestTally()

    def build(self, context: RunContext) -> PipelineRun:
        return build_ingest_run(context, also=self._tally.record_report)

    def print_results(self, run: PipelineRun) -> None:
        table_states = {} if run.capture is None else run.capture.ingester.table_states
        self._tally.print(table_states, self._output, self._redactor)
