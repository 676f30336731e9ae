"""From a log record to a line: facts, fields, trace, redaction, rendering, redaction again."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

import structlog

from frazil.model.printable import printable, printable_lines
from frazil.telemetry.log_fields import FIELDS_ATTRIBUTE, bound_fields, without_row_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import EventDict, Processor, WrappedLogger

    from frazil.telemetry.redaction import Redactor

# Fields that have several lines by nature; a name that has them would write lines of its own.
_TRACES: Final = frozenset({"exception", "thrown", "stack"})


class RedactedStream(logging.StreamHandler[TextIO]):
    """Writes lines, and never falls back on printing the raw record when it cannot."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Report that an event was lost, and why, without showing it."""
        error = sys.exception()
        lost = {
            "timestamp": _timestamp(record),
            "level": "error",
            "logger": "frazil.telemetry",
            "event": "log event lost",
            "of": record.name,
            "error": type(error).__name__,
        }
        # The stream itself may be what failed; then nothing can be reported.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(json.dumps(lost) + self.terminator)


def formatter(
    redactor: Redactor, *, values: bool, console: bool, colours: bool
) -> logging.Formatter:
    """A formatter that turns any record into one redacted event."""

    def scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        fields = event if values else without_row_values(event)
        scrubbed = {key: redactor.scrub_field(key, item) for key, item in fields.items()}
        return _printable(scrubbed) if console else _json_safe(scrubbed)

    def hide(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        # The chain's type does not know that a renderer has made a text of the event.
        return redactor.redact_known(line)  # type: ignore[arg-type, return-value]

    renderer: Processor = structlog.processors.JSONRenderer()
    if console:
        renderer = structlog.dev.ConsoleRenderer(
            colors=colours,
            sort_keys=False,
            # The trace is a text already, made without locals.
            exception_formatter=structlog.dev.plain_traceback,
        )
    return structlog.stdlib.ProcessorFormatter(
        processors=[_collect_facts, scrub, renderer, hide], use_get_message=True
    )


def _collect_facts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog", None)
    exc_info = event.pop("exc_info", None)
    facts: dict[str, object] = {
        "timestamp": _timestamp(record),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": str(event.pop("event", "")).rstrip("\n"),
    }
    fields = {**bound_fields(), **event, **getattr(record, FIELDS_ATTRIBUTE, {}), **_trace_ids()}
    trace = _trace_of(exc_info)
    if trace is not None:
        fields["exception"] = trace
    return facts | {key: item for key, item in fields.items() if key not in facts}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")


def _trace_of(exc_info: object) -> str | None:
    if exc_info is True:
        exc_info = sys.exception()
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if not isinstance(error, BaseException):
        return None
    # Causes, contexts, groups and notes are all in it; locals are not.
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _trace_ids() -> dict[str, str]:
    # Only a process that traces has loaded the package; the others must not pay for it.
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return {}
    context = tracing.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _printable(event: dict[str, object]) -> dict[str, object]:
    return {printable(str(key)): _shown(key, item) for key, item in event.items()}


def _shown(key: str, item: object) -> object:
    if not isinstance(item, str):
        # Shown by its repr, which spells such characters out.
        return item
    return printable_lines(item) if key in _TRACES else printable(item)


def _json_safe(event: Mapping[str, object]) -> dict[str, object]:
    return {str(key): _json_value(item) for key, item in event.items()}


def _json_value(item: object) -> object:
    if isinstance(item, float) and not math.isfinite(item):
        # JSON knows neither NaN nor infinity.
        return str(item)
    if isinstance(item, dict):
        return _json_safe(item)
    if isinstance(item, list | tuple):
        return [_json_value(part) for part in item]
    return item


def adopt_structlog() -> None:
    """Send events that libraries write with structlog through the same chain."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


release_structlog: Callable[[], None] = structlog.reset_defaults
