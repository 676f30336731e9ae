"""The verb ``ingest``: changes of the source captured, once or until told to stop."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.ingest_results import IngestTally
from frazil.cli.stop_signals import StopSignals
from frazil.cli.supervising import supervise
from frazil.clients.spark import open_session
from frazil.pipeline.capture import build_capture, build_ingest_loop, postgres_settings
from frazil.pipeline.ingest_recording import IngestRecorder
from frazil.pipeline.loop import Ending
from frazil.pipeline.observing import observing
from frazil.telemetry.logs import get_logger
from frazil.web.app import build_app
from frazil.web.readiness import Gate, Readiness
from frazil.web.server import serving

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.cli.output import OutputFormat

_log = get_logger(__name__)

_EXIT_CODES = {
    Ending.DONE: ExitCode.DONE,
    Ending.NEEDS_A_PERSON: ExitCode.NEEDS_A_PERSON,
    Ending.FAILED: ExitCode.FAILED,
}


def run_ingest(
    document: Path | None, output: OutputFormat, invocation: Invocation, *, once: bool
) -> ExitCode:
    """Capture until told to stop; with ``once``, all that is there now, and print what was done."""
    loaded = invocation.load(document)
    config, redactor = loaded.config, invocation.redactor
    # Mistakes are told now, not after the seconds that Spark needs to start.
    postgres_settings(config)
    with (
        StopSignals() as signals,
        observing(loaded, redactor) as observed,
        ExitStack() as stack,
    ):
        recorder = IngestRecorder(observed.metrics, observed.reporting)
        readiness, started = Readiness(), Gate("Spark is starting")
        readiness.add("spark", started)
        if not once:
            app = build_app(recorder, readiness, redactor)
            address = stack.enter_context(serving(app, config.telemetry.listen))
            _log.info("serving", address=str(address))
        session = stack.enter_context(open_session(config))
        signals.install()
        stop = threading.Event()
        capture = build_capture(session, config)
        recorder.follow(capture)
        tally = IngestTally(recorder)
        loop = build_ingest_loop(
            session,
            config,
            capture,
            stop=stop,
            on_report=tally.record_report,
            on_error=recorder.record_error,
        )
        started.open()
        try:
            ending = supervise(
                loop,
                once=once,
                stop=stop,
                signals=signals,
                grace=config.shutdown_grace,
                interrupt=session.sparkContext.cancelAllJobs,
            )
        finally:
            if once:
                tally.print(capture.ingester.standings, output, redactor)
    return signals.exit_code if ending is Ending.TOLD else _EXIT_CODES[ending]
