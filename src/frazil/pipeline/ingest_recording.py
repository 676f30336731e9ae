"""What an ingest loop learns becomes metrics, log events and error reports; only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.ledger.standing import Copying, Held, Live, ResyncNeeded
from frazil.model.marker import Role
from frazil.pipeline.next_step import Again
from frazil.pipeline.recording import frames_of
from frazil.telemetry import metric_names as names
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.ingest.report import BatchReport, TableIngested
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.next_step import Step
    from frazil.telemetry.metrics import Exposition, Metrics
    from frazil.telemetry.reporting import Reporting

_log = get_logger(__name__)

_ROLE = Role.INGEST.value
_PHASES = {Copying: "copying", Live: "live", Held: "held", ResyncNeeded: "resync_needed"}


class IngestRecorder:
    """Records what an ingest loop tells; its methods are the loop's receivers."""

    def __init__(self, metrics: Metrics, reporting: Reporting) -> None:
        self._metrics = metrics
        self._reporting = reporting
        self._capture: Capture | None = None

    def follow(self, capture: Capture) -> None:
        """Show how these tables stand from now on."""
        self._capture = capture

    def record_report(self, report: BatchReport) -> None:
        """A batch that was booked."""
        for table in report.tables:
            self._record_table(table)
        if report.tables:
            self._metrics.observe(names.BATCH_ROWS, report.rows)
            self._metrics.observe(names.BATCH_DURATION, report.seconds, role=_ROLE)
        for error in report.troubles.values():
            self._metrics.add(names.ERRORS, code=error.code)
            self._reporting.report(error)
        _log.info(
            "whole tables read" if report.is_whole else "batch ingested",
            batch=report.batch,
            tables=len(report.tables),
            rows=report.rows,
            position=report.acknowledged,
            seconds=round(report.seconds, 3),
        )

    def record_error(self, error: Exception, step: Step) -> None:
        """An attempt that failed, and what the loop does about it."""
        if not isinstance(error, FrazilError):
            # A stranger's text may quote a row; where it happened is enough to find the defect.
            _log.error("ingest failed unexpectedly", frames=frames_of(error))
            self._reporting.report(error)
            return
        self._metrics.add(names.ERRORS, code=error.code)
        log = _log.bind(code=error.code, position=error.position, message=str(error))
        if isinstance(step, Again):
            log.warning("ingest failed and is tried again", wait=round(step.seconds, 3))
        else:
            log.error("ingest stopped", remedy=error.next_step or error.remedy)
            self._reporting.report(error)

    def expose(self, accept: str = "") -> Exposition:
        """Everything recorded, with how tables stand at this moment."""
        if self._capture is not None:
            self._show_standings(self._capture)
        return self._metrics.expose(accept)

    def _show_standings(self, capture: Capture) -> None:
        standings = capture.ingester.standings.values()
        for state, phase in _PHASES.items():
            count = sum(isinstance(each.state, state) for each in standings)
            self._metrics.set(names.TABLES, count, phase=phase)
        lag = capture.source.lag_bytes()
        if lag is not None:
            self._metrics.set(names.SOURCE_LAG_BYTES, lag)

    def _record_table(self, table: TableIngested) -> None:
        name = table.table
        add = self._metrics.add
        for operation, rows in table.operations.items():
            add(names.SOURCE_EVENTS, rows, table=name, operation=operation.lower())
        add(names.COMMITS, table=name, role=_ROLE, outcome="ok")
        add(names.ROWS_WRITTEN, table.rows, table=name, role=_ROLE)
        add(names.DATA_FILES, len(table.file_sizes), table=name, role=_ROLE)
        for size in table.file_sizes:
            self._metrics.observe(names.FILE_SIZE, size)
