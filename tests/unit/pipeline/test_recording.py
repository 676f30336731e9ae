"""What the loop reports becomes metrics, events, spans and reports."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil import errors
from frazil.hooks import ManualClock
from frazil.ingest.report import BatchReport, TableIngested
from frazil.merge.report import MergeAction, MergeCommit, MergePhase, MergeReport
from frazil.model.key_index import Repair, RepairReason
from frazil.model.policy import LogFormat, LogLevel
from frazil.model.records.rejected_record import RejectReason
from frazil.pipeline.next_step import Fenced, Pause, RetriesExhausted, RetryAfter
from frazil.pipeline.recording.recorders import IngestRecorder, Recorder, TracedMerge
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.status.gauges import StatusMetrics
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from frazil.sources.protocol import CountedOutcome
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.metric_names_foreign import ForeignNames
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from tests.support.merge.scripted import TwinTable, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.telemetry.tracing import Attribute, SpanName

TABLE = "public.users"
COMMIT = MergeCommit(
    after=11,
    through=12,
    snapshot_id=77,
    rows_read=100,
    seconds=4.0,
    counts={
        MergeAction.INSERT: 30,
        MergeAction.UPDATE: 20,
        MergeAction.DELETE: 5,
        MergeAction.LATE: 2,
    },
    phases={MergePhase.PLAN: 1.0, MergePhase.WRITE: 2.0, MergePhase.COMMIT: 0.25},
    repairs=(Repair(RepairReason.FOREIGN_COMMIT, "snapshot 9 by another", 3, rebuilt=False),),
    rows_written=50,
    files_added=2,
    files_touched=7,
    bytes_written=4096,
    file_sizes=(3000, 1000),
    index_entries=1000,
    index_bytes=9300,
    schema_changes=("added email",),
    surplus_rows=1,
)


def _waiting(table: str) -> MergeStatus:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return MergeStatus(table=table, phase=MergeStep.WAITING, since=start, next_run=start)


class Reports:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def report(self, error: BaseException) -> None:
        self.errors.append(error)

    def close(self) -> None:
        """Nothing is waiting."""


class Stage:
    """A recorder and all that can be read from it."""

    def __init__(self, names: ForeignNames = ForeignNames.NONE) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.reports = Reports()
        metrics = Metrics("shop", release="1", redactor=Redactor(), foreign=names)
        self.own_metrics = metrics
        self.board = StatusBoard("shop", roles=("merge",), clock=self.clock)
        self.board.expect([TABLE, "public.orders"])
        self.statuses = {name: _waiting(name) for name in (TABLE, "public.orders")}
        self.board.follow_merges(lambda: tuple(self.statuses.values()))
        self.recorder = Recorder(metrics, self.reports, self.board, names=names)
        self.metrics = StatusMetrics(metrics, self.board)

    def value(self, name: str, **labels: str) -> float | None:
        own = {"pipeline": "shop"} if name.startswith("frazil_") else {}
        text = self.metrics.expose().body.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == {**own, **labels}:
                    return sample.value
        return None


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    written = io.StringIO()
    settings = LogSettings(format=LogFormat.JSON, level=LogLevel.DEBUG)
    undo = configure_logs(settings, Redactor(), stream=written)
    try:
        yield written
    finally:
        undo()


def events(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def report(*commits: MergeCommit) -> MergeReport:
    return replace(report_of("users"), commits=commits)


def test_a_commit_is_counted_by_what_it_did(stage: Stage) -> None:
    stage.recorder.record_report(TABLE, report(COMMIT, COMMIT), 9.0)
    merge = {"table": TABLE, "role": "merge"}
    assert stage.value("frazil_commits_total", **merge, outcome="ok") == 2
    assert stage.value("frazil_rows_written_total", **merge) == 100
    assert stage.value("frazil_data_files_total", **merge) == 4
    assert stage.value("frazil_file_bytes_count") == 4
    assert stage.value("frazil_file_bytes_sum") == 8000
    assert stage.value("frazil_merge_files_total", table=TABLE) == 14
    assert stage.value("frazil_merge_rows_total", table=TABLE, action="insert") == 60
    assert stage.value("frazil_merge_rows_total", table=TABLE, action="late") == 4
    assert stage.value("frazil_batch_rows_sum") == 200
    assert stage.value("frazil_batch_duration_seconds_sum", role="merge") == 8
    assert stage.value("frazil_commit_duration_seconds_sum") == 0.5
    write = {"table": TABLE, "phase": "write"}
    assert stage.value("frazil_merge_duration_seconds_sum", **write) == 4
    assert stage.value("frazil_index_entries", table=TABLE) == 1000
    assert stage.value("frazil_index_bytes", table=TABLE) == 9300
    assert stage.value("frazil_index_repairs_total", reason="foreign_commit") == 2
    assert stage.value("merger_table_success_total", table=TABLE) is None


def test_the_mergers_names_are_recorded_with_its_document() -> None:
    stage = Stage(ForeignNames.MERGER)
    stage.recorder.record_report(TABLE, report(COMMIT), 5.0)
    stage.recorder.record_error(TABLE, errors.CatalogError("x"), RetryAfter(1.0), 2.0)
    stage.recorder.record_cycle(8.0)
    assert stage.value("merger_cycle_completed_total") == 1
    assert stage.value("merger_cycle_duration_seconds_sum") == 8
    assert stage.value("merger_table_success_total", table=TABLE) == 1
    assert stage.value("merger_table_failure_total", table=TABLE) == 1
    assert stage.value("merger_table_duration_seconds_sum", table=TABLE) == 7
    assert stage.value("merger_rows_scanned_total") == 100
    assert stage.value("merger_rows_deduplicated_total") == 57
    assert stage.value("merger_merge_duration_seconds_sum") == 3
    assert stage.value("merger_bytes_written_total") == 4096


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.CommitConflictError("x"), "conflict"),
        (errors.CommitUnknownError("x"), "unknown"),
        (errors.FencedError("x"), "fenced"),
        (errors.LeaseLostError("x"), "fenced"),
        (errors.StorageError("x"), "failed"),
        (RuntimeError("x"), "failed"),
    ],
)
def test_a_failure_is_counted_by_its_code_and_outcome(
    stage: Stage, error: Exception, outcome: str
) -> None:
    stage.recorder.record_error(TABLE, error, RetryAfter(1.0), 0.5)
    labels = {"table": TABLE, "role": "merge", "outcome": outcome}
    assert stage.value("frazil_commits_total", **labels) == 1
    if isinstance(error, errors.FrazilError):
        assert stage.value("frazil_errors_total", code=error.code) == 1


def test_lag_counts_from_the_last_check_of_the_changelog_that_was_merged(
    stage: Stage,
) -> None:
    def lag() -> float | None:
        return stage.value("frazil_merge_lag_seconds", table=TABLE)

    stage.clock.advance(5)
    assert lag() is None
    stage.recorder.record_start(TABLE)
    stage.clock.advance(2)
    assert lag() is None
    stage.recorder.record_report(TABLE, report(), 2.0)
    # What came to the changelog while it ran is not merged.
    assert lag() == 2
    stage.clock.advance(50)
    assert lag() == 52
    stage.recorder.record_start(TABLE)
    stage.recorder.record_error(TABLE, errors.CatalogError("x"), RetryAfter(1.0), 1.0)
    stage.clock.advance(10)
    assert lag() == 62
    stage.recorder.record_start(TABLE)
    stage.recorder.record_report(TABLE, report(COMMIT), 1.0)
    assert lag() == 0
    assert stage.value("frazil_merge_lag_seconds", table="public.orders") is None
    # One that is not merged any more has no known lag.
    del stage.statuses[TABLE]
    assert lag() is None


def test_tables_that_are_held_are_counted_and_reported(stage: Stage) -> None:
    error = errors.OutOfOrderError("x")
    assert stage.value("frazil_tables", phase="waiting") == 2
    stage.recorder.record_error(TABLE, errors.CatalogError("x"), RetryAfter(1.0), 1.0)
    assert stage.reports.errors == []
    stage.recorder.record_error(TABLE, error, Pause(), 1.0)
    stage.statuses[TABLE] = replace(_waiting(TABLE), phase=MergeStep.STOPPED, error=error)
    assert stage.value("frazil_tables", phase="waiting") == 1
    assert stage.value("frazil_tables", phase="stopped") == 1
    assert stage.value("frazil_table_stopped", table=TABLE, code=error.code) == 1
    assert stage.reports.errors == [error]
    stage.statuses[TABLE] = _waiting(TABLE)
    assert stage.value("frazil_table_stopped", table=TABLE, code=error.code) == 0


def test_a_defect_of_a_table_in_a_batch_is_reported_once(stage: Stage) -> None:
    defect, conflict = errors.DefectError("x"), errors.CommitConflictError("y")
    recorder = IngestRecorder(stage.own_metrics, stage.reports, stage.board)
    for name in ("first", "second"):
        recorder.record_report(
            BatchReport(
                batch=name,
                tables=(),
                acknowledged="0/1",
                seconds=1.0,
                failures={TABLE: defect},
                stopped={"0": conflict},
            )
        )
    # What is no defect is reported whenever it stops something.
    assert stage.reports.errors == [defect, conflict, conflict]
    assert stage.value("frazil_errors_total", code=defect.code) == 2


def test_a_commit_is_one_event_with_its_facts(stage: Stage, lines: io.StringIO) -> None:
    stage.recorder.record_report(TABLE, report(COMMIT), 4.0)
    committed, repaired, schema, surplus = events(lines)
    assert committed["event"] == "merge committed"
    facts = {"table": TABLE, "batch": "12", "snapshot": "77", "rows": 100, "insert": 30, "late": 2}
    assert facts.items() <= committed.items()
    assert (repaired["event"], repaired["reason"]) == ("index repaired", "foreign_commit")
    assert (schema["event"], schema["change"]) == ("schema changed", "added email")
    assert (surplus["event"], surplus["level"]) == ("surplus rows removed", "warning")


def test_nothing_to_merge_is_logged_at_debug_level_only(stage: Stage, lines: io.StringIO) -> None:
    stage.recorder.record_report(TABLE, report(), 0.1)
    stage.recorder.record_cycle(0.1)
    assert [(each["event"], each["level"]) for each in events(lines)] == [
        ("nothing to merge", "debug"),
        ("merge cycle ended", "debug"),
    ]


def test_each_step_after_a_failure_is_an_event_of_its_own(stage: Stage, lines: io.StringIO) -> None:
    error = errors.CommitConflictError("it moved", table=TABLE, position="12")
    for step in (RetryAfter(2.0), Pause(), RetriesExhausted(), Fenced()):
        stage.recorder.record_error(TABLE, error, step, 1.0)
    logged = events(lines)
    assert [(each["event"], each["level"]) for each in logged] == [
        ("merge failed and is tried again", "warning"),
        ("table paused, action required", "error"),
        ("merge failed and its attempts are used up", "error"),
        ("merge is fenced by another process", "warning"),
    ]
    for each in logged:
        assert (each["code"], each["position"], each["table"]) == ("FRZ-LAK-05", "12", TABLE)


def test_an_unforeseen_error_is_logged_with_its_frames_and_without_its_text(
    stage: Stage, lines: io.StringIO
) -> None:
    canary = "-".join(("canary", "of", "a", "row"))

    def fail() -> None:
        try:
            int(canary)
        except ValueError as cause:
            raise RuntimeError(canary) from cause

    with pytest.raises(RuntimeError) as raised:
        fail()
    stage.recorder.record_error(TABLE, raised.value, Pause(), 1.0)
    (logged,) = events(lines)
    assert logged["event"] == "merge failed unexpectedly"
    assert logged["error"] == "RuntimeError"
    assert "test_recording.py" in str(logged["frames"])
    assert "ValueError" in str(logged["frames"])
    assert canary not in lines.getvalue()


class Spans:
    """Keeps the spans that were opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, dict[str, Attribute]]] = []

    @contextlib.contextmanager
    def span(self, name: SpanName, /, **attributes: Attribute) -> Iterator[None]:
        self.opened.append((name.value, attributes))
        yield

    def record(self, name: SpanName, seconds: float, /, **attributes: Attribute) -> None:
        assert seconds > 0
        self.opened.append((name.value, attributes))

    def close(self) -> None:
        """Nothing is waiting."""


def test_a_merge_runs_in_a_span_and_its_events_name_the_table(lines: io.StringIO) -> None:
    spans = Spans()
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    table = TwinTable("users", 1, clock=clock)
    table.before_batch = lambda: get_logger("frazil.test").info("inside")
    merged = TracedMerge(TABLE, table, spans).merge(stop=lambda: False)
    assert len(merged.commits) == 1
    whose = {"table": TABLE, "role": "merge"}
    assert spans.opened == [
        ("frazil.batch", whose),
        ("frazil.commit", {**whose, "snapshot": 100, "rows": 10}),
    ]
    (logged,) = events(lines)
    assert logged["table"] == TABLE


def test_records_that_became_dead_letters_are_counted_by_reason(stage: Stage) -> None:
    recorder = IngestRecorder(stage.own_metrics, stage.reports, stage.board)
    rejected = {("orders", RejectReason.INVALID.value): 3, ("users", RejectReason.BLOB.value): 1}
    for name in "ab":
        recorder.record_report(
            BatchReport(batch=name, tables=(), acknowledged="0/1", seconds=1.0, rejected=rejected)
        )
    assert stage.value("frazil_dead_letters_total", reason="invalid") == 6
    assert stage.value("frazil_dead_letters_total", reason="blob") == 2


def orders_batch() -> BatchReport:
    """A topic of which this process moved partition 0, and what else happened in its batch."""
    table = TableIngested(
        table="orders",
        changelog="lake.orders",
        start={"orders/0": 10, "orders/1": 5},
        goal={"orders/0": 42, "orders/1": 5},
        operations={"INSERT": 28},
        seconds=0.25,
    )
    return BatchReport(
        batch="a",
        tables=(table,),
        acknowledged={"orders/0": 42},
        seconds=1.0,
        rejected={
            ("orders", RejectReason.INVALID.value): 2,
            ("orders", RejectReason.BLOB.value): 1,
            ("orders", RejectReason.GAP.value): 1,
        },
        counts={
            ("orders", CountedOutcome.SKIPPED): 1,
            ("orders", CountedOutcome.NULLED): 3,
            ("orders", CountedOutcome.RESOLVED): 4,
            ("orders", CountedOutcome.RESOLVED_BYTES): 4096,
            ("orders", CountedOutcome.RESOLVED_MICROSECONDS): 800_000,
        },
        stopped={"orders/2": errors.MalformedChangeError("a segment is damaged")},
    )


def test_what_is_only_counted_about_records_is_a_metric(stage: Stage) -> None:
    IngestRecorder(stage.own_metrics, stage.reports, stage.board).record_report(orders_batch())
    shown = {
        outcome: stage.value("frazil_source_records_total", table="orders", outcome=outcome)
        for outcome in ("skipped", "nulled", "resolved")
    }
    assert shown == {"skipped": 1, "nulled": 3, "resolved": 4}
    assert stage.value("frazil_resolved_bytes_total", table="orders") == 4096
    assert stage.value("frazil_resolved_seconds_total", table="orders") == 0.8
    assert stage.value("kafscale_processor_batches_total", topic="orders") is None


@pytest.mark.fault("U24")
def test_the_processors_names_are_recorded_with_its_document() -> None:
    stage = Stage(ForeignNames.PROCESSOR)
    recorder = IngestRecorder(
        stage.own_metrics,
        stage.reports,
        stage.board,
        names=ForeignNames.PROCESSOR,
        clock=stage.clock,
    )
    recorder.record_report(orders_batch())
    recorder.record_error(errors.LeaseLostError("gone"), RetryAfter(1.0))

    def value(name: str, **labels: str) -> float | None:
        return stage.value(f"kafscale_processor_{name}", **labels)

    records = {
        result: value("records_total", topic="orders", result=result)
        for result in ("written", "dropped", "invalid", "skipped_lfs")
    }
    assert records == {"written": 28, "dropped": 1, "invalid": 2, "skipped_lfs": 1}
    assert value("batches_total", topic="orders") == 1
    assert value("write_latency_ms_sum", topic="orders") == 250
    moved = {"topic": "orders", "partition": "0"}
    assert value("last_offset", **moved) == value("watermark_offset", **moved) == 41
    assert value("watermark_timestamp_ms", **moved) == stage.clock.now().timestamp() * 1000
    # Another process has its lease.
    assert value("last_offset", topic="orders", partition="1") is None
    assert value("lfs_resolved_total", topic="orders") == 4
    assert value("lfs_resolved_bytes_total", topic="orders") == 4096
    took = "lfs_resolution_duration_seconds"
    assert value(f"{took}_count", topic="orders") == 4
    assert value(f"{took}_sum", topic="orders") == pytest.approx(0.8)
    assert value(f"{took}_bucket", topic="orders", le="0.1") == 0
    assert value(f"{took}_bucket", topic="orders", le="0.25") == 4
    assert value("lfs_resolution_errors_total", topic="orders", reason="resolve") == 1
    stages = {stage: value("errors_total", stage=stage) for stage in ("decode", "lfs")}
    assert stages == {"decode": 1, "lfs": 1}
    assert value("errors_total", stage="checkpoint") == 1
