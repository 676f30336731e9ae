"""A pipeline run by a program of the caller's: no signals, no pages, nothing printed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.spark.session import attach_session, open_session
from frazil.config import Config, load_config
from frazil.pipeline.build_run import INGEST_ROLE, MERGE_ROLE, RunContext, build_run
from frazil.pipeline.loops.loop import StopRequest
from frazil.pipeline.loops.periodic_thread import PeriodicThread
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.telemetry import Observed
from frazil.telemetry.metric_names_foreign import ForeignNames
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.telemetry.reporting import start_reporting
from frazil.telemetry.tracing import start_tracing
from frazil.version import __version__

if TYPE_CHECKING:
    import threading

    from frazil.clients.spark.session import Session
    from frazil.pipeline.status.values import PipelineStatus

# How late a stop may be noticed.
_STOP_CHECK_SECONDS = 0.25


def run(
    config: Config | Path | str,
    *,
    once: bool = True,
    session: Session | None = None,
    stop: threading.Event | None = None,
) -> PipelineStatus:
    """Capture changes and merge them into mirrors; the status at the end.

    With ``once``, all that is there now; otherwise until ``stop``, a ``threading.Event``, is set.
    A Spark session of the caller's is used when one is given, else one is started and ended.
    Tables that require action are among ``stopped`` of the result; what concerns all of them is
    raised as FrazilError.
    """
    document = (
        config
        if isinstance(config, Config)
        else load_config(Path(config), environ=os.environ).config
    )
    roles = MERGE_ROLE if document.source is None else INGEST_ROLE + MERGE_ROLE
    board = StatusBoard(document.pipeline, roles=roles)
    with ExitStack() as stack:
        if session is None:
            session = stack.enter_context(open_session(document))
        else:
            attach_session(session, document)
        request = StopRequest()
        if stop is not None:
            stack.enter_context(_passing_on(stop, request))
        context = RunContext(session, document, unobserved(document), board, request)
        with build_run(context) as built:
            built.loop.run(once=once)
    return board.now()


def _passing_on(stop: threading.Event, request: StopRequest) -> PeriodicThread:
    """Make the request when the caller's event is set, while the block runs.

    It is polled: a thread that waited for the event would outlive a run that ends by itself.
    """

    def pass_on() -> None:
        if stop.is_set():
            request.set()

    pass_on()
    return PeriodicThread("stop request", pass_on, seconds=_STOP_CHECK_SECONDS)


def unobserved(config: Config) -> Observed:
    """What is recorded is discarded: the caller has logs, metrics and traces of its own."""
    redactor = Redactor()
    pipeline = config.pipeline
    return Observed(
        Metrics(pipeline, release=__version__, redactor=redactor),
        start_tracing(None, pipeline=pipeline, release=__version__, redactor=redactor),
        start_reporting(
            None, environment=None, release=__version__, pipeline=pipeline, redactor=redactor
        ),
        ForeignNames.NONE,
    )
