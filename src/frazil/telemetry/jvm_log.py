"""Output of Spark's JVM as log events."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from frazil.telemetry.logs import EventLog

# The names of log4j; an unknown one (it allows custom levels) is shown rather than hidden.
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


# Spark starts its JVM with it on purpose, and Java says so every time.
_KNOWN: Final = "WARNING: Using incubator modules: jdk.incubator.vector"


class JvmLog:
    """Takes the JVM's output line by line.

    A JSON object with ``level``, ``logger``, ``message`` and perhaps ``thrown`` becomes the event
    "spark message"; any other line, for instance a Python worker's, becomes "spark output".
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self._log = log if log is not None else get_logger("frazil.spark")
        self._is_ending = False

    def expect_end(self) -> None:
        """A JVM that lives is asked to end: whatever it says from now on is a detail.

        Its shutdown hooks remove the same folders side by side, and tasks that were running report
        to a scheduler that is closed already. Nothing depends on either.
        """
        self._is_ending = True

    def log_line(self, line: str) -> None:
        """Log one line. Never fails on its content."""
        text = line.rstrip("\r\n")
        if not text.strip():
            return
        message = _parse(text)
        if message is None:
            write = self._log.debug if text.startswith(_KNOWN) else self._log.info
            write("spark output", line=text)
            return
        level = _LEVELS.get(str(message["level"]).upper(), logging.INFO)
        if self._is_ending:
            level = logging.DEBUG
        fields: dict[str, object] = {"source": message["logger"], "message": message["message"]}
        if message.get("thrown"):
            # Under this name the console prints it as a block.
            fields["exception"] = str(message["thrown"]).rstrip("\n")
        self._log.write(level, "spark message", fields)


def _parse(text: str) -> dict[str, object] | None:
    if not text.startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict) or not {"level", "logger", "message"} <= parsed.keys():
        return None
    return parsed
