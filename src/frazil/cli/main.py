"""The command ``frazil``: run a verb, and turn its outcome into a message and an exit status."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode, exit_code_for
from frazil.cli.output import show_progress, shows_progress, write_note
from frazil.cli.process.interrupting import Interrupted, Interrupts
from frazil.errors import ConfigError, FrazilError
from frazil.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.invocation import Invocation

_RUNS_UNTIL_STOPPED = ("run", "ingest", "merge")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    line = _as_processor(given)
    if threading.current_thread() is not threading.main_thread():
        return _run(line, None)
    with Interrupts(Interrupted) as interrupts:
        try:
            status = _run(line, interrupts)
        except (Interrupted, KeyboardInterrupt):
            interrupts.announce("nothing is left running")
            status = _interrupted(line, interrupts.received)
    if arguments is None:
        # All is done; a signal during the interpreter's exit must not change the status.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    return status


def _interrupted(arguments: list[str], received: signal.Signals | None) -> ExitCode:
    """For a process that runs until it is stopped, SIGTERM is success, even before it began."""
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    is_clean = received == signal.SIGTERM and verb in _RUNS_UNTIL_STOPPED
    return ExitCode.DONE if is_clean else ExitCode.INTERRUPTED


def _run(arguments: list[str], interrupts: Interrupts | None) -> int:
    # Imported here: loading takes a moment, in which Ctrl-C may come.
    import logging
    import traceback

    from frazil.cli.app import app
    from frazil.cli.invocation import Invocation
    from frazil.telemetry.progress import progress_shown_by

    # Its warnings are about connections that end within a statement, as every interrupt ends them.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    invocation = Invocation()
    invocation.learn_environment()
    try:
        with progress_shown_by(show_progress if shows_progress() else None):
            app(args=arguments, prog_name="frazil", obj=invocation)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.FAILED
    except Exception as error:
        if interrupts is not None and interrupts.received is not None:
            # Leaving what was interrupted may fail: a reply of the JVM was read to one half.
            raise Interrupted from error
        if "--debug" in arguments:
            trace = "".join(traceback.format_exception(error))
            write_note(invocation.redactor.redact(trace.rstrip()))
        return _end_with(error, invocation)
    return ExitCode.DONE


def _as_processor(arguments: Sequence[str]) -> list[str]:
    """KafScale's processor is started with ``-config=PATH`` and no verb; deployments keep that."""
    line = [
        f"-{each}" if each == "-config" or each.startswith("-config=") else each
        for each in arguments
    ]
    first = next((each for each in line if each != "--debug"), "")
    if first == "--config" or first.startswith("--config="):
        line.insert(line.index(first), "run")
    return line


def _with_printable_table(error: FrazilError) -> str:
    # A message may have several lines, but a name that has them would write lines of its own.
    name = error.table or ""
    return str(error).replace(name, printable(name)) if printable(name) != name else str(error)


def _end_with(error: Exception, invocation: Invocation) -> ExitCode:
    redact = invocation.redactor.redact
    if not isinstance(error, FrazilError):
        write_note(redact(f"error: unexpected {type(error).__name__}: {error}"))
        write_note("This is a defect in frazil; run the command again with --debug and report it.")
        return ExitCode.FAILED
    write_note(redact(f"error {error.code}: {_with_printable_table(error)}"))
    if isinstance(error, ConfigError):
        for mistake in error.mistakes:
            if mistake not in error.message:
                write_note(redact(mistake))
    return exit_code_for(error)
