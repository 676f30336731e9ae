"""The pipeline of a tour: what ``frazil run`` does, in a thread, with its page."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from frazil.clients.spark.jars import ICEBERG_VERSION
from frazil.clients.spark.session import open_session
from frazil.errors import ServiceError
from frazil.model.marker import MarkerRole
from frazil.pipeline.build_run import RunContext, build_run
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.telemetry import observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager, ExitStack

    from frazil.clients.spark.session import Session
    from frazil.config import Config, LoadedConfig
    from frazil.demo.tour.lake_folder import LakeFolder
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.pipeline.telemetry import Observed
    from frazil.telemetry.redaction import Redactor

    # Shows a run to browsers and scrapers, for the time of a block that is given the address.
    Serve = Callable[[PipelineRun, Config, Observed], AbstractContextManager[object]]

# When the result is no longer needed, running work is not waited for.
_INTERRUPTED_SECONDS = 2.0


class Steps(Protocol):
    """Receives what is done, and what it came to."""

    def begin(self, doing: str) -> None:
        """Something begins that takes a moment."""

    def done(self, title: str, detail: str) -> None:
        """It has come to its end."""


class PipelineThread:
    """The loop of a run, and its status."""

    def __init__(self, run: PipelineRun) -> None:
        self.run = run
        self._ended_with: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="frazil demo", daemon=True)
        self._thread.start()

    def status(self) -> PipelineStatus:
        """The status of the pipeline; raises the error that ended it or that stopped a table."""
        if self._ended_with is not None:
            raise self._ended_with
        status = self.run.board.now()
        for each in status.stopped:
            problem = each.trouble
            reason = "the reason is unknown" if problem is None else problem.reason
            message = f"{each.table} is stopped: {reason}"
            raise ServiceError(message, next_step="report it, this is a defect in the demo")
        return status

    def join(self, seconds: float) -> bool:
        """Wait until the loop has ended; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        try:
            self.run.loop.run()
        except BaseException as error:  # noqa: BLE001 - raised again when the status is read
            self._ended_with = error


@contextmanager
def pipeline_thread(
    session: Session, config: Config, observed: Observed
) -> Iterator[PipelineThread]:
    """Ingest and merge until the block is left."""
    stop = StopRequest()
    board = StatusBoard(
        config.pipeline, roles=tuple(each.value for each in (MarkerRole.INGEST, MarkerRole.MERGE))
    )
    context = RunContext(session, config, observed, board, stop)
    patience = _INTERRUPTED_SECONDS
    with build_run(context) as run:
        pipeline = PipelineThread(run)
        try:
            yield pipeline
            patience = config.shutdown_grace.total_seconds()
        finally:
            stop.set()
            if not pipeline.join(patience):
                run.loop.abandon()
                session.sparkContext.cancelAllJobs()


@dataclass(frozen=True, slots=True)
class TourPipeline:
    """A pipeline that runs, what it runs with, and the address of its page."""

    session: Session
    config: Config
    thread: PipelineThread
    page: str


@dataclass(frozen=True, slots=True)
class PipelineStart:
    """What a pipeline is started in: it runs until the stack is left."""

    stack: ExitStack
    folder: LakeFolder
    redactor: Redactor
    serve: Serve

    def start(self, loaded: LoadedConfig, watch: Steps) -> TourPipeline:
        """Session, pipeline and page, each a step that is watched."""
        config = loaded.config
        observed = self.stack.enter_context(observing(loaded, self.redactor))
        watch.begin("starting Spark")
        session = self.stack.enter_context(open_session(config))
        self.folder.write_spark_settings(config)
        watch.done(f"Spark {session.version}", f"with Iceberg {ICEBERG_VERSION}")
        watch.begin("starting the pipeline")
        thread = self.stack.enter_context(pipeline_thread(session, config, observed))
        address = self.stack.enter_context(self.serve(thread.run, config, observed))
        page = f"http://{address}/"
        watch.done("Status page", page)
        return TourPipeline(session, config, thread, page)
