"""A role of the pipeline as a process: signals, pages, the session, and one loop over them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import write_note
from frazil.cli.process.interrupting import Interrupted
from frazil.cli.process.stop_signals import StopSignals
from frazil.cli.process.supervising import supervise
from frazil.clients.spark.session import is_alive, open_session
from frazil.errors import CatalogError, CommitUnknownError, ConfigError, StorageError
from frazil.pipeline.build_run import RunContext
from frazil.pipeline.loops.loop import Ending, StopRequest
from frazil.pipeline.reloading import plan_reload
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.status.gauges import StatusMetrics
from frazil.pipeline.telemetry import change_level, observing
from frazil.telemetry.logs import get_logger
from frazil.telemetry.progress import progress_shown_by
from frazil.web.pages import configured_app
from frazil.web.readiness import Gate, NotReady, Readiness, Ready
from frazil.web.server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.config import LoadedConfig
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.merge_status import MergeStatus
    from frazil.web.readiness import State

_log = get_logger(__name__)

_NO_ANSWER = (CatalogError, StorageError, CommitUnknownError)
_EXIT_CODES = {
    Ending.DONE: ExitCode.DONE,
    Ending.ACTION_REQUIRED: ExitCode.ACTION_REQUIRED,
    Ending.FAILED: ExitCode.FAILED,
}


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """What a process does."""

    names: tuple[str, ...]
    """The roles it has, as people read them."""
    build: Callable[[RunContext], PipelineRun]
    """Everything that runs; called once Spark has started."""
    print_results: Callable[[PipelineRun], None]
    """What was done, after a single run."""


def run_role(
    role: ProcessRole,
    document: Path | None,
    invocation: Invocation,
    loaded: LoadedConfig,
    *,
    once: bool,
) -> ExitCode:
    """Run until stopped, and serve the pages; with ``once``, until done, and print."""
    with StopSignals() as signals:
        try:
            return _run_role(role, document, invocation, loaded, once=once, signals=signals)
        except (Interrupted, Exception):
            # Leaving what was interrupted may fail: a reply of the JVM was read to one half.
            if not signals.has_interrupted:
                raise
            write_note("interrupted before anything was begun: nothing is left running")
            return signals.exit_code


def _run_role(
    role: ProcessRole,
    document: Path | None,
    invocation: Invocation,
    loaded: LoadedConfig,
    *,
    once: bool,
    signals: StopSignals,
) -> ExitCode:
    config, redactor = loaded.config, invocation.redactor
    with ExitStack() as stack:
        with signals.raising():
            observed = stack.enter_context(observing(loaded, redactor))
            board = StatusBoard(config.pipeline, roles=role.names)
            readiness, started = Readiness(), Gate("Spark is starting")
            readiness.add("spark", started)
            if not once:
                metrics = StatusMetrics(observed.metrics, board)
                app = configured_app(config.telemetry, metrics, readiness, redactor, board.now)
                address = stack.enter_context(serving(app, config.telemetry.listen))
                _log.info("serving", address=str(address))
            # In the log, where everything else follows: a line to write over would be in its way.
            stack.enter_context(progress_shown_by(None))
            _log.info("starting Spark")
            session = stack.enter_context(open_session(config))
            stop = StopRequest()
            run = stack.enter_context(
                role.build(RunContext(session, config, observed, board, stop))
            )
        if run.capture is not None:
            readiness.add("source", lambda: source_state(board))
        readiness.add("catalog", lambda: merge_state(board, run.merge_statuses))
        started.open()
        try:
            ending = supervise(
                run.loop,
                once=once,
                stop=stop,
                signals=signals,
                grace=config.shutdown_grace,
                interrupt=session.sparkContext.cancelAllJobs,
                is_alive=lambda: is_alive(session),
                on_reload=_Reload(document, invocation, loaded, run),
            )
        finally:
            if once:
                role.print_results(run)
    return signals.exit_code if ending is Ending.STOPPED else _EXIT_CODES[ending]


def source_state(board: StatusBoard) -> State:
    """Whether the source answered the last time."""
    source = board.now().source
    if source is None or source.standby is not None:
        # A rolling update ends the old process only when the standby is ready.
        return Ready()
    if source.trouble is not None:
        return NotReady(f"{source.trouble.code}: {source.trouble.reason}")
    return NotReady("the source has not answered yet") if source.next_run is None else Ready()


def merge_state(board: StatusBoard, statuses: Sequence[MergeStatus]) -> State:
    """Whether the catalog answers; a standby does not query it."""
    source = board.now().source
    return Ready() if source is not None and source.standby else catalog_state(statuses)


def catalog_state(statuses: Sequence[MergeStatus]) -> State:
    """Whether the catalog answered the last run of any table."""
    ended = [each for each in statuses if each.report is not None or each.error is not None]
    if not ended:
        return NotReady("no merge has ended yet") if statuses else Ready()
    silent = [each for each in ended if isinstance(each.error, _NO_ANSWER)]
    if len(silent) < len(ended):
        return Ready()
    return NotReady(f"{silent[0].code}: {silent[0].reason}")


class _Reload:
    """Handles SIGHUP: applies settings that may change while it runs, and names the others."""

    def __init__(
        self, document: Path | None, invocation: Invocation, loaded: LoadedConfig, run: PipelineRun
    ) -> None:
        self._document = document
        self._invocation = invocation
        self._started_with = self._taken_up = loaded.config
        self._run = run

    def __call__(self) -> None:
        try:
            found = self._invocation.load(self._document)
        except ConfigError as error:
            _log.error("not reloaded: the configuration has mistakes", message=str(error))
            return
        refused = plan_reload(self._started_with, found.config).refused
        if refused:
            _log.warning("these keys need a restart and stay as they were", keys=refused)
        taken = plan_reload(self._taken_up, found.config).taken
        self._taken_up = found.config
        change_level(found.config.telemetry, self._invocation.redactor)
        self._run.reload(found.config)
        _log.info("reloaded", keys=taken)
