"""The verb ``demo``."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from frazil.cli.output import write_line, write_note
from frazil.demo.tour import TABLE, Step, touring
from frazil.telemetry.logs import LogLevel, LogSettings, configure_logs
from frazil.telemetry.metrics import Metrics
from frazil.version import __version__
from frazil.web.app import build_app
from frazil.web.readiness import Gate, Readiness
from frazil.web.server import serving

if TYPE_CHECKING:
    from frazil.cli.invocation import Invocation


def run_demo(invocation: Invocation, *, keep: bool) -> None:
    """Take the tour and print its steps; with ``keep``, let people look around until Ctrl-C."""
    redactor = invocation.redactor
    configure_logs(LogSettings(level=LogLevel.WARNING), redactor)
    proven = Gate("the tour is under way")
    readiness = Readiness()
    readiness.add("tour", proven)
    metrics = Metrics("demo", release=__version__, redactor=redactor)
    write_line("frazil demo: embedded services, a table in the lake, and the proof")
    write_line()
    with (
        serving(build_app(metrics, readiness, redactor), "127.0.0.1:0") as address,
        touring(_print_step, learn_secrets=redactor.learn),
    ):
        proven.open()
        write_line()
        write_line("Every order is where it should be.")
        if keep:
            write_note(f"{TABLE} is in the catalog; http://{address} has /metrics and /readyz.")
            write_note("Services stay up until Ctrl-C.")
            _wait_for_interrupt()


def _print_step(step: Step) -> None:
    write_line(f"  ✓ {step.title:<22} {step.detail:<52} {step.seconds:5.1f} s")


def _wait_for_interrupt() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    ended.wait()
