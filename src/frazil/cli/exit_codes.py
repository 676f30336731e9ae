"""The exit statuses of commands."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from frazil import errors

if TYPE_CHECKING:
    from frazil.errors import FrazilError


class ExitCode(IntEnum):
    """The published statuses."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    ACTION_REQUIRED = 3
    DIFFERENCE = 4
    PERMISSION = 5
    BUSY = 75
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done; also after a SIGTERM that ended the work cleanly",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "wrong usage or configuration",
    ExitCode.ACTION_REQUIRED: "action required for some tables, the rest is done",
    ExitCode.DIFFERENCE: "a difference was found",
    ExitCode.PERMISSION: "a permission is missing",
    ExitCode.BUSY: "busy or fenced: try again later",
    ExitCode.INTERRUPTED: "interrupted",
}


def exit_code_for(error: FrazilError) -> ExitCode:
    """The exit status for an error."""
    match error:
        case errors.ConfigError():
            return ExitCode.USAGE
        case errors.PermissionError():
            return ExitCode.PERMISSION
        case errors.FencedError() | errors.LeaseLostError() | errors.SlotBusyError():
            return ExitCode.BUSY
        case errors.ShutdownRequested():
            return ExitCode.DONE
        case _:
            return ExitCode.FAILED
