"""Ingest and merges in one process, with a writer at the source that keeps them busy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.support.bench_lake import print_progress
from benchmarks.support.process_tree import Usage, measure_call
from frazil.hooks import SystemClock
from frazil.merge.merger import Merger
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.loops.merge_loop import MergeLoop
from frazil.pipeline.tables.merge_settings import load_merges

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.support.source_changes import SourceChanges
    from benchmarks.support.source_server import SourceServer
    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.merge.report import MergeReport
    from frazil.pipeline.next_step import NextStep

LIVE_RATE_MUST = 10_000
# A moment's work for the writer, and how far it may be ahead of the mirrors: some merges' worth,
# so that no worker ever waits for it.
_CHUNK, _MOST_AHEAD = 5_000, 400_000
# The last changes must be merged in this time.
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Lived:
    """What came of it: changes that went all the way, and what that took."""

    changes: int
    usage: Usage
    facts: dict[str, object]

    @property
    def rate(self) -> float:
        """Changes a second, from the first that was written to the last that was merged."""
        return self.changes / self.usage.seconds


@dataclass(slots=True)
class _Counts:
    """How far each thread is; each number has one thread that moves it."""

    written: int = 0
    ingested: int = 0
    merged: int = 0
    batches: int = 0
    merges: int = 0
    most_behind: int = 0
    errors: list[Exception] = field(default_factory=list)

    def take_batch(self, report: BatchReport) -> None:
        self.batches += 1
        self.ingested += report.rows

    def take_merge(self, _table: str, report: MergeReport, _seconds: float) -> None:
        self.merges += len(report.commits)
        self.merged += report.rows_read
        self.most_behind = max(self.most_behind, self.written - self.merged)

    def take_ingest_error(self, error: Exception, _step: NextStep) -> None:
        self.errors.append(error)

    def take_merge_error(
        self, _table: str, error: Exception, _step: NextStep, _seconds: float
    ) -> None:
        self.errors.append(error)


def run_live(
    source: SourceServer, config: Config, changes: SourceChanges, *, seconds: float
) -> Lived:
    """Write for so many seconds, and go on until everything is merged."""
    session, lake = source.lake.session, source.lake.lake
    mergers = {
        mirror: Merger(session, lake, settings)
        for mirror, settings in load_merges(lake, config, ()).items()
    }
    for merger in mergers.values():
        # What came before this part is not its work.
        merger.merge()
    source.lake.settle()
    counts, stop = _Counts(), StopRequest()
    server = source.cpu_seconds
    ingest = build_ingest_loop(
        session,
        config,
        build_capture(session, config),
        stop=stop,
        on_report=counts.take_batch,
        on_error=counts.take_ingest_error,
    )
    merge = MergeLoop(
        mergers,
        interval=config.merge.interval,
        stop=stop,
        on_report=counts.take_merge,
        on_error=counts.take_merge_error,
    )
    _, usage = measure_call(
        lambda: _run_together(
            stop,
            ingest.run,
            merge.run,
            write=lambda: _write(changes, counts, seconds),
            is_done=lambda: bool(counts.errors) or counts.merged >= counts.written,
        )
    )
    if counts.errors or counts.merged != counts.written:
        message = f"written {counts.written}, merged {counts.merged}, failed {counts.errors}"
        raise AssertionError(message)
    facts: dict[str, object] = {
        "changes": counts.written,
        "batches": counts.batches,
        "merges": counts.merges,
        "most_changes_behind": counts.most_behind,
        "cpu_seconds": round(usage.cpu_seconds, 1),
        "server_cpu_seconds": round(source.cpu_seconds - server, 1),
    }
    print_progress(f"live: {facts}")
    return Lived(counts.written, usage, facts)


def _run_together(
    stop: threading.Event,
    *loops: Callable[[], object],
    write: Callable[[], None],
    is_done: Callable[[], bool],
) -> None:
    threads = [threading.Thread(target=each, daemon=True) for each in loops]
    for thread in threads:
        thread.start()
    clock = SystemClock()
    try:
        write()
        deadline = clock.monotonic() + _PATIENCE_SECONDS
        while not is_done() and clock.monotonic() < deadline:
            clock.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(changes: SourceChanges, counts: _Counts, seconds: float) -> None:
    clock = SystemClock()
    until = clock.monotonic() + seconds
    while clock.monotonic() < until and not counts.errors:
        if counts.written - counts.merged > _MOST_AHEAD:
            clock.sleep(0.05)
            continue
        changes.write(_CHUNK)
        counts.written += _CHUNK
