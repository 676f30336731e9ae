"""Settings of logs, metrics, pages and error reports."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import Name, Secret, Truth, WebAddress, is_loopback, one_of, refuse
from frazil.model.policy import LogFormat, LogLevel

# The port KafScale's processor has its metrics on, so that existing scrapers find ours.
LISTEN = "127.0.0.1:9093"
_LISTEN = re.compile(
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})"
)
_LAST_PORT = 65_535


def split_listen(listen: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an empty host means every interface."""
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match["port"]) > _LAST_PORT:
        raise ValueError("host:port, :port for every interface, or [::1]:port")
    return match["v6"] or match["host"] or "", int(match["port"])


def _check_listen(listen: str) -> str:
    try:
        split_listen(listen)
    except ValueError as error:
        sentence = f"must be {error}"
        raise refuse(sentence) from None
    return listen


class Log(Section):
    """Log lines."""

    format: Annotated[LogFormat, one_of(LogFormat)] = LogFormat.AUTO
    """auto, json or text."""
    level: Annotated[LogLevel, one_of(LogLevel)] = LogLevel.INFO
    """debug, info, warning or error."""
    values: Truth = False
    """Let row values into logs and errors."""


class Sentry(Section):
    """Error reports."""

    dsn: Secret | None = None
    """Address of the project; none: off."""
    environment: Name | None = None
    """Tag environment."""


class Otlp(Section):
    """Traces."""

    endpoint: WebAddress | None = Field(default=None, repr=False)
    """OTLP over HTTP; none: off."""
    spans: Truth = True
    """Send a span per batch and commit to that endpoint."""


class Telemetry(Section):
    """What a running pipeline shows of itself."""

    listen: Annotated[Name, AfterValidator(_check_listen)] = LISTEN
    """Address of /metrics, /healthz, /readyz, /status and the page."""
    pages: Truth = True
    """Serve / and /status; false leaves probes and metrics only."""
    token: Secret | None = None
    """Required by / and /status; mandatory when listen is not loopback."""
    hosts: tuple[Name, ...] = Field(
        default=(),
        description="Host names that requests may use when listen is not loopback; none: any. "
        "Addresses in numbers, and /healthz, are always answered.",
    )
    release: Name | None = None
    """Release shown in reports; none: frazil's version."""
    mask_keys: Truth = False
    """Have `verify` print hashes of differing keys, and not the keys."""
    log: Log = defaults("Log lines.")
    sentry: Sentry = defaults("Error reports.")
    otlp: Otlp = defaults("Traces.")

    @property
    def host(self) -> str:
        """The interface to listen on; empty for every one."""
        return split_listen(self.listen)[0]

    @property
    def port(self) -> int:
        """The port to listen on; 0 lets the system choose."""
        return split_listen(self.listen)[1]

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def broken_rules(self) -> Iterator[Broken]:
        """Pages that others can reach require a token; probes and metrics stay open."""
        if self.pages and self.token is None and not self.is_local:
            yield Broken(
                ("token",),
                "is required because listen is not a loopback address (or set pages: false)",
                (("listen",), ("pages",)),
            )
