"""Gauges show what the status shows, at the moment of a scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.pipeline.status.values import Phase
from frazil.sources.health import HealthFacts
from frazil.telemetry import metric_names as names

if TYPE_CHECKING:
    from frazil.pipeline.status.board import StatusBoard
    from frazil.pipeline.status.values import PipelineStatus, SourceStatus
    from frazil.telemetry.metrics import Exposition, Metrics

# Gauges of what sources say of themselves, by part and field.
_DETAILS = (
    (names.SLOT_RETAINED_BYTES, "slot", "retained_bytes"),
    (names.SLOT_SAFE_WAL_BYTES, "slot", "safe_bytes"),
    (names.SOURCE_PENDING_EVENTS, "pending", "events"),
    (names.SOURCE_OLDEST_PENDING_SECONDS, "pending", "oldest_seconds"),
    (names.SOURCE_FULL, "pending", "is_full"),
    (names.SOURCE_DEAD_LETTERS, "dead_letters", "count"),
)


class StatusMetrics:
    """What is scraped: everything recorded, and the state of the pipeline now."""

    def __init__(self, metrics: Metrics, board: StatusBoard) -> None:
        self._metrics = metrics
        self._board = board
        self._stopped: set[tuple[str, str]] = set()
        self._lagging: set[str] = set()

    def expose(self, accept: str = "") -> Exposition:
        """All of it, in the format that the header names."""
        self._show(self._board.now())
        return self._metrics.expose(accept)

    def _show(self, status: PipelineStatus) -> None:
        for phase in Phase:
            count = sum(each.phase is phase for each in status.tables)
            self._metrics.set(names.TABLES, count, phase=phase.value)
        self._show_lags(status)
        self._show_stopped(status)
        if status.source is not None:
            self._show_source(status.source)

    def _show_lags(self, status: PipelineStatus) -> None:
        """A lag that is unknown now is not shown as it was."""
        lags = {
            each.mirror: each.lag_seconds
            for each in status.tables
            if each.mirror is not None and each.lag_seconds is not None
        }
        for mirror in self._lagging - lags.keys():
            self._metrics.unset(names.MERGE_LAG_SECONDS, table=mirror)
        for mirror, lag in lags.items():
            self._metrics.set(names.MERGE_LAG_SECONDS, lag, table=mirror)
        self._lagging = set(lags)

    def _show_stopped(self, status: PipelineStatus) -> None:
        stopped = {
            (each.table, each.trouble.code or names.DEFECT)
            for each in status.stopped
            if each.trouble is not None
        }
        for table, code in self._stopped | stopped:
            is_stopped = (table, code) in stopped
            self._metrics.set(names.TABLE_STOPPED, is_stopped, table=table, code=code)
        self._stopped |= stopped

    def _show_source(self, source: SourceStatus) -> None:
        health = source.health or HealthFacts()
        shown = (
            (names.SOURCE_LAG_BYTES, source.lag_bytes),
            (names.SOURCE_LAG_SECONDS, source.lag_seconds),
            (
                names.SOURCE_LAG_RECORDS,
                health.lag_records,
            ),
            (names.LEASE_HELD, source.leases_held),
            (names.PENDING_COMMITS, source.pending_commits),
            (names.BACKPRESSURE_ACTIVE, int(source.is_paused)),
            *((gauge, health.details.get(part, {}).get(name)) for gauge, part, name in _DETAILS),
        )
        for gauge, value in shown:
            if not isinstance(value, int | float):
                self._metrics.unset(gauge)
            else:
                self._metrics.set(gauge, value)
