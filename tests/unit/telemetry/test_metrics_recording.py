from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import prometheus_client
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from frazil.errors import FencedError, leaves
from frazil.telemetry.metric_names import (
    BATCH_ROWS,
    COMMITS,
    ERRORS,
    INDEX_BYTES,
    METRICS,
    SOURCE_EVENTS,
    SOURCE_LAG_BYTES,
    Counter,
    Gauge,
    Histogram,
    Label,
)
from frazil.telemetry.metric_names_foreign import (
    FOREIGN_METRICS,
    MERGER_CYCLE_COMPLETED,
    MERGER_CYCLE_DURATION,
    PROCESSOR_WRITE_LATENCY,
    ForeignNames,
)
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from tests.unit.telemetry.canaries import CANARY, CANARY_PART

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.telemetry.metric_names import Metric

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def build(foreign: ForeignNames = ForeignNames.NONE) -> Metrics:
    return Metrics("shop", release="1.2.3", redactor=Redactor([CANARY]), foreign=foreign)


def samples(metrics: Metrics) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    families = parse_text(metrics.expose().body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset(labels.items())))


def some_labels(metric: Metric) -> dict[str, str]:
    return {
        label.name: min(label.values) if label.values is not None else 'odd "name"\n\\ü'
        for label in metric.labels
    }


def record_everything(metrics: Metrics, foreign: ForeignNames) -> None:
    for metric in (*METRICS, *FOREIGN_METRICS[foreign]):
        labels = some_labels(metric)
        if isinstance(metric, Counter):
            metrics.add(metric, 2, **labels)
        elif isinstance(metric, Gauge):
            metrics.set(metric, 1.5, **labels)
        elif isinstance(metric, Histogram):
            metrics.observe(metric, 3.0, **labels)


@pytest.mark.parametrize("foreign", ForeignNames)
@pytest.mark.parametrize("accept", ["", "text/plain", OPENMETRICS])
def test_every_metric_is_exposed_in_both_formats(foreign: ForeignNames, accept: str) -> None:
    metrics = build(foreign)
    record_everything(metrics, foreign)
    shown = metrics.expose(accept)
    text = shown.body.decode()
    if accept == OPENMETRICS:
        assert shown.content_type.startswith("application/openmetrics-text; version=1.0.0")
        names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call] # theirs
    else:
        assert shown.content_type.startswith("text/plain; version=0.0.4")
        names = {family.name for family in parse_text(text)}
    expected = {m.name.removesuffix("_total") for m in (*METRICS, *FOREIGN_METRICS[foreign])}
    assert expected <= names
    assert all(name.startswith(("process_",)) for name in names - expected)
    assert "_created" not in text


def test_our_metrics_carry_the_pipeline_and_foreign_ones_do_not() -> None:
    metrics = build(ForeignNames.PROCESSOR)
    record_everything(metrics, ForeignNames.PROCESSOR)
    for name, labels in samples(metrics):
        if name.startswith("frazil_"):
            assert ("pipeline", "shop") in labels, name
        else:
            assert "pipeline" not in dict(labels), name


def test_recording_adds_sets_and_observes() -> None:
    metrics = build()
    metrics.add(SOURCE_EVENTS, 2, table="a", operation="insert")
    metrics.add(SOURCE_EVENTS, table="a", operation="insert")
    metrics.set(SOURCE_LAG_BYTES, 10)
    metrics.set(SOURCE_LAG_BYTES, 7)
    metrics.observe(BATCH_ROWS, 50)
    own = {"pipeline": "shop"}
    assert value(metrics, "frazil_source_events_total", table="a", operation="insert", **own) == 3
    assert value(metrics, "frazil_source_lag_bytes", **own) == 7
    assert value(metrics, "frazil_batch_rows_sum", **own) == 50
    assert value(metrics, "frazil_batch_rows_bucket", le="10.0", **own) == 0
    assert value(metrics, "frazil_batch_rows_bucket", le="100.0", **own) == 1


def test_a_gauge_is_absent_until_set_and_a_closed_counter_starts_at_zero() -> None:
    metrics = build()
    own = {"pipeline": "shop"}
    assert value(metrics, "frazil_source_lag_bytes", **own) is None
    for leaf in leaves():
        assert value(metrics, "frazil_errors_total", code=leaf.code, **own) == 0
    metrics.add(ERRORS, code=FencedError.code)
    assert value(metrics, "frazil_errors_total", code=FencedError.code, **own) == 1


def test_foreign_metrics_without_labels_are_recorded() -> None:
    metrics = build(ForeignNames.MERGER)
    metrics.add(MERGER_CYCLE_COMPLETED)
    metrics.observe(MERGER_CYCLE_DURATION, 4)
    assert value(metrics, "merger_cycle_completed_total") == 1
    assert value(metrics, "merger_cycle_duration_seconds_count") == 1


def test_foreign_names_are_absent_unless_configured() -> None:
    metrics = build()
    assert not any(name.startswith(("merger_", "kafscale_")) for name, _ in samples(metrics))
    with pytest.raises(ValueError, match="not exported"):
        metrics.observe(PROCESSOR_WRITE_LATENCY, 4, topic="orders")


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"table": "a", "role": "merge"},
        {"table": "a", "role": "merge", "outcome": "ok", "extra": "x"},
        {"table": "a", "role": "merge", "outcome": "perfect"},
        {"table": "a", "role": "cook", "outcome": "ok"},
    ],
)
def test_a_wrong_label_or_value_is_a_mistake_of_ours(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="frazil_commits_total"):
        build().add(COMMITS, **labels)


def test_a_metric_outside_the_table_is_a_mistake_of_ours() -> None:
    unknown = Counter(name="frazil_unknown_total", help="Unknown.", labels=(Label("x"),))
    with pytest.raises(ValueError, match="frazil_unknown_total"):
        build().add(unknown, x="y")


def test_build_and_process_are_described() -> None:
    metrics = build()
    labels = {"pipeline": "shop", "version": "1.2.3", "python": platform.python_version()}
    assert value(metrics, "frazil_build_info", **labels) == 1
    if sys.platform == "linux":
        resident = value(metrics, "process_resident_memory_bytes")
        assert resident is not None
        assert resident > 1_000_000


def test_two_pipelines_and_the_global_registry_do_not_meet() -> None:
    before = prometheus_client.generate_latest()
    first, second = build(), build()
    first.set(SOURCE_LAG_BYTES, 1)
    assert value(second, "frazil_source_lag_bytes", pipeline="shop") is None
    assert b"frazil" not in before
    assert b"frazil" not in prometheus_client.generate_latest()


def test_a_secret_in_a_label_is_not_published() -> None:
    metrics = Metrics(f"shop {CANARY}", release="1", redactor=Redactor([CANARY]))
    metrics.set(INDEX_BYTES, 1, table=f"public.{CANARY}")
    for accept in ("", OPENMETRICS):
        text = metrics.expose(accept).body.decode()
        assert CANARY_PART not in text
        assert 'table="public.***"' in text
