"""The verb ``ingest``: changes of the source captured, once or until told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.ingest_results import IngestTally
from frazil.cli.role_process import run_role
from frazil.pipeline.capture import build_capture, build_ingest_loop, postgres_settings
from frazil.pipeline.ingest_recording import IngestRecorder

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.cli.output import OutputFormat
    from frazil.cli.role_process import Stage
    from frazil.config import Config
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.ingest_loop import IngestLoop
    from frazil.pipeline.observing import Observed
    from frazil.telemetry.redaction import Redactor


def run_ingest(
    document: Path | None, output: OutputFormat, invocation: Invocation, *, once: bool
) -> ExitCode:
    """Capture until told to stop; with ``once``, all that is there now, and print what was done."""
    loaded = invocation.load(document)
    # Mistakes are told now, not after the seconds that Spark needs to start.
    postgres_settings(loaded.config)
    role = _IngestRole(loaded.config, output, invocation.redactor)
    return run_role(role, loaded, invocation.redactor, once=once)


class _IngestRole:
    def __init__(self, config: Config, output: OutputFormat, redactor: Redactor) -> None:
        self._config = config
        self._output = output
        self._redactor = redactor
        self._recorder: IngestRecorder
        self._tally: IngestTally
        self._capture: Capture

    def observe(self, observed: Observed) -> IngestRecorder:
        self._recorder = IngestRecorder(observed.metrics, observed.reporting)
        return self._recorder

    def build(self, stage: Stage) -> IngestLoop:
        self._capture = build_capture(stage.session, self._config)
        self._recorder.follow(self._capture)
        self._tally = IngestTally(self._recorder)
        return build_ingest_loop(
            stage.session,
            self._config,
            self._capture,
            stop=stage.stop,
            on_report=self._tally.record_report,
            on_error=self._recorder.record_error,
        )

    def print_results(self) -> None:
        standings = self._capture.ingester.standings
        self._tally.print(standings, self._output, self._redactor)
