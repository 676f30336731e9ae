"""The verb ``merge``: mirrors brought up to date, once or on their interval."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.merge_results import HEADER, result_json, result_row
from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.stop_signals import StopSignals
from frazil.cli.supervising import supervise
from frazil.clients.spark import open_session
from frazil.errors import CatalogError, CommitUnknownError, StorageError
from frazil.pipeline.assemble import build_loop, check_merges
from frazil.pipeline.loop import Ending
from frazil.pipeline.observing import observing
from frazil.pipeline.recording import Recorder
from frazil.telemetry.logs import get_logger
from frazil.web.app import build_app
from frazil.web.readiness import Gate, NotReady, Readiness, Ready
from frazil.web.server import serving

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.pipeline.table_status import TableStatus
    from frazil.telemetry.redaction import Redactor
    from frazil.web.readiness import State

_log = get_logger(__name__)

_EXIT_CODES = {
    Ending.DONE: ExitCode.DONE,
    Ending.NEEDS_A_PERSON: ExitCode.NEEDS_A_PERSON,
    Ending.FAILED: ExitCode.FAILED,
}
_NO_ANSWER = (CatalogError, StorageError, CommitUnknownError)


def run_merges(
    document: Path | None,
    tables: Sequence[str],
    output: OutputFormat,
    invocation: Invocation,
    *,
    once: bool,
) -> ExitCode:
    """Merge until told to stop; with ``once``, until nothing is left, and print what was done."""
    loaded = invocation.load(document)
    config, redactor = loaded.config, invocation.redactor
    check_merges(config, tables)
    with (
        StopSignals() as signals,
        observing(loaded, redactor) as observed,
        ExitStack() as stack,
    ):
        recorder = Recorder(observed.metrics, observed.reporting, names=observed.names)
        readiness, started = _readiness()
        if not once:
            app = build_app(recorder, readiness, redactor)
            address = stack.enter_context(serving(app, config.telemetry.listen))
            _log.info("serving", address=str(address))
        session = stack.enter_context(open_session(config))
        signals.install()
        stop = threading.Event()
        loop = build_loop(
            session, config, tables, recorder=recorder, tracing=observed.tracing, stop=stop
        )
        readiness.add("catalog", lambda: catalog_state(loop.statuses))
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
                _print_results(loop.statuses, output, redactor)
    return signals.exit_code if ending is Ending.TOLD else _EXIT_CODES[ending]


def catalog_state(statuses: Sequence[TableStatus]) -> State:
    """Whether the catalog answers, as far as the last run of each table tells."""
    ended = [each for each in statuses if each.report is not None or each.error is not None]
    if not ended:
        return NotReady("no merge has ended yet")
    silent = [each for each in ended if isinstance(each.error, _NO_ANSWER)]
    if len(silent) < len(ended):
        return Ready()
    return NotReady(f"{silent[0].code}: {silent[0].reason}")


def _readiness() -> tuple[Readiness, Gate]:
    readiness, started = Readiness(), Gate("Spark is starting")
    readiness.add("spark", started)
    return readiness, started


def _print_results(
    statuses: Sequence[TableStatus], output: OutputFormat, redactor: Redactor
) -> None:
    if output is OutputFormat.JSON:
        write_json([result_json(each, redactor) for each in statuses])
    else:
        write_table([result_row(each, redactor) for each in statuses], header=HEADER)
