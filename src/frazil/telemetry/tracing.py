"""Spans for batches and commits, sent by OTLP over HTTP; nothing at all when not configured."""

from __future__ import annotations

import contextlib
import time
import traceback
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from frazil.errors import RuntimeMissingError
from frazil.telemetry.redaction import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from frazil.telemetry.redaction import Redactor

SERVICE: Final = "frazil"
TRACES_PATH: Final = "/v1/traces"

# How long an exit may wait for the last spans; a pod is given 30 s in all.
FLUSH_SECONDS: Final = 2.0


class SpanName(StrEnum):
    """What is traced."""

    BATCH = "frazil.batch"
    COMMIT = "frazil.commit"


# Names of our own: the published conventions are still beta and move.
ATTRIBUTES: Final = {
    name: f"frazil.{name}"
    for name in ("batch", "files", "position", "role", "rows", "snapshot", "table")
}

Attribute = str | int | float | bool


class Tracing(Protocol):
    """Where spans are opened."""

    def span(self, name: SpanName, /, **attributes: Attribute) -> AbstractContextManager[None]:
        """Trace the block; an exception that leaves it is recorded and goes on."""

    def record(self, name: SpanName, seconds: float, /, **attributes: Attribute) -> None:
        """Record a span that has just ended, as a child of the current one."""

    def close(self) -> None:
        """Send what is waiting, for a short while."""


class NoTracing:
    """Nothing is traced."""

    def span(self, _name: SpanName, /, **attributes: Attribute) -> AbstractContextManager[None]:
        """Just the block."""
        _names(attributes)
        return contextlib.nullcontext()

    def record(self, _name: SpanName, _seconds: float, /, **attributes: Attribute) -> None:
        """Nothing."""
        _names(attributes)

    def close(self) -> None:
        """Nothing."""


class OtlpTracing:
    """Sends spans in batches from a thread of its own."""

    def __init__(self, provider: TracerProvider, release: str, redactor: Redactor) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE, release)
        self._redactor = redactor

    @contextlib.contextmanager
    def span(self, name: SpanName, /, **attributes: Attribute) -> Iterator[None]:
        """Trace the block; logs written within carry its ids."""
        with self._tracer.start_as_current_span(
            name.value,
            attributes=self._scrubbed(attributes),
            # The library would record the bare message and trace.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                self._record(span, error)
                raise

    def record(self, name: SpanName, seconds: float, /, **attributes: Attribute) -> None:
        """A span that ends now."""
        end = time.time_ns()
        begin = end - int(seconds * 1e9)
        scrubbed = self._scrubbed(attributes)
        self._tracer.start_span(name.value, start_time=begin, attributes=scrubbed).end(end)

    def close(self) -> None:
        """Send what is waiting, then stop."""
        self._provider.force_flush(int(FLUSH_SECONDS * 1000))
        self._provider.shutdown()

    def _scrubbed(self, attributes: dict[str, Attribute]) -> dict[str, Attribute]:
        return {
            key: _plain(self._redactor.scrub_field(key, value))
            for key, value in _names(attributes).items()
        }

    def _record(self, span: Span, error: BaseException) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as in start_tracing

        message = self._redactor.redact(text_of(error))
        trace = self._redactor.redact("".join(traceback.format_exception(error)))
        span.add_event(
            "exception",
            {
                "exception.type": type(error).__name__,
                "exception.message": message,
                "exception.stacktrace": trace,
            },
        )
        span.set_status(StatusCode.ERROR, message)


def start_tracing(
    endpoint: str | None, *, pipeline: str, release: str, redactor: Redactor
) -> Tracing:
    """Send spans to this OTLP/HTTP address (`http://collector:4318`); without one, send nothing.

    Raises RuntimeMissingError if an address is given and the package is not installed.
    """
    if endpoint is None:
        return NoTracing()
    # Imported here: an optional package that most installations lack.
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise RuntimeMissingError(
            "telemetry.otlp.endpoint is set, but OpenTelemetry is not installed.",
            next_step="pip install 'frazil[otel]'",
        ) from error

    # Includes what the operator put into OTEL_RESOURCE_ATTRIBUTES.
    resource = Resource.create(
        {"service.name": SERVICE, "service.version": release, "frazil.pipeline": pipeline}
    )
    described = {
        key: _plain(redactor.scrub_field(key, value)) for key, value in resource.attributes.items()
    }
    # Not the global provider: the process may have its own.
    provider = TracerProvider(resource=Resource(described), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(_traces_address(endpoint))))
    return OtlpTracing(provider, release, redactor)


def _traces_address(endpoint: str) -> str:
    address = endpoint.rstrip("/")
    return address if address.endswith(TRACES_PATH) else address + TRACES_PATH


def _names(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    unknown = attributes.keys() - ATTRIBUTES.keys()
    if unknown:
        message = f"a span has no attribute {', '.join(sorted(unknown))}"
        raise ValueError(message)
    return {ATTRIBUTES[name]: value for name, value in attributes.items()}


def _plain(value: object) -> Attribute:
    return value if isinstance(value, str | int | float | bool) else str(value)
