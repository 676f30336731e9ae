"""Error reports to Sentry: what broke and where, without secrets, locals or rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from frazil.errors import ConfigError
from frazil.telemetry.log_fields import without_row_values

if TYPE_CHECKING:
    from sentry_sdk._types import DataCollectionUserOptions
    from sentry_sdk.client import BaseClient
    from sentry_sdk.scope import Scope
    from sentry_sdk.types import Breadcrumb, BreadcrumbHint, Event, Hint

    from frazil.telemetry.redaction import Redactor

SERVICE: Final = "frazil"

# Enough to see what led to a failure; each one is a chance to carry something along.
BREADCRUMBS: Final = 20

# How long an exit may wait for the last report; a pod is given 30 s in all.
FLUSH_SECONDS: Final = 2.0

# Supersedes `send_default_pii`; a category left out here would be collected.
NOTHING_COLLECTED: Final[DataCollectionUserOptions] = {
    "user_info": False,
    "cookies": {"mode": "off"},
    "http_headers": {"request": {"mode": "off"}},
    "http_bodies": [],
    "url_query_params": {"mode": "off"},
    "graphql": {"document": False, "variables": False},
    "gen_ai": {"inputs": False, "outputs": False},
    "database_query_data": False,
    "queues": False,
    "stack_frame_variables": False,
    "frame_context_lines": 0,
}

# Parts of a report that say who and where rather than what.
_PERSONAL: Final = ("server_name", "user", "request", "modules")


class Reporting(Protocol):
    """Where faults are reported to."""

    def report(self, error: BaseException) -> None:
        """Report a fault that an operator should see; returns at once and never fails."""

    def close(self) -> None:
        """Send what is waiting, for a short while."""


class NoReporting:
    """Reports nothing."""

    def report(self, error: BaseException) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class SentryReporting:
    """Reports to Sentry."""

    def __init__(self, client: BaseClient, scope: Scope) -> None:
        self._client = client
        self._scope = scope

    def report(self, error: BaseException) -> None:
        """Queue a report; the transport's thread sends it."""
        # Through the current scope, whose breadcrumbs are those of the failing thread.
        self._scope.get_current_scope().capture_exception(error)

    def close(self) -> None:
        """Send what is waiting, then stop collecting."""
        self._client.close(timeout=FLUSH_SECONDS)
        self._scope.set_client(None)


def start_reporting(
    dsn: str | None,
    *,
    environment: str | None,
    release: str,
    pipeline: str,
    redactor: Redactor,
) -> Reporting:
    """Report faults to this address; without one, report nothing.

    Uncaught exceptions are reported by `exception_hooks.install_hooks`, which is given `report`.
    Raises ConfigError if the address is not one of Sentry's.
    """
    if dsn is None:
        return NoReporting()
    # Imported here: a command that reports nothing must not wait for this import.
    import sentry_sdk  # noqa: PLC0415
    from sentry_sdk.utils import BadDsn  # noqa: PLC0415

    try:
        _init(dsn, environment=environment, release=release, redactor=redactor)
    except BadDsn as error:
        raise ConfigError(
            "telemetry.sentry.dsn is not an address of a Sentry project.",
            next_step="copy it from the project's settings, https://KEY@HOST/NUMBER.",
        ) from error
    scope = sentry_sdk.get_global_scope()
    scope.set_tags({"service": SERVICE, "pipeline": pipeline, "release": release})
    return SentryReporting(sentry_sdk.get_client(), scope)


def _init(dsn: str, *, environment: str | None, release: str, redactor: Redactor) -> None:
    import sentry_sdk  # noqa: PLC0415 - as above
    from sentry_sdk.integrations.dedupe import DedupeIntegration  # noqa: PLC0415
    from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: PLC0415

    scrubbing = _Scrubbing(redactor)
    sentry_sdk.init(
        dsn,
        environment=environment,
        release=release,
        data_collection=NOTHING_COLLECTED,
        include_local_variables=False,
        include_source_context=False,
        max_request_body_size="never",
        max_breadcrumbs=BREADCRUMBS,
        shutdown_timeout=FLUSH_SECONDS,
        before_send=scrubbing.event,
        before_send_transaction=scrubbing.event,
        before_breadcrumb=scrubbing.breadcrumb,
        # The default ones read arguments, headers, statements and the command line.
        default_integrations=False,
        auto_enabling_integrations=False,
        # Logs leave breadcrumbs; a report is made on purpose or by an uncaught exception.
        integrations=[DedupeIntegration(), LoggingIntegration(event_level=None)],
        auto_session_tracking=False,
        send_client_reports=False,
        spotlight=False,
    )


class _Scrubbing:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def event(self, event: Event, _hint: Hint) -> Event:
        kept = {key: item for key, item in event.items() if key not in _PERSONAL}
        # Only here: elsewhere `values` is Sentry's own key. Breadcrumbs were cleaned one by one.
        if isinstance(kept.get("extra"), dict):
            kept["extra"] = without_row_values(cast("dict[str, object]", kept["extra"]))
        return cast("Event", self._redactor.scrub(kept))

    def breadcrumb(self, breadcrumb: Breadcrumb, _hint: BreadcrumbHint) -> Breadcrumb:
        return cast("Breadcrumb", self._redactor.scrub(without_row_values(breadcrumb)))
