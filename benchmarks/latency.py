"""How long a change takes from its commit at the source until readers of the mirror see it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median, quantiles
from typing import TYPE_CHECKING

from benchmarks.support.bench_lake import print_progress
from benchmarks.support.process_tree import measure_call
from benchmarks.support.report import Figure, Report
from benchmarks.support.setting import Size
from benchmarks.support.source_changes import ROWS_A_TRANSACTION, TABLES, SourceChanges
from benchmarks.support.source_server import open_source_server
from frazil.hooks import SystemClock
from frazil.model.postgres.lsn import parse_lsn
from frazil.pipeline.build_run import RunContext, build_run
from frazil.pipeline.library import unobserved
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.status.board import StatusBoard

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.support.process_tree import Usage
    from benchmarks.support.setting import Setting
    from benchmarks.support.source_server import SourceServer
    from frazil.ingest.report import BatchReport
    from frazil.merge.report import MergeReport
    from frazil.pipeline.build_run import PipelineRun

RATE = 1_000
_PIPELINE = "latency"
# Aimed for; a minute must hold in any case.
_P50_GOAL, _P99_GOAL, _MUST = 5.0, 10.0, 60.0
_PATIENCE_SECONDS = 120.0
_LAYOUT = (
    "One process ingests every second and merges what came, three tables of 100,000 rows; a writer "
    "commits ten transactions of 100 row changes a second, each on all three tables. A transaction "
    "is seen when the last of its three mirrors has committed a merge that contains it. The clock "
    "starts when its commit has returned to the writer. Mirrors are compared with their tables."
)


@dataclass(slots=True)
class _Merged:
    """When a mirror had everything up to a position; both grow."""

    positions: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def seen(self, position: int) -> float | None:
        """When this position was first in the mirror."""
        found = bisect_left(self.positions, position)
        return self.times[found] if found < len(self.times) else None


class _Watching(StatusBoard):
    """Notes when what is visible."""

    def __init__(self) -> None:
        super().__init__(_PIPELINE, roles=("ingest", "merge"))
        self.mirrors: defaultdict[str, _Merged] = defaultdict(_Merged)
        self.phases: defaultdict[str, list[float]] = defaultdict(list)
        self._goals: dict[tuple[str, int], int] = {}

    def record_batch(self, report: BatchReport) -> None:
        """Where the snapshots of the changelogs are in the source's log."""
        for each in report.tables:
            if each.snapshot_id is not None:
                key = each.table.partition(".")[2], each.snapshot_id
                self._goals[key] = parse_lsn(str(each.goal))
        if not report.is_copy:
            self.phases["ingest of a batch"].append(report.seconds)
            self.phases["rows of a batch"].append(report.rows)
        super().record_batch(report)

    def record_merge(self, mirror: str, report: MergeReport) -> None:
        """What the mirror has now."""
        now = SystemClock().monotonic()
        table = mirror.rpartition(".")[2]
        for commit in report.commits:
            position = self._goals.get((table, commit.through))
            if position is not None:
                self.mirrors[table].positions.append(position)
                self.mirrors[table].times.append(now)
            self.phases["merge of a table"].append(commit.seconds)
        super().record_merge(mirror, report)


@dataclass(frozen=True, slots=True)
class _Written:
    position: int
    at: float


def measure(setting: Setting) -> Report:
    """A thousand changes a second for two minutes."""
    rows = setting.pick(small=2_000, full=100_000)
    seconds = setting.pick(small=3.0, full=120.0)
    with setting.open_lake() as lake, open_source_server(lake) as source:
        changes = SourceChanges(source, rows=rows)
        board = _Watching()
        config = source.config(_PIPELINE, [f"public.{name}" for name in TABLES], ingest="1s")
        stop = StopRequest()
        run = build_run(RunContext(lake.session, config, unobserved(config), board, stop))
        written, usage = measure_call(
            lambda: _run(run, source, changes, board, stop=stop, seconds=seconds)
        )
        changes.check(f"lake.{_PIPELINE}")
    latencies = sorted(_latencies(written, board))
    report = _report(latencies, board, usage, seconds)
    if setting.size is Size.FULL and latencies[-1] >= _MUST:
        report = replace(report, broken=("some changes took more than a minute",))
    return report


def _run(
    run: PipelineRun,
    source: SourceServer,
    changes: SourceChanges,
    board: _Watching,
    *,
    stop: threading.Event,
    seconds: float,
) -> list[_Written]:
    running = threading.Thread(target=run.loop.run, daemon=True)
    with run:
        running.start()
        try:
            _wait(lambda: all(bool(board.mirrors[name].times) for name in TABLES))
            written = _write(source, changes, seconds)
            last = written[-1].position
            _wait(lambda: all(board.mirrors[name].seen(last) is not None for name in TABLES))
        finally:
            stop.set()
            running.join()
    return written


def _write(source: SourceServer, changes: SourceChanges, seconds: float) -> list[_Written]:
    clock, written = SystemClock(), []
    began = clock.monotonic()
    pause = ROWS_A_TRANSACTION / RATE
    with source.connect() as connection:
        for number in range(int(seconds / pause)):
            clock.sleep(max(0.0, began + number * pause - clock.monotonic()))
            changes.write(ROWS_A_TRANSACTION)
            at = clock.monotonic()
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            if row is None:
                raise AssertionError("no answer")
            written.append(_Written(parse_lsn(row[0]), at))
    print_progress(
        f"latency: {len(written) * ROWS_A_TRANSACTION / (clock.monotonic() - began):,.0f} rows/s"
    )
    return written


def _wait(is_there: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    while not is_there():
        if clock.monotonic() > deadline:
            raise AssertionError("the mirrors did not catch up")
        clock.sleep(0.05)


def _latencies(written: list[_Written], board: _Watching) -> list[float]:
    found = []
    for each in written:
        times = [board.mirrors[name].seen(each.position) for name in TABLES]
        found.append(max(time for time in times if time is not None) - each.at)
    return found


def _report(latencies: list[float], board: _Watching, usage: Usage, seconds: float) -> Report:
    hundredths = quantiles(latencies, n=100, method="inclusive")
    what = f"source commit to mirror, {RATE:,} changes/s for {seconds:.0f} s"
    figures = (
        Figure(f"{what}, p50", hundredths[49], "s", f"under {_P50_GOAL:g}", at_most=_P50_GOAL),
        Figure(f"{what}, p99", hundredths[98], "s", f"under {_P99_GOAL:g}", at_most=_P99_GOAL),
        Figure(f"{what}, longest", latencies[-1], "s", f"under {_MUST:g}", at_most=_MUST),
    )
    facts = {
        "layout": _LAYOUT,
        "medians": {name: round(median(values), 3) for name, values in board.phases.items()},
        "batches": len(board.phases["ingest of a batch"]),
        "merges": len(board.phases["merge of a table"]),
        "cpu_seconds": round(usage.cpu_seconds, 1),
    }
    return Report((), figures, facts)
