"""What an ingest learns under the names of KafScale's own processor, for dashboards drawn for it.

Recorded beside ours when its document is used. A record is counted once: the processor counts
what it reads again on every poll as dropped, and we do not read anything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from frazil import errors
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.protocol import CountedOutcome
from frazil.telemetry import metric_names_foreign as foreign

if TYPE_CHECKING:
    from frazil.hooks import Clock
    from frazil.ingest.report import BatchReport, TableIngested
    from frazil.telemetry.metrics import Metrics

_STAGES: Final = (
    (errors.LeaseLostError, "checkpoint"),
    (errors.SlotBusyError, "checkpoint"),
    (errors.FencedError, "checkpoint"),
    (errors.MalformedChangeError, "decode"),
    (errors.SourceError, "discover"),
    (errors.SchemaError, "schema"),
)
# The processor knows no other reason to leave a record out of its table.
_RESULTS: Final = {RejectReason.INVALID: "invalid"}
_NO_RECORD: Final = frozenset({RejectReason.GAP})


class ProcessorRecorder:
    """Records batches and errors of an ingest."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def record_report(self, report: BatchReport) -> None:
        """A batch that was recorded."""
        for table in report.tables:
            self._record_table(table)
        for (topic, reason), count in report.rejected.items():
            self._record_rejected(topic, RejectReason(reason), count)
        for (topic, outcome), count in report.counts.items():
            self._record_counted(topic, CountedOutcome(outcome), count)
        self._record_resolving(report)
        for error in (*report.failures.values(), *report.stopped.values()):
            self.record_error(error)

    def record_error(self, error: Exception) -> None:
        """By the step of the processor that would have met it."""
        stage = next((stage for kind, stage in _STAGES if isinstance(error, kind)), "sink")
        self._metrics.add(foreign.PROCESSOR_ERRORS, stage=stage)

    def _record_table(self, table: TableIngested) -> None:
        topic, metrics = table.table, self._metrics
        metrics.add(foreign.PROCESSOR_RECORDS, table.rows, topic=topic, result="written")
        metrics.add(foreign.PROCESSOR_BATCHES, topic=topic)
        metrics.observe(foreign.PROCESSOR_WRITE_LATENCY, table.seconds * 1000, topic=topic)
        start = table.start if isinstance(table.start, Mapping) else {}
        goal = table.goal if isinstance(table.goal, Mapping) else {}
        now_ms = int(self._clock.now().timestamp() * 1000)
        for name, position in goal.items():
            # The others are moved by whoever has their leases.
            if position != start.get(name):
                labels = {"topic": topic, "partition": name.removeprefix(f"{topic}/")}
                last = position - 1
                metrics.set(foreign.PROCESSOR_LAST_OFFSET, last, **labels)
                metrics.set(foreign.PROCESSOR_WATERMARK_OFFSET, last, **labels)
                metrics.set(foreign.PROCESSOR_WATERMARK_TIMESTAMP, now_ms, **labels)

    def _record_rejected(self, topic: str, reason: RejectReason, count: int) -> None:
        if reason in _NO_RECORD:
            return
        result = _RESULTS.get(reason, "dropped")
        self._metrics.add(foreign.PROCESSOR_RECORDS, count, topic=topic, result=result)
        if reason is RejectReason.BLOB:
            self._metrics.add(foreign.PROCESSOR_ERRORS, count, stage="lfs")
            self._metrics.add(foreign.PROCESSOR_LFS_ERRORS, count, topic=topic, reason="resolve")

    def _record_counted(self, topic: str, outcome: CountedOutcome, count: int) -> None:
        match outcome:
            case CountedOutcome.SKIPPED:
                labels = {"topic": topic, "result": "skipped_lfs"}
                self._metrics.add(foreign.PROCESSOR_RECORDS, count, **labels)
            case CountedOutcome.RESOLVED:
                self._metrics.add(foreign.PROCESSOR_LFS_RESOLVED, count, topic=topic)
            case CountedOutcome.RESOLVED_BYTES:
                self._metrics.add(foreign.PROCESSOR_LFS_RESOLVED_BYTES, count, topic=topic)
            case CountedOutcome.NULLED | CountedOutcome.RESOLVED_MICROSECONDS:
                # Its record is written; times are observed once for each payload.
                return

    def _record_resolving(self, report: BatchReport) -> None:
        for (topic, outcome), microseconds in report.counts.items():
            if outcome != CountedOutcome.RESOLVED_MICROSECONDS:
                continue
            payloads = report.counts.get((topic, CountedOutcome.RESOLVED), 0)
            # Tasks bring sums: the count and the sum are right, the distribution is by batch.
            for _ in range(payloads):
                mean = microseconds / payloads / 1e6
                self._metrics.observe(foreign.PROCESSOR_LFS_DURATION, mean, topic=topic)
