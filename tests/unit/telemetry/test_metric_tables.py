from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, TypeGuard

import pytest

from frazil.sources.protocol import CountedOutcome
from frazil.telemetry import metric_names, metric_names_foreign
from frazil.telemetry.metric_names import (
    METRICS,
    RECORD_OUTCOME,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metric,
    Unit,
)
from frazil.telemetry.metric_names_foreign import FOREIGN_METRICS, ForeignNames

if TYPE_CHECKING:
    from types import ModuleType

FOREIGN = [metric for metrics in FOREIGN_METRICS.values() for metric in metrics]
EVERY = [*METRICS, *FOREIGN]

# The published list; removing a name breaks dashboards.
PUBLISHED = {
    "frazil_source_events_total": ("table", "operation"),
    "frazil_source_records_total": ("table", "outcome"),
    "frazil_resolved_bytes_total": ("table",),
    "frazil_resolved_seconds_total": ("table",),
    "frazil_source_lag_bytes": (),
    "frazil_source_lag_seconds": (),
    "frazil_source_lag_records": (),
    "frazil_source_pending_events": (),
    "frazil_source_oldest_pending_seconds": (),
    "frazil_source_full": (),
    "frazil_source_dead_letters": (),
    "frazil_slot_retained_bytes": (),
    "frazil_slot_safe_wal_bytes": (),
    "frazil_commits_total": ("table", "role", "outcome"),
    "frazil_commit_duration_seconds": (),
    "frazil_rows_written_total": ("table", "role"),
    "frazil_data_files_total": ("table", "role"),
    "frazil_file_bytes": (),
    "frazil_pending_commits": (),
    "frazil_tables": ("phase",),
    "frazil_table_stopped": ("table", "code"),
    "frazil_batch_rows": (),
    "frazil_batch_duration_seconds": ("role",),
    "frazil_merge_duration_seconds": ("table", "phase"),
    "frazil_merge_rows_total": ("table", "action"),
    "frazil_merge_files_total": ("table",),
    "frazil_merge_lag_seconds": ("table",),
    "frazil_index_entries": ("table",),
    "frazil_index_bytes": ("table",),
    "frazil_index_repairs_total": ("reason",),
    "frazil_dead_letters_total": ("reason",),
    "frazil_lease_held": (),
    "frazil_backpressure_active": (),
    "frazil_errors_total": ("code",),
    "frazil_maintenance_jobs_total": ("table", "job", "outcome"),
    "frazil_maintenance_failures_total": ("table",),
    "frazil_maintenance_duration_seconds": ("job",),
    "frazil_maintenance_bytes_total": ("job", "direction"),
    "frazil_table_files": ("table", "class"),
    "frazil_table_dead_rows_ratio": ("table",),
    "frazil_table_snapshots": ("table",),
    "frazil_table_bytes": ("table",),
    "frazil_build_info": ("version", "python"),
}


def test_the_table_is_the_published_list() -> None:
    shown = {metric.name: tuple(label.name for label in metric.labels) for metric in METRICS}
    assert shown == PUBLISHED


def test_every_outcome_that_is_counted_has_a_value_of_the_label() -> None:
    # Bytes and times are no records, and have metrics of their own.
    others = {CountedOutcome.RESOLVED_BYTES, CountedOutcome.RESOLVED_MICROSECONDS}
    counted = frozenset(each.value for each in CountedOutcome if each not in others)
    assert RECORD_OUTCOME.values == counted


@pytest.mark.fault("U24")
def test_the_foreign_names_are_the_original_ones() -> None:
    merger = {metric.name for metric in FOREIGN_METRICS[ForeignNames.MERGER]}
    processor = {metric.name for metric in FOREIGN_METRICS[ForeignNames.PROCESSOR]}
    assert merger == {
        "merger_cycle_completed_total",
        "merger_cycle_duration_seconds",
        "merger_table_success_total",
        "merger_table_failure_total",
        "merger_table_duration_seconds",
        "merger_rows_scanned_total",
        "merger_rows_deduplicated_total",
        "merger_merge_duration_seconds",
        "merger_bytes_written_total",
    }
    assert processor == {
        f"kafscale_processor_{name}"
        for name in (
            "records_total",
            "batches_total",
            "errors_total",
            "write_latency_ms",
            "last_offset",
            "watermark_offset",
            "watermark_timestamp_ms",
            "lfs_resolved_total",
            "lfs_resolved_bytes_total",
            "lfs_resolution_errors_total",
            "lfs_resolution_duration_seconds",
        )
    }


def test_no_name_is_used_twice() -> None:
    names = [metric.name for metric in EVERY]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
def test_names_and_texts_follow_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
    assert metric.help.endswith(".")
    assert metric.help[0].isupper()
    assert metric.name.endswith("_total") == isinstance(metric, Counter)
    stem = metric.name.removesuffix("_total")
    if metric.unit is not Unit.NONE:
        assert stem.endswith(f"_{metric.unit.value}")
    labels = [label.name for label in metric.labels]
    assert len(labels) == len(set(labels))
    assert not {"pipeline", "le"} & set(labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_our_names_use_base_units(metric: Metric) -> None:
    assert metric.name.startswith("frazil_")
    assert metric.unit is not Unit.MILLISECONDS
    for unit in (Unit.SECONDS, Unit.BYTES):
        assert metric.name.removesuffix("_total").endswith(f"_{unit.value}") == (
            metric.unit is unit
        )
    for other in ("_ms", "_minutes", "_kb", "_mb", "_percent", "_millis"):
        assert other not in metric.name


@pytest.mark.parametrize(
    "metric", [m for m in EVERY if isinstance(m, Histogram)], ids=lambda metric: metric.name
)
def test_buckets_rise_and_are_few(metric: Histogram) -> None:
    assert list(metric.buckets) == sorted(set(metric.buckets))
    # Each is a series per table.
    assert len(metric.buckets) <= 13


@pytest.mark.parametrize("module", [metric_names, metric_names_foreign])
def test_every_tuple_of_buckets_carries_its_reason(module: ModuleType) -> None:
    source = inspect.getsource(module)
    lines = source.splitlines()
    used = {ast.unparse(k.value) for k in ast.walk(ast.parse(source)) if is_buckets(k)}
    assert used
    for name in used:
        (number,) = (at for at, line in enumerate(lines) if line.startswith(f"{name}: Final"))
        assert lines[number - 1].startswith("# ")
        assert lines[number - 1].endswith((".", ":"))


def is_buckets(node: ast.AST) -> TypeGuard[ast.keyword]:
    return isinstance(node, ast.keyword) and node.arg == "buckets"


def test_closed_labels_are_small_lowercase_names() -> None:
    labels: set[Label] = {label for metric in EVERY for label in metric.labels}
    for label in labels:
        if label.values is not None and label.name != "code":
            assert 0 < len(label.values) <= 10
            assert all(re.fullmatch(r"[a-z_]+", value) for value in label.values)


def test_gauges_are_the_only_metrics_that_can_fall() -> None:
    assert {type(metric) for metric in EVERY} == {Counter, Gauge, Histogram}
