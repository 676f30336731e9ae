"""From the document to a pipeline that runs: ingest, merges, or both."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import is_alive
from frazil.errors import ConfigError, FrazilError
from frazil.hooks import SystemClock
from frazil.model.marker import MarkerRole
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.merge_loop import MergeLoop
from frazil.pipeline.loops.periodic_thread import PeriodicThread
from frazil.pipeline.loops.run_loop import MergeSignal, RunLoop
from frazil.pipeline.merge_requests import MirrorFeed
from frazil.pipeline.mergers import Mergers
from frazil.pipeline.recording.ingest_recorder import IngestRecorder
from frazil.pipeline.recording.merge_recorder import Recorder
from frazil.pipeline.status.lake_watch import LakeWatch
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.merge_settings import NOTHING_CAPTURED, merge_tables, retry_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.capture import Capture
    from frazil.pipeline.loops.ingest_loop import IngestLoop
    from frazil.pipeline.loops.run_loop import Ends
    from frazil.pipeline.status.board import StatusBoard
    from frazil.pipeline.status.table_phase import MergeStatus
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror
    from frazil.pipeline.tables.captured_names import CapturedNames
    from frazil.pipeline.telemetry import Observed

# Often enough that lag in seconds is known to the second; a query of two functions and one row.
LOOK_SECONDS = 1.0
TICK_SECONDS = 1.0

INGEST_ROLE, MERGE_ROLE = (MarkerRole.INGEST.value,), (MarkerRole.MERGE.value,)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every role is built on."""

    session: Session
    config: Config
    observed: Observed
    board: StatusBoard
    stop: Ends


class PipelineRun:
    """A role, ready to be run once; inside its block the status is kept up to date."""

    def __init__(
        self,
        place: RunContext,
        loop: RunLoop | MergeLoop | IngestLoop,
        *,
        capture: Capture | None = None,
        feed: MirrorFeed | None = None,
        pulses: Sequence[PeriodicThread] = (),
    ) -> None:
        self.loop = loop
        self.board = place.board
        self.capture = capture
        self._feed = feed
        self._pulses = (
            PeriodicThread("status", place.board.tick, seconds=TICK_SECONDS),
            _lake_pulse(place),
            *pulses,
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for pulse in self._pulses:
            self._stack.enter_context(pulse)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if self.capture is not None:
            # Last of all: whoever stands by begins to merge at once.
            self.capture.claim.release()

    @property
    def merge_statuses(self) -> tuple[MergeStatus, ...]:
        """How every mirror stands; none when this process does not merge."""
        return () if self._feed is None else self._feed.statuses

    def take_up(self, config: Config) -> None:
        """Go on with these intervals, and try again whatever needs a person: one has acted."""
        match self.loop:
            case RunLoop():
                self.loop.set_intervals(ingest=config.ingest.interval, merge=config.merge.interval)
                self.loop.look_again()
            case MergeLoop():
                self.loop.set_interval(config.merge.interval)
            case _:
                self.loop.set_interval(config.ingest.interval)
        if self.capture is not None:
            self.capture.ingester.retry_held()
        if self._feed is not None:
            self._feed.mended()


def build_run(place: RunContext) -> PipelineRun:
    """Ingest and merges in one process; without a source, the merges."""
    if place.config.source is None:
        return build_merge_run(place)
    capture = _followed_capture(place)
    claim = capture.claim
    captured = load_captured_mirrors(capture.lake, place.config)
    merges = _Merges(place, tuple(captured), captured, may_start=lambda: claim.may_merge)

    def take(report: BatchReport) -> None:
        merges.feed.take(report, _named(capture), capture.lake)

    def catch_up() -> None:
        merges.feed.take_over(claim.turns, capture.lake, place.config)

    def new_ingest() -> IngestLoop:
        return _ingest_loop(place, capture, also=take, on_step=catch_up)

    session = place.session
    loop = RunLoop(new_ingest, merges.loop, stop=place.stop, is_alive=lambda: is_alive(session))
    pulses = [_source_pulse(place, capture)]
    return PipelineRun(place, loop, capture=capture, feed=merges.feed, pulses=pulses)


def build_ingest_run(
    place: RunContext, *, also: Callable[[BatchReport], None] | None = None
) -> PipelineRun:
    """Ingest alone; every batch is told to ``also``."""
    capture = _followed_capture(place)
    loop = _ingest_loop(place, capture, also=also)
    return PipelineRun(place, loop, capture=capture, pulses=[_source_pulse(place, capture)])


def build_merge_run(
    place: RunContext, chosen: Sequence[str] = (), *, waits: bool = False
) -> PipelineRun:
    """Merges alone, of the mirrors that are chosen or of all.

    Without a source nothing is asked of the catalog yet: one that is away when a process starts is
    met like one that goes away later. With a source only the ledger knows the tables; whoever
    ``waits`` for tables that are not captured yet finds them there later.
    """
    config = place.config
    if config.source is None:
        merges = _Merges(place, merge_tables(config, chosen), NOTHING_CAPTURED)
        return PipelineRun(place, merges.loop, feed=merges.feed)
    lake = Lake(place.session, config.catalog.name)
    captured = load_captured_mirrors(lake, config)
    try:
        mirrors = merge_tables(config, chosen, captured=captured)
    except ConfigError:
        if chosen or not waits:
            raise
        mirrors = ()
    merges = _Merges(place, mirrors, captured)
    pulses = []
    if not chosen:
        seconds = config.merge.interval.total_seconds()
        pulses = [PeriodicThread("new tables", merges.feed.looking(lake, config), seconds=seconds)]
    return PipelineRun(place, merges.loop, feed=merges.feed, pulses=pulses)


class _Merges:
    """The merge loop over these mirrors, and the way to tell it of more."""

    def __init__(
        self,
        place: RunContext,
        mirrors: Sequence[str],
        captured: Mapping[str, CapturedMirror],
        *,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        config, observed, board = place.config, place.observed, place.board
        recorder = Recorder(observed.metrics, observed.reporting, board, names=observed.names)
        mergers = Mergers(place.session, config, observed.tracing)
        mergers.learn(captured)
        bell = MergeSignal(place.stop)
        self.loop = MergeLoop(
            {name: mergers.merge_of(name) for name in mirrors},
            interval=config.merge.interval,
            concurrency=config.merge.concurrency,
            retry=retry_policy(config),
            stop=bell,
            on_start=recorder.record_start,
            on_report=recorder.record_report,
            on_error=recorder.record_error,
            on_cycle=recorder.record_cycle,
            is_alive=lambda: is_alive(place.session),
            may_start=may_start,
        )
        board.expect(mirrors)
        board.follow_merges(lambda: self.loop.statuses)
        self.feed = MirrorFeed(self.loop, mergers, board, bell, known=mirrors)


def _followed_capture(place: RunContext) -> Capture:
    capture = build_capture(place.session, place.config, claims=True)
    source = place.config.source
    place.board.follow_capture(
        capture.ingester,
        capture.source,
        kind="" if source is None else source.kind,
        names=_named(capture),
    )
    return capture


def _ingest_loop(
    place: RunContext,
    capture: Capture,
    *,
    also: Callable[[BatchReport], None] | None,
    on_step: Callable[[], None] = lambda: None,
) -> IngestLoop:
    observed = place.observed
    recorder = IngestRecorder(observed.metrics, observed.reporting, place.board)

    def record(report: BatchReport) -> None:
        recorder.record_report(report)
        if also is not None:
            also(report)

    def record_step(next_seconds: float) -> None:
        recorder.record_step(next_seconds)
        on_step()

    return build_ingest_loop(
        place.session,
        place.config,
        capture,
        stop=place.stop,
        on_report=record,
        on_step=record_step,
        on_error=recorder.record_error,
        tracing=observed.tracing,
    )


def _lake_pulse(place: RunContext) -> PeriodicThread:
    """Totals and commits of before this process; asked of tables that are new or have changed."""
    watch = LakeWatch(place.session, place.config, place.board)
    return PeriodicThread("lake watch", watch.look, seconds=TICK_SECONDS)


def _source_pulse(place: RunContext, capture: Capture) -> PeriodicThread:
    watch, clock = capture.kind.watch(), SystemClock()

    def look() -> None:
        # Before the question: what is committed while it is answered may be missing in the answer.
        asked = clock.monotonic()
        try:
            place.board.record_look(watch.load(), asked=asked)
        except FrazilError:
            # The loop meets the same, and tells; the lag grows meanwhile.
            place.board.record_no_answer()

    return PeriodicThread("source watch", look, seconds=LOOK_SECONDS, at_end=watch.close)


def _named(capture: Capture) -> Callable[[str], CapturedNames | None]:
    def names(table: str) -> CapturedNames | None:
        try:
            return capture.names.of(table)
        except FrazilError:
            # It is in the way of another one: told where it was found.
            return None

    return names
