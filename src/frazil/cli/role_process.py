"""A role of the pipeline as a process: signals, pages, the session, and one loop over them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from frazil.cli.exit_codes import ExitCode
from frazil.cli.stop_signals import StopSignals
from frazil.cli.supervising import supervise
from frazil.clients.spark import open_session
from frazil.pipeline.loop import Ending
from frazil.pipeline.observing import observing
from frazil.telemetry.logs import get_logger
from frazil.web.app import build_app
from frazil.web.readiness import Gate, Readiness
from frazil.web.server import serving

if TYPE_CHECKING:
    from frazil.cli.supervising import Supervised
    from frazil.clients.spark import Session
    from frazil.config import LoadedConfig
    from frazil.pipeline.observing import Observed
    from frazil.telemetry.redaction import Redactor
    from frazil.web.app import Scraped

_log = get_logger(__name__)

_EXIT_CODES = {
    Ending.DONE: ExitCode.DONE,
    Ending.NEEDS_A_PERSON: ExitCode.NEEDS_A_PERSON,
    Ending.FAILED: ExitCode.FAILED,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """What a role is built on, once Spark has started."""

    session: Session
    observed: Observed
    readiness: Readiness
    stop: threading.Event


class Role(Protocol):
    """What a process does; asked in this order."""

    def observe(self, observed: Observed) -> Scraped:
        """Where its metrics come from; before Spark has started."""

    def build(self, stage: Stage) -> Supervised:
        """Its loop."""

    def print_results(self) -> None:
        """What was done, after a single run."""


def run_role(role: Role, loaded: LoadedConfig, redactor: Redactor, *, once: bool) -> ExitCode:
    """Run until told to stop, with pages beside it; with ``once``, until done, and print."""
    config = loaded.config
    with (
        StopSignals() as signals,
        observing(loaded, redactor) as observed,
        ExitStack() as stack,
    ):
        metrics = role.observe(observed)
        readiness, started = Readiness(), Gate("Spark is starting")
        readiness.add("spark", started)
        if not once:
            app = build_app(metrics, readiness, redactor)
            address = stack.enter_context(serving(app, config.telemetry.listen))
            _log.info("serving", address=str(address))
        session = stack.enter_context(open_session(config))
        signals.install()
        stage = Stage(session, observed, readiness, threading.Event())
        loop = role.build(stage)
        started.open()
        try:
            ending = supervise(
                loop,
                once=once,
                stop=stage.stop,
                signals=signals,
                grace=config.shutdown_grace,
                interrupt=session.sparkContext.cancelAllJobs,
            )
        finally:
            if once:
                role.print_results()
    return signals.exit_code if ending is Ending.TOLD else _EXIT_CODES[ending]
