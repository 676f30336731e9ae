"""From the configuration to a process that runs: ingest, merges, or both.

Nothing runs here; objects are made and connected. An ingest loop calls the Ingester, a merge loop
the Mergers; RunLoop runs both, and starts the ingest again after it required action. Threads next
to them keep the status up to date. An error goes to the recorders; whether it is retried, pauses a
table or ends the process is decided by ``next_step.py`` from the table in ``recovery.py``. A second
process is on standby: it neither ingests nor merges until it has the claim.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import is_alive
from frazil.errors import ConfigError, FrazilError
from frazil.hooks import SystemClock
from frazil.model.marker import MarkerRole
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.chore_thread import chore_thread
from frazil.pipeline.loops.loop import Intervals
from frazil.pipeline.loops.maintenance_loop import WithMaintenance
from frazil.pipeline.loops.merge_loop import MergeLoop
from frazil.pipeline.loops.periodic_thread import PeriodicThread
from frazil.pipeline.loops.run_loop import RunLoop
from frazil.pipeline.maintenance import build_maintenance_loop
from frazil.pipeline.merge_requests import MergeRequests
from frazil.pipeline.mergers import Mergers
from frazil.pipeline.recording.recorders import IngestRecorder, Recorder
from frazil.pipeline.status.lake_watch import LakeWatch
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.kept_tables import load_kept_tables
from frazil.pipeline.tables.merge_settings import NOTHING_CAPTURED, merge_tables, retry_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.maintain.compaction.landing_queue import LandingQueue
    from frazil.model.policy import JobKind
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.loops.ingest_loop import IngestLoop
    from frazil.pipeline.loops.loop import Loop, StopRequest
    from frazil.pipeline.status.board import StatusBoard
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror
    from frazil.pipeline.tables.captured_names import CapturedNames
    from frazil.pipeline.telemetry import Observed

# Often enough that lag in seconds is known to the second; a query of two functions and one row.
HEALTH_SECONDS = 1.0
TICK_SECONDS = 1.0

INGEST_ROLE, MERGE_ROLE = (MarkerRole.INGEST.value,), (MarkerRole.MERGE.value,)
MAINTAIN_ROLE = ("maintain",)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every role is built on."""

    session: Session
    config: Config
    observed: Observed
    board: StatusBoard
    stop: StopRequest


class PipelineRun:
    """Ingest, merges or both, ready to run once; in its block, threads keep the status fresh."""

    def __init__(
        self,
        context: RunContext,
        loop: Loop,
        *,
        capture: Capture | None = None,
        requests: MergeRequests | None = None,
        threads: Sequence[PeriodicThread] = (),
    ) -> None:
        self.loop = loop
        self.board = context.board
        self.capture = capture
        self._requests = requests
        self._threads = (
            PeriodicThread("status", context.board.tick, seconds=TICK_SECONDS),
            _lake_thread(context),
            *threads,
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for thread in self._threads:
            self._stack.enter_context(thread)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if self.capture is not None:
            # Last of all: a process on standby begins to merge at once.
            self.capture.claim.release()

    @property
    def merge_statuses(self) -> tuple[MergeStatus, ...]:
        """The state of every mirror; none when this process does not merge."""
        return () if self._requests is None else self._requests.statuses

    def reload(self, config: Config) -> None:
        """Continue with these intervals, and retry what required action: an operator has acted."""
        if self.capture is not None:
            self.capture.ingester.retry_paused()
        self.loop.reload(
            Intervals(config.ingest.interval, config.merge.interval, config.maintenance.interval)
        )


def build_run(context: RunContext) -> PipelineRun:
    """Ingest and merges in one process; without a source, the merges."""
    if context.config.source is None:
        return build_merge_run(context, maintains=True)
    capture = _capture_on_board(context)
    claim = capture.claim
    captured = load_captured_mirrors(capture.lake, context.config)
    merges = _Merges(context, tuple(captured), captured, may_start=lambda: claim.may_merge)
    claim.on_turn = merges.loop.wake

    def take(report: BatchReport) -> None:
        merges.requests.take(report, _names_or_none(capture), capture.lake)

    def catch_up() -> None:
        merges.requests.take_over(claim.turns, capture.lake, context.config)

    def new_ingest() -> IngestLoop:
        return _ingest_loop(context, capture, also=take, on_step=catch_up)

    session = context.session
    both = RunLoop(new_ingest, merges.loop, stop=context.stop, is_alive=lambda: is_alive(session))
    loop = _maintained(
        context, both, may_start=lambda: claim.may_merge, queue_of=merges.mergers.queue_of
    )
    threads = _source_threads(context, capture)
    return PipelineRun(context, loop, capture=capture, requests=merges.requests, threads=threads)


def build_ingest_run(
    context: RunContext, *, also: Callable[[BatchReport], None] | None = None
) -> PipelineRun:
    """Ingest alone; ``also`` is given every batch."""
    capture = _capture_on_board(context)
    loop = _ingest_loop(context, capture, also=also)
    threads = _source_threads(context, capture)
    return PipelineRun(context, loop, capture=capture, threads=threads)


def build_maintain_run(
    context: RunContext, chosen: Sequence[str] = (), kinds: Collection[JobKind] = ()
) -> PipelineRun:
    """Maintenance alone, of the tables that are chosen or of all.

    Raises ConfigError for a name that is none of them.
    """
    if chosen:
        load_kept_tables(Lake(context.session, context.config.catalog.name), context.config, chosen)
    loop = build_maintenance_loop(
        context.session,
        context.config,
        board=context.board,
        observed=context.observed,
        stop=context.stop,
        tables=chosen,
        kinds=kinds,
    )
    return PipelineRun(context, loop)


def _maintained(
    context: RunContext,
    loop: Loop,
    *,
    queue_of: Callable[[str], LandingQueue],
    may_start: Callable[[], bool] = lambda: True,
) -> Loop:
    """The loop with maintenance beside it, where the configuration wants that."""
    if not context.config.maintenance.enabled:
        return loop
    maintenance = build_maintenance_loop(
        context.session,
        context.config,
        board=context.board,
        observed=context.observed,
        stop=context.stop,
        queue_of=queue_of,
        may_start=may_start,
    )
    return WithMaintenance(loop, maintenance)


def build_merge_run(
    context: RunContext,
    chosen: Sequence[str] = (),
    *,
    waits: bool = False,
    maintains: bool = False,
) -> PipelineRun:
    """Merges alone, of the mirrors that are chosen or of all; or with maintenance beside them.

    Without a source the catalog is not queried yet: one that is away when a process starts is
    treated like one that goes away later. With a source only the ledger knows the tables; a run
    that ``waits`` for tables that are not captured yet finds them there later.
    """
    config = context.config
    if config.source is None:
        merges = _Merges(context, merge_tables(config, chosen), NOTHING_CAPTURED)
        loop: Loop = merges.loop
        if maintains:
            loop = _maintained(context, merges.loop, queue_of=merges.mergers.queue_of)
        return PipelineRun(context, loop, requests=merges.requests)
    lake = Lake(context.session, config.catalog.name)
    captured = load_captured_mirrors(lake, config)
    try:
        mirrors = merge_tables(config, chosen, captured=captured)
    except ConfigError:
        if chosen or not waits:
            raise
        mirrors = ()
    merges = _Merges(context, mirrors, captured)
    threads = []
    if not chosen:
        refresh = partial(merges.requests.refresh, lake, config)
        seconds = config.merge.interval.total_seconds()
        threads = [PeriodicThread("new tables", refresh, seconds=seconds)]
    return PipelineRun(context, merges.loop, requests=merges.requests, threads=threads)


class _Merges:
    """The merge loop over these mirrors, and requests for more."""

    def __init__(
        self,
        context: RunContext,
        mirrors: Sequence[str],
        captured: Mapping[str, CapturedMirror],
        *,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        config, observed, board = context.config, context.observed, context.board
        recorder = Recorder(observed.metrics, observed.reporting, board, names=observed.names)
        self.mergers = mergers = Mergers(context.session, config, observed.tracing)
        mergers.learn(captured)
        self.loop = MergeLoop(
            {name: mergers.merge_of(name) for name in mirrors},
            interval=config.merge.interval,
            concurrency=config.merge.concurrency,
            retry=retry_policy(config),
            stop=context.stop,
            on_start=recorder.record_start,
            on_report=recorder.record_report,
            on_error=recorder.record_error,
            on_cycle=recorder.record_cycle,
            is_alive=lambda: is_alive(context.session),
            may_start=may_start,
        )
        board.expect(mirrors)
        board.follow_merges(lambda: self.loop.statuses)
        self.requests = MergeRequests(self.loop, mergers, board, known=mirrors)


def _capture_on_board(context: RunContext) -> Capture:
    capture = build_capture(
        context.session, context.config, claims=True, is_stopping=context.stop.is_set
    )
    source = context.config.source
    context.board.follow_capture(
        capture.ingester,
        capture.source,
        kind="" if source is None else source.kind,
        names=_names_or_none(capture),
    )
    return capture


def _ingest_loop(
    context: RunContext,
    capture: Capture,
    *,
    also: Callable[[BatchReport], None] | None,
    on_step: Callable[[], None] = lambda: None,
) -> IngestLoop:
    observed = context.observed
    recorder = IngestRecorder(
        observed.metrics, observed.reporting, context.board, names=observed.names
    )

    def record(report: BatchReport) -> None:
        recorder.record_report(report)
        if also is not None:
            also(report)

    def record_step(next_seconds: float) -> None:
        recorder.record_step(next_seconds)
        on_step()

    return build_ingest_loop(
        context.session,
        context.config,
        capture,
        stop=context.stop,
        on_report=record,
        on_step=record_step,
        on_error=recorder.record_error,
        tracing=observed.tracing,
    )


def _lake_thread(context: RunContext) -> PeriodicThread:
    """Totals and commits of before this process, of tables that are new or have changed."""
    watch = LakeWatch(context.session, context.config, context.board)
    return PeriodicThread("lake watch", watch.load, seconds=TICK_SECONDS)


def _source_threads(context: RunContext, capture: Capture) -> tuple[PeriodicThread, ...]:
    """What watches the source, and what is to be done for it from time to time."""
    chores = (chore_thread(each, capture.claim) for each in capture.kind.chores())
    return (_watch_thread(context, capture), *chores)


def _watch_thread(context: RunContext, capture: Capture) -> PeriodicThread:
    watch, clock = capture.kind.watch(), SystemClock()

    def load() -> None:
        # Before the query: what is committed while it runs may be missing in the answer.
        asked = clock.monotonic()
        try:
            context.board.record_answer(watch.load(), asked=asked)
        except FrazilError:
            # The loop meets the same, and reports it; the lag grows meanwhile.
            context.board.record_no_answer()

    return PeriodicThread("source watch", load, seconds=HEALTH_SECONDS, at_end=watch.close)


def _names_or_none(capture: Capture) -> Callable[[str], CapturedNames | None]:
    def names(table: str) -> CapturedNames | None:
        try:
            return capture.names.of(table)
        except FrazilError:
            # Its name is taken by another one, which is reported where it was found.
            return None

    return names
