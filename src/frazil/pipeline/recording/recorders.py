"""What the loops learn becomes status, metrics, log events, spans and reports; only here.

Tasks and mergers return counts. The names of Supabase's merger, or of KafScale's processor, are
recorded beside ours when its document is used, so that dashboards drawn for it go on working.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from frazil import errors
from frazil.hooks import SystemClock
from frazil.ledger.rows import brief_position
from frazil.merge.report import MergePhase
from frazil.model.marker import MarkerRole
from frazil.pipeline.next_step import Fenced, Pause, RetriesExhausted, RetryAfter, Standby
from frazil.pipeline.recording.processor_recorder import ProcessorRecorder
from frazil.sources.protocol import CountedOutcome
from frazil.telemetry import metric_names as ours
from frazil.telemetry import metric_names_foreign as foreign
from frazil.telemetry.log_fields import bound
from frazil.telemetry.logs import get_logger
from frazil.telemetry.metric_names_foreign import ForeignNames
from frazil.telemetry.tracing import SpanName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.hooks import Clock
    from frazil.ingest.report import BatchReport, TableIngested
    from frazil.ledger.table_state import TableState
    from frazil.merge.report import MergeCommit, MergeReport
    from frazil.pipeline.loops.ingest_loop import Ingesting
    from frazil.pipeline.loops.merge_loop import TableMerge
    from frazil.pipeline.next_step import NextStep
    from frazil.pipeline.status.board import StatusBoard
    from frazil.telemetry.metrics import Metrics
    from frazil.telemetry.reporting import Reporting
    from frazil.telemetry.tracing import Tracing

_log = get_logger(__name__)

_CLOCK = SystemClock()
_INGEST = MarkerRole.INGEST.value
_MERGE = MarkerRole.MERGE.value
# Longer chains are circular or absurd.
_MOST_CAUSES = 12


class TracedMerge:
    """A table's merges in a span, every commit in its own, and the name on every log event."""

    def __init__(self, table: str, merge: TableMerge, tracing: Tracing) -> None:
        self._table = table
        self._inner = merge
        self._tracing = tracing

    def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
        """Merge as the table's own merger does."""
        with (
            bound(table=self._table),
            self._tracing.span(SpanName.BATCH, table=self._table, role=_MERGE),
        ):
            report = self._inner.merge(stop=stop)
            for commit in report.commits:
                self._tracing.record(
                    SpanName.COMMIT,
                    commit.seconds,
                    table=self._table,
                    role=_MERGE,
                    snapshot=commit.snapshot_id,
                    rows=commit.rows_read,
                )
            return report


class Recorder:
    """Records what a merge loop reports; its methods are the loop's receivers."""

    def __init__(
        self,
        metrics: Metrics,
        reporting: Reporting,
        board: StatusBoard,
        *,
        names: ForeignNames = ForeignNames.NONE,
    ) -> None:
        self._metrics = metrics
        self._reporting = reporting
        self._board = board
        self._has_merger_names = names is ForeignNames.MERGER

    def record_start(self, table: str) -> None:
        """A run that begins."""
        self._board.record_merge_start(table)

    def record_report(self, table: str, report: MergeReport, seconds: float) -> None:
        """A run that did not fail."""
        for commit in report.commits:
            self._record_commit(table, commit)
            self._log_commit(table, commit)
        if not report.commits:
            _log.debug("nothing to merge", table=table, seconds=round(seconds, 3))
        self._board.record_merge(table, report)
        if self._has_merger_names:
            self._metrics.add(foreign.MERGER_TABLE_SUCCESS, table=table)
            self._metrics.observe(foreign.MERGER_TABLE_DURATION, seconds, table=table)

    def record_error(self, table: str, error: Exception, step: NextStep, seconds: float) -> None:
        """A run that failed, and what the loop does about it."""
        if isinstance(error, errors.FrazilError):
            self._metrics.add(ours.ERRORS, code=error.code)
        outcome = _outcome(error)
        self._metrics.add(ours.COMMITS, table=table, role=_MERGE, outcome=outcome)
        self._board.record_merge_error(table, error)
        if self._has_merger_names:
            self._metrics.add(foreign.MERGER_TABLE_FAILURE, table=table)
            self._metrics.observe(foreign.MERGER_TABLE_DURATION, seconds, table=table)
        if not isinstance(step, RetryAfter):
            self._reporting.report(error)
        _log_error(table, error, step)

    def record_cycle(self, seconds: float) -> None:
        """Every table had its turn."""
        _log.debug("merge cycle ended", seconds=round(seconds, 3))
        if self._has_merger_names:
            self._metrics.add(foreign.MERGER_CYCLE_COMPLETED)
            self._metrics.observe(foreign.MERGER_CYCLE_DURATION, seconds)

    def _record_commit(self, table: str, commit: MergeCommit) -> None:
        add, observe = self._metrics.add, self._metrics.observe
        add(ours.COMMITS, table=table, role=_MERGE, outcome="ok")
        observe(ours.COMMIT_DURATION, commit.phases.get(MergePhase.COMMIT, 0.0))
        observe(ours.BATCH_ROWS, commit.rows_read)
        observe(ours.BATCH_DURATION, commit.seconds, role=_MERGE)
        for phase, seconds in commit.phases.items():
            observe(ours.MERGE_DURATION, seconds, table=table, phase=phase.value)
        for action, keys in commit.counts.items():
            add(ours.MERGE_ROWS, keys, table=table, action=action.value)
        add(ours.ROWS_WRITTEN, commit.rows_written, table=table, role=_MERGE)
        add(ours.DATA_FILES, commit.files_added, table=table, role=_MERGE)
        for size in commit.file_sizes:
            observe(ours.FILE_SIZE, size)
        add(ours.MERGE_FILES, commit.files_touched, table=table)
        self._metrics.set(ours.INDEX_ENTRIES, commit.index_entries, table=table)
        self._metrics.set(ours.INDEX_BYTES, commit.index_bytes, table=table)
        for repair in commit.repairs:
            add(ours.INDEX_REPAIRS, reason=repair.reason.value)
        if self._has_merger_names:
            self._record_for_merger(commit)

    def _record_for_merger(self, commit: MergeCommit) -> None:
        self._metrics.add(foreign.MERGER_ROWS_SCANNED, commit.rows_read)
        self._metrics.add(foreign.MERGER_ROWS_DEDUPLICATED, sum(commit.counts.values()))
        merging = max(0.0, commit.seconds - commit.phases.get(MergePhase.PLAN, 0.0))
        self._metrics.observe(foreign.MERGER_MERGE_DURATION, merging)
        self._metrics.add(foreign.MERGER_BYTES_WRITTEN, commit.bytes_written)

    def _log_commit(self, table: str, commit: MergeCommit) -> None:
        _log.info(
            "merge committed",
            table=table,
            batch=str(commit.through),
            snapshot=str(commit.snapshot_id),
            rows=commit.rows_read,
            seconds=round(commit.seconds, 3),
            files=commit.files_added,
            bytes=commit.bytes_written,
            **{action.value: keys for action, keys in commit.counts.items() if keys},
        )
        for repair in commit.repairs:
            _log.warning(
                "index repaired",
                table=table,
                reason=repair.reason.value,
                detail=repair.detail,
                files=repair.files_read,
                rebuilt=repair.rebuilt,
            )
        for change in commit.schema_changes:
            _log.info(
                "schema changed", table=table, snapshot=str(commit.snapshot_id), change=change
            )
        if commit.surplus_rows:
            _log.warning("surplus rows removed", table=table, rows=commit.surplus_rows)


def _outcome(error: Exception) -> str:
    match error:
        case errors.CommitConflictError():
            return "conflict"
        case errors.CommitUnknownError():
            return "unknown"
        case errors.FencedError() | errors.LeaseLostError():
            return "fenced"
        case _:
            return "failed"


def _log_error(table: str, error: Exception, step: NextStep) -> None:
    log = _log.bind(table=table, error=type(error).__name__)
    if not isinstance(error, errors.FrazilError):
        # The text of a foreign exception may quote a row; where it happened is enough.
        log.error("merge failed unexpectedly", frames=frames_of(error))
        return
    log = log.bind(code=error.code, position=error.position, reason=error.reason)
    if isinstance(error, errors.DefectError) and error.__cause__ is not None:
        log = log.bind(frames=frames_of(error))
    match step:
        case RetryAfter(seconds=seconds):
            log.warning("merge failed and is tried again", wait=round(seconds, 3))
        case Pause():
            log.error("table paused, action required", remedy=error.next_step or error.remedy)
        case RetriesExhausted():
            log.error("merge failed and its attempts are used up")
        case Fenced():
            log.warning("merge is fenced by another process")


def frames_of(error: BaseException) -> str:
    """Where an exception and its causes were raised, without what they say."""
    frames: list[str] = []
    link: BaseException | None = error
    while link is not None and len(frames) < _MOST_CAUSES:
        frames.append(f"{type(link).__name__}\n{''.join(traceback.format_tb(link.__traceback__))}")
        link = link.__cause__ or link.__context__
    return "".join(frames).rstrip("\n")


class IngestRecorder:
    """Records what an ingest loop reports; its methods are the loop's receivers."""

    def __init__(
        self,
        metrics: Metrics,
        reporting: Reporting,
        board: StatusBoard,
        *,
        names: ForeignNames = ForeignNames.NONE,
        clock: Clock = _CLOCK,
    ) -> None:
        self._metrics = metrics
        self._reporting = reporting
        self._board = board
        self._reported: set[str] = set()
        is_processors = names is ForeignNames.PROCESSOR
        self._processor = ProcessorRecorder(metrics, clock) if is_processors else None

    def record_step(self, next_seconds: float) -> None:
        """The source was asked for changes."""
        self._board.record_step(next_seconds)

    def record_report(self, report: BatchReport) -> None:
        """A batch that was recorded."""
        self._board.record_batch(report)
        for table in report.tables:
            self._record_table(table)
        if report.tables:
            self._metrics.observe(ours.BATCH_ROWS, report.rows)
            self._metrics.observe(ours.BATCH_DURATION, report.seconds, role=_INGEST)
        for (_, reason), records in report.rejected.items():
            self._metrics.add(ours.DEAD_LETTERS, records, reason=reason)
        for (name, outcome), count in report.counts.items():
            self._record_counted(name, outcome, count)
        for error in (*report.failures.values(), *report.stopped.values()):
            self._metrics.add(ours.ERRORS, code=error.code)
            self._report(error)
        if self._processor is not None:
            self._processor.record_report(report)
        _log.info(
            "tables copied" if report.is_copy else "batch ingested",
            batch=report.batch,
            tables=len(report.tables),
            rows=report.rows,
            position=brief_position(report.acknowledged) or None,
            seconds=round(report.seconds, 3),
        )

    def record_error(self, error: Exception, step: NextStep) -> None:
        """An attempt that failed, and what the loop does about it."""
        if isinstance(error, errors.FrazilError) and isinstance(step, Standby):
            # Nothing is counted, reported or warned of.
            self._board.record_standby(error.reason)
            _log.debug("standby", reason=error.reason)
            return
        self._board.record_ingest_error(error, step)
        if self._processor is not None:
            self._processor.record_error(error)
        if not isinstance(error, errors.FrazilError):
            # The text of a foreign exception may quote a row; where it happened is enough.
            _log.error("ingest failed unexpectedly", frames=frames_of(error))
            self._reporting.report(error)
            return
        self._metrics.add(ours.ERRORS, code=error.code)
        log = _log.bind(code=error.code, position=error.position, reason=error.reason)
        if isinstance(error, errors.DefectError):
            log = log.bind(frames=frames_of(error))
        if isinstance(step, RetryAfter):
            log.warning("ingest failed and is tried again", wait=round(step.seconds, 3))
        else:
            log.error("ingest stopped", remedy=error.next_step or error.remedy)
            self._report(error)

    def _report(self, error: errors.FrazilError) -> None:
        """Report it; a defect that is met again and again, once."""
        if isinstance(error, errors.DefectError):
            if error.message in self._reported:
                return
            self._reported.add(error.message)
        self._reporting.report(error)

    def _record_counted(self, table: str, outcome: str, count: int) -> None:
        if outcome == CountedOutcome.RESOLVED_BYTES:
            self._metrics.add(ours.RESOLVED_BYTES, count, table=table)
        elif outcome == CountedOutcome.RESOLVED_MICROSECONDS:
            self._metrics.add(ours.RESOLVED_SECONDS, count / 1e6, table=table)
        else:
            self._metrics.add(ours.SOURCE_RECORDS, count, table=table, outcome=outcome)

    def _record_table(self, table: TableIngested) -> None:
        name = table.table
        add = self._metrics.add
        for operation, rows in table.operations.items():
            add(ours.SOURCE_EVENTS, rows, table=name, operation=operation.lower())
        add(ours.COMMITS, table=name, role=_INGEST, outcome="ok")
        add(ours.ROWS_WRITTEN, table.rows, table=name, role=_INGEST)
        add(ours.DATA_FILES, len(table.file_sizes), table=name, role=_INGEST)
        for size in table.file_sizes:
            self._metrics.observe(ours.FILE_SIZE, size)


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
    def stopped_partitions(self) -> Mapping[str, errors.FrazilError]:
        """As the ingest has them."""
        return self._inner.stopped_partitions

    @property
    def tables_to_copy(self) -> set[str]:
        """As the ingest has them."""
        return self._inner.tables_to_copy

    def follow_states(self, notify: Callable[[], None]) -> None:
        """As the ingest has them."""
        self._inner.follow_states(notify)

    def step(self) -> BatchReport | None:
        """The next changes, in a span."""
        with self._tracing.span(SpanName.BATCH, role=_INGEST):
            return self._traced(self._inner.step())

    def copy_tables(self) -> BatchReport | None:
        """A copy of tables, in a span."""
        with self._tracing.span(SpanName.BATCH, role=_INGEST):
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
                role=_INGEST,
                snapshot=each.snapshot_id or 0,
                rows=each.rows,
            )
        return report
