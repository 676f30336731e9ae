"""Recording and exposing metrics."""

from __future__ import annotations

import itertools
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import exposition
from prometheus_client.registry import Collector, CollectorRegistry

from frazil.telemetry.metric_names import (
    BUILD_INFO,
    METRICS,
    PIPELINE,
    Counter,
    Gauge,
    Histogram,
    Metric,
)
from frazil.telemetry.metric_names_foreign import FOREIGN_METRICS, ForeignNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric as Family

    from frazil.telemetry.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Exposition:
    """An answer to a scraper."""

    body: bytes
    content_type: str


class Metrics:
    """The metrics of one pipeline, in a registry of their own.

    A label that the metric does not have, or a value outside a closed set, is a mistake in our
    program and raises ValueError. Counters with closed labels start at 0; a gauge is not shown
    before it is set, because an unknown lag is not a lag of 0.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        release: str,
        redactor: Redactor,
        foreign: ForeignNames = ForeignNames.NONE,
    ) -> None:
        self._redactor = redactor
        self._pipeline = redactor.redact(pipeline)
        self._registry = CollectorRegistry()
        self._own = frozenset(metric.name for metric in METRICS)
        self._counters: dict[str, prometheus_client.Counter] = {}
        self._gauges: dict[str, prometheus_client.Gauge] = {}
        self._histograms: dict[str, prometheus_client.Histogram] = {}
        self._registered = (*METRICS, *FOREIGN_METRICS[foreign])
        for metric in self._registered:
            self._register(metric)
        prometheus_client.ProcessCollector(registry=self._registry)
        self.set(BUILD_INFO, 1, version=release, python=platform.python_version())

    def add(self, counter: Counter, amount: float = 1, /, **labels: str) -> None:
        """Let a counter grow."""
        checked = self._checked(counter, labels)
        registered = self._counters[counter.name]
        (registered.labels(**checked) if checked else registered).inc(amount)

    def set(self, gauge: Gauge, value: float, /, **labels: str) -> None:
        """Set the value of a gauge."""
        self._gauges[gauge.name].labels(**self._checked(gauge, labels)).set(value)

    def unset(self, gauge: Gauge, /, **labels: str) -> None:
        """Stop exposing a gauge whose value is unknown now."""
        self._gauges[gauge.name].remove_by_labels(self._checked(gauge, labels))

    def observe(self, histogram: Histogram, value: float, /, **labels: str) -> None:
        """Count one size or duration."""
        checked = self._checked(histogram, labels)
        registered = self._histograms[histogram.name]
        (registered.labels(**checked) if checked else registered).observe(value)

    def expose(self, accept: str = "") -> Exposition:
        """Everything recorded, in the text format or in OpenMetrics by the Accept header."""
        encode, content_type = exposition.choose_encoder(accept)
        return Exposition(encode(_WithoutCreated(self._registry)), content_type)

    def _register(self, metric: Metric) -> None:
        labels = [label.name for label in metric.labels]
        if metric.name in self._own:
            labels = [PIPELINE.name, *labels]
        arguments = (metric.name, metric.help, labels, "", "", metric.unit.value, self._registry)
        match metric:
            case Counter():
                self._counters[metric.name] = prometheus_client.Counter(*arguments)
                self._start_at_zero(metric)
            case Gauge():
                self._gauges[metric.name] = prometheus_client.Gauge(*arguments)
            case Histogram():
                self._histograms[metric.name] = prometheus_client.Histogram(
                    *arguments, buckets=metric.buckets
                )

    def _start_at_zero(self, counter: Counter) -> None:
        # A counter that appears with its first error hides that error from `increase()`.
        closed = [label.values for label in counter.labels if label.values is not None]
        if len(closed) < len(counter.labels):
            return
        names = [label.name for label in counter.labels]
        for values in itertools.product(*map(sorted, closed)):
            self.add(counter, 0, **dict(zip(names, values, strict=True)))

    def _checked(self, metric: Metric, labels: dict[str, str]) -> dict[str, str]:
        if metric not in self._registered:
            message = f"{metric.name} is not exported by this process"
            raise ValueError(message)
        if {label.name for label in metric.labels} != labels.keys():
            wanted = ", ".join(label.name for label in metric.labels)
            message = f"{metric.name} has the labels ({wanted}), not ({', '.join(labels)})"
            raise ValueError(message)
        checked = {PIPELINE.name: self._pipeline} if metric.name in self._own else {}
        for label in metric.labels:
            value = labels[label.name]
            if label.values is None:
                # Names come from third parties; a secret in one must not be published.
                value = self._redactor.redact(value)
            elif value not in label.values:
                message = f"{metric.name}: {label.name} is one of {sorted(label.values)}"
                raise ValueError(message)
            checked[label.name] = value
        return checked


class _WithoutCreated(Collector):
    """The registry less the creation times, which double the series and few scrapers read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family
