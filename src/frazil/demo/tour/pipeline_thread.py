"""A pipeline in a thread of its own, as long as a block lasts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.errors import ServiceError
from frazil.model.marker import MarkerRole
from frazil.pipeline.build_run import RunContext, build_run
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.status.board import StatusBoard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.spark.session import Session
    from frazil.config import Config
    from frazil.pipeline.build_run import PipelineRun
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.pipeline.telemetry import Observed

# When the result is no longer needed, running work is not waited for.
_INTERRUPTED_SECONDS = 2.0


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
