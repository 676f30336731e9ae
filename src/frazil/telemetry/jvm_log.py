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


class JvmLog:
    """Takes the JVM's output line by line.

    A JSON object with ``level``, ``logger``, ``message`` and perhaps ``thrown`` becomes the event
    "spark message"; any other line, for instance a Python worker's, becomes "spark output".
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self._log = log if log is not None else get_logger("frazil.spark")

    def log_line(self, line: str) -> None:
        """Log one line. Never fails on its content."""
        text = line.rstrip("\r\n")
        if not text.strip():
            return
        message = _parse(text)
        if message is None:
            self._log.info("spark output", line=text)
            return
        level = _LEVELS.get(str(message["level"]).upper(), logging.INFO)
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
