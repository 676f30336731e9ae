"""What an ingest loop learns becomes status, metrics, log events and error reports; only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import DefectError, FrazilError
from frazil.model.marker import MarkerRole
from frazil.pipeline.next_step import RetryAfter, Standby
from frazil.pipeline.recording.merge_recorder import frames_of
from frazil.telemetry import metric_names as names
from frazil.telemetry.logs import get_logger
from frazil.telemetry.tracing import SpanName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.ingest.report import BatchReport, TableIngested
    from frazil.ledger.table_state import TableState
    from frazil.pipeline.loops.ingest_loop import Ingesting
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.status.board import StatusBoard
    from frazil.telemetry.metrics import Metrics
    from frazil.telemetry.reporting import Reporting
    from frazil.telemetry.tracing import Tracing

_log = get_logger(__name__)

_ROLE = MarkerRole.INGEST.value


class IngestRecorder:
    """Records what an ingest loop reports; its methods are the loop's receivers."""

    def __init__(self, metrics: Metrics, reporting: Reporting, board: StatusBoard) -> None:
        self._metrics = metrics
        self._reporting = reporting
        self._board = board
        self._reported: set[str] = set()

    def record_step(self, next_seconds: float) -> None:
        """The source was asked for changes."""
        self._board.record_step(next_seconds)

    def record_report(self, report: BatchReport) -> None:
        """A batch that was recorded."""
        self._board.record_batch(report)
        for table in report.tables:
            self._record_table(table)
        if report.tables:
            self._metrics.observe(names.BATCH_ROWS, report.rows)
            self._metrics.observe(names.BATCH_DURATION, report.seconds, role=_ROLE)
        for error in report.failures.values():
            self._metrics.add(names.ERRORS, code=error.code)
            self._report(error)
        _log.info(
            "tables copied" if report.is_copy else "batch ingested",
            batch=report.batch,
            tables=len(report.tables),
            rows=report.rows,
            position=report.acknowledged,
            seconds=round(report.seconds, 3),
        )

    def record_error(self, error: Exception, step: NextStep) -> None:
        """An attempt that failed, and what the loop does about it."""
        if isinstance(error, FrazilError) and isinstance(step, Standby):
            # Nothing is counted, reported or warned of.
            self._board.record_standby(error.reason)
            _log.debug("standby", reason=error.reason)
            return
        self._board.record_ingest_error(error, step)
        if not isinstance(error, FrazilError):
            # The text of a foreign exception may quote a row; where it happened is enough.
            _log.error("ingest failed unexpectedly", frames=frames_of(error))
            self._reporting.report(error)
            return
        self._metrics.add(names.ERRORS, code=error.code)
        log = _log.bind(code=error.code, position=error.position, reason=error.reason)
        if isinstance(error, DefectError):
            log = log.bind(frames=frames_of(error))
        if isinstance(step, RetryAfter):
            log.warning("ingest failed and is tried again", wait=round(step.seconds, 3))
        else:
            log.error("ingest stopped", remedy=error.next_step or error.remedy)
            self._report(error)

    def _report(self, error: FrazilError) -> None:
        """Report it; a defect that is met again and again, once."""
        if isinstance(error, DefectError):
            if error.message in self._reported:
                return
            self._reported.add(error.message)
        self._reporting.report(error)

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


class TracedIngest:
    """An ingest whose batches are spans, and the commits in them."""

    def __init__(self, inner: Ingesting, tracing: Tracing) -> None:
        self._inner = inner
        self._tracing = tracing

    @property
    def table_states(self) -> Mapping[str, TableState]:
        """As the ingest has them."""
        return self._inner.table_states

    @property
    def tables_to_copy(self) -> set[str]:
        """As the ingest has them."""
        return self._inner.tables_to_copy

    def follow_states(self, notify: Callable[[], None]) -> None:
        """As the ingest has them."""
        self._inner.follow_states(notify)

    def step(self) -> BatchReport | None:
        """The next changes, in a span."""
        with self._tracing.span(SpanName.BATCH, role=_ROLE):
            return self._traced(self._inner.step())

    def copy_tables(self) -> BatchReport | None:
        """A copy of tables, in a span."""
        with self._tracing.span(SpanName.BATCH, role=_ROLE):
            return self._traced(self._inner.copy_tables())

    def close(self) -> None:
        """Let go of everything."""
        self._inner.close()

    def _traced(self, report: BatchReport | None) -> BatchReport | None:
        for each in () if report is None else report.tables:
            self._tracing.record(
                SpanName.COMMIT,
                each.seconds,
                table=each.table,
                role=_ROLE,
                snapshot=each.snapshot_id or 0,
                rows=each.rows,
            )
        return report
