"""Logs, metrics, traces and error reports of a process, as its configuration wants them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.loader import Dialect
from frazil.telemetry.exception_hooks import install_hooks
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.metric_names_foreign import ForeignNames
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.reporting import start_reporting
from frazil.telemetry.tracing import start_tracing
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config import Config, LoadedConfig
    from frazil.config.models.observability import Telemetry
    from frazil.telemetry.redaction import Redactor
    from frazil.telemetry.reporting import Reporting
    from frazil.telemetry.tracing import Tracing

_NAMES = {
    Dialect.NATIVE: ForeignNames.NONE,
    Dialect.MERGER: ForeignNames.MERGER,
    Dialect.PROCESSOR: ForeignNames.PROCESSOR,
}


@dataclass(frozen=True, slots=True)
class Observed:
    """Where a running process reports; ``names`` are those of a foreign document."""

    metrics: Metrics
    tracing: Tracing
    reporting: Reporting
    names: ForeignNames


def log_settings(telemetry: Telemetry) -> LogSettings:
    """The log lines that the document asks for."""
    log = telemetry.log
    return LogSettings(format=log.format, level=log.level, values=log.values)


def change_level(telemetry: Telemetry, redactor: Redactor) -> None:
    """Go on with the log lines that the document asks for now."""
    configure_logs(log_settings(telemetry), redactor)


@contextmanager
def observing(loaded: LoadedConfig, redactor: Redactor) -> Iterator[Observed]:
    """Everything is set up inside the block, and sent and taken down at its end."""
    config = loaded.config
    release = config.telemetry.release or __version__
    names = _NAMES[loaded.dialect]
    with ExitStack() as stack:
        stack.callback(configure_logs(log_settings(config.telemetry), redactor))
        reporting = _start_reporting(config, release, redactor)
        stack.callback(reporting.close)
        tracing = _start_tracing(config, release, redactor)
        stack.callback(tracing.close)
        log = get_logger("frazil")
        stack.callback(install_hooks(log, reporting.report))
        for warning in loaded.warnings:
            log.warning("configuration warning", message=warning)
        metrics = Metrics(config.pipeline, release=release, redactor=redactor, foreign=names)
        yield Observed(metrics, tracing, reporting, names)


def _start_reporting(config: Config, release: str, redactor: Redactor) -> Reporting:
    sentry = config.telemetry.sentry
    return start_reporting(
        None if sentry.dsn is None else sentry.dsn.get_secret_value(),
        environment=sentry.environment,
        release=release,
        pipeline=config.pipeline,
        redactor=redactor,
    )


def _start_tracing(config: Config, release: str, redactor: Redactor) -> Tracing:
    otlp = config.telemetry.otlp
    return start_tracing(
        otlp.endpoint if otlp.spans else None,
        pipeline=config.pipeline,
        release=release,
        redactor=redactor,
    )
