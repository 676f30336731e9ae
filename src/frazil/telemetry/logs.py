"""Logs: a constant lowercase message and fields, and nothing secret among them.

Everything goes through the standard library's ``logging``, ours and what others write, so there is
one chain to pass. Until `configure_logs` is called frazil behaves like any library: its events
go to the handlers of the process.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from frazil.model.policy import LogFormat, LogLevel
from frazil.telemetry.log_fields import FIELDS_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.telemetry.redaction import Redactor

# These talk at length about what they do, one of them (py4j) with every argument of every call.
QUIET_LOGGERS: Final = (
    "asyncio",
    "boto3",
    "botocore",
    "httpcore",
    "httpx",
    "opentelemetry",
    "py4j",
    "pyiceberg",
    "sentry_sdk",
    "urllib3",
    "uvicorn",
    "uvicorn.access",
    "uvicorn.error",
)


# A library is silent until its user wants logs; without this, Python prints bare warnings.
logging.getLogger("frazil").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What an operator chooses; ``values`` admits fields that hold values of rows."""

    format: LogFormat = LogFormat.AUTO
    level: LogLevel = LogLevel.INFO
    values: bool = False


class EventLog:
    """Writes events under one name; fields bound to it come with every event."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, name: str, fields: Mapping[str, object] | None = None) -> None:
        self._logger = logging.getLogger(name)
        self._fields = dict(fields or {})

    def bind(self, **fields: object) -> EventLog:
        """The same log with more fields."""
        return EventLog(self._logger.name, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """A detail for developers."""
        self.write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Something happened as it should."""
        self.write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Something deserves attention; the work goes on."""
        self.write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Something failed."""
        self.write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Something failed, with the trace of the exception being handled."""
        self.write(logging.ERROR, event, fields, trace=sys.exception())

    def write(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        *,
        trace: BaseException | None = None,
    ) -> None:
        """One event of any level, with the trace of an exception if one is given."""
        extra = {FIELDS_ATTRIBUTE: {**self._fields, **fields}}
        self._logger.log(level, event, extra=extra, exc_info=trace)


def get_logger(name: str) -> EventLog:
    """The log of a module; free, also at import time."""
    return EventLog(name)


def configure_logs(
    settings: LogSettings, redactor: Redactor, stream: TextIO | None = None
) -> Callable[[], None]:
    """Send every log and warning of the process through one redacting chain to the stream.

    Handlers that others put on the root logger are set aside, because they would print what ours
    hides. Returns a function that puts everything back. May be called again; the last call counts.
    """
    # structlog imports rich, 0.2 s that `frazil --help` must not pay.
    from frazil.telemetry import log_chain  # noqa: PLC0415

    stream = sys.stderr if stream is None else stream
    on_terminal = stream.isatty()
    console = settings.format is LogFormat.TEXT or (
        settings.format is LogFormat.AUTO and on_terminal
    )
    colours = console and on_terminal and not os.environ.get("NO_COLOR")
    handler = log_chain.RedactedStream(
        stream,
        log_chain.formatter(redactor, values=settings.values, console=console, colours=colours),
    )

    root = logging.getLogger()
    handlers, levels = list(root.handlers), _levels()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.number)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, settings.level.number))
    logging.captureWarnings(capture=True)
    log_chain.adopt_structlog()

    def undo() -> None:
        log_chain.release_structlog()
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

    return undo


def _levels() -> dict[str | None, int]:
    return {name: logging.getLogger(name).level for name in (None, *QUIET_LOGGERS)}
