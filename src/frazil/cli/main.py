"""The command ``frazil``: run a verb, and turn how it ended into words and an exit status."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from frazil.cli.app import app
from frazil.cli.exit_codes import ExitCode, exit_code_for
from frazil.cli.invocation import Invocation
from frazil.cli.output import write_note
from frazil.errors import ConfigError, FrazilError
from frazil.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    words = [_two_dashes(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    invocation = Invocation()
    invocation.learn_environment()
    try:
        app(args=words, prog_name="frazil", obj=invocation)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - the last frame: whatever it is, tell it in a sentence
        if "--debug" in words:
            trace = "".join(traceback.format_exception(error))
            write_note(invocation.redactor.redact(trace.rstrip()))
        return _end_with(error, invocation)
    return ExitCode.DONE


def _two_dashes(word: str) -> str:
    """KafScale's processor is started with ``-config=PATH``; its deployments keep that."""
    return f"-{word}" if word.startswith("-config=") else word


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
