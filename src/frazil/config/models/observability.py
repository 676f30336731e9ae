"""Settings of logs, metrics, pages and error reports."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from frazil.config.models.clear_text import is_loopback
from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import Name, Secret, Truth, WebAddress, one_of, refuse
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

    format: Annotated[LogFormat, one_of(LogFormat), Field(description="auto, json or text.")] = (
        LogFormat.AUTO
    )
    level: Annotated[
        LogLevel, one_of(LogLevel), Field(description="debug, info, warning or error.")
    ] = LogLevel.INFO
    values: Annotated[Truth, Field(description="Let row values into logs and errors.")] = False


class Sentry(Section):
    """Error reports."""

    dsn: Annotated[Secret | None, Field(description="Address of the project; none: off.")] = None
    environment: Annotated[Name | None, Field(description="Tag environment.")] = None


class Otlp(Section):
    """Traces."""

    endpoint: Annotated[
        WebAddress | None, Field(description="OTLP over HTTP; none: off.", repr=False)
    ] = None
    spans: Annotated[
        Truth, Field(description="Send a span per batch and commit to that endpoint.")
    ] = True


class Telemetry(Section):
    """What a running pipeline shows of itself."""

    listen: Annotated[
        Name,
        AfterValidator(_check_listen),
        Field(description="Address of /metrics, /healthz, /readyz, /status and the page."),
    ] = LISTEN
    pages: Annotated[
        Truth, Field(description="Serve / and /status; false leaves probes and metrics only.")
    ] = True
    token: Annotated[
        Secret | None,
        Field(description="Required by / and /status; mandatory when listen is not loopback."),
    ] = None
    hosts: Annotated[
        tuple[Name, ...],
        Field(
            description="Host names that requests may use when listen is not loopback; none: any. "
            "Addresses in numbers, and /healthz, are always answered."
        ),
    ] = ()
    release: Annotated[
        Name | None, Field(description="Release shown in reports; none: frazil's version.")
    ] = None
    mask_keys: Annotated[
        Truth,
        Field(description="Have `verify` print hashes of differing keys, and not the keys."),
    ] = False
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
