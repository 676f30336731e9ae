"""The routes of the status page and of /status."""

from __future__ import annotations

import hashlib
import threading
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from frazil.hooks import SystemClock
from frazil.pipeline.status.json_form import redact_status, status_to_json
from frazil.web.access import HostRule, PageAccess, Verdict, is_over_tls
from frazil.web.app import JsonAnswer, build_app
from frazil.web.page_rendering import render_refusal, render_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from frazil.config.models.observability import Telemetry
    from frazil.hooks import Clock
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.telemetry.redaction import Redactor
    from frazil.web.app import Scraped
    from frazil.web.readiness import Readiness

# Nothing comes from elsewhere, nothing is sent elsewhere, no page frames this one. Scripts and
# styles are files of ours, so that no text of a table can become one.
PAGE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # The address may hold a token for a moment.
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
# How long a rendered page is shown again.
CACHE_SECONDS: Final = 1.0

_ASSETS: Final = {
    "icon.svg": "image/svg+xml",
    "icon-stopped.svg": "image/svg+xml",
    "status.css": "text/css; charset=utf-8",
    "status.js": "text/javascript; charset=utf-8",
}
# Their addresses change with their content.
_KEPT: Final = "private, max-age=86400, immutable"
_SEND_IT: Final = "send it as Authorization: Bearer TOKEN"
_REFUSALS: Final = {
    Verdict.NO_TOKEN: ("the token of telemetry.token is required here.", _SEND_IT),
    Verdict.WRONG_TOKEN: ("that is not the token of telemetry.token.", _SEND_IT),
    Verdict.WRONG_HOST: (
        "the Host header is not a name of this server.",
        "use its address (localhost, 127.0.0.1 or [::1] on loopback), or add to telemetry.hosts",
    ),
}


def configured_app(
    telemetry: Telemetry,
    metrics: Scraped,
    readiness: Readiness,
    redactor: Redactor,
    now: Callable[[], PipelineStatus],
) -> Starlette:
    """The application by the configuration, which may leave the pages out."""
    hosts = HostRule(is_local=telemetry.is_local, names=telemetry.hosts)
    token = None if telemetry.token is None else telemetry.token.get_secret_value()
    pages = build_pages(now, redactor, token=token, hosts=hosts) if telemetry.pages else ()
    return build_app(metrics, readiness, redactor, pages, hosts=hosts)


def build_pages(
    now: Callable[[], PipelineStatus],
    redactor: Redactor,
    *,
    token: str | None,
    hosts: HostRule,
    clock: Clock | None = None,
) -> tuple[BaseRoute, ...]:
    """The routes ``/`` and ``/status``, and what the page is made of, for ``build_app``.

    ``now`` is called in any thread. With a token both require it.
    """
    access = PageAccess(token=token, hosts=hosts)
    pages = _Pages(now, redactor, access, clock or SystemClock())
    return (
        Route("/", pages.page, methods=["GET"]),
        Route("/status", pages.status, methods=["GET"]),
        Route("/assets/{name}", pages.asset, methods=["GET"]),
    )


class _Pages:
    """The answers; plain functions run in starlette's threads, so that no probe waits for them.

    The page is cached for a second, so that many viewers cost as much as one; /status is not.
    """

    def __init__(
        self,
        now: Callable[[], PipelineStatus],
        redactor: Redactor,
        access: PageAccess,
        clock: Clock,
    ) -> None:
        self._now = now
        self._redactor = redactor
        self._access = access
        self._page = _CachedText(self._render_page, clock)
        self._assets = _load_assets()
        self._addresses = {
            name: f"/assets/{name}?v={_digest(body)}" for name, body in self._assets.items()
        }

    def page(self, request: Request) -> Response:
        verdict = self._access.judge(request)
        if verdict is Verdict.LOGGED_IN:
            return _logged_in(request, self._access)
        if verdict is not Verdict.SEEN:
            host = request.headers.get("host", "")
            refusal = render_refusal(verdict, host=host, assets=self._addresses)
            return _refused(verdict, Response(refusal, media_type="text/html"))
        return Response(self._page.text(), media_type="text/html", headers=PAGE_HEADERS)

    def status(self, request: Request) -> Response:
        verdict = self._access.judge(request)
        if verdict is Verdict.LOGGED_IN:
            return _logged_in(request, self._access)
        if verdict is not Verdict.SEEN:
            what, then = _REFUSALS[verdict]
            return _refused(verdict, JsonAnswer({"error": what, "next": then}))
        shown = status_to_json(redact_status(self._now(), self._redactor))
        return JsonAnswer(shown, headers=PAGE_HEADERS)

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets:
            return Response("Not Found", status_code=HTTPStatus.NOT_FOUND, media_type="text/plain")
        headers = {**PAGE_HEADERS, "cache-control": _KEPT, "content-type": _ASSETS[name]}
        return Response(self._assets[name], headers=headers)

    def _render_page(self) -> str:
        shown = redact_status(self._now(), self._redactor)
        return render_status(shown, assets=self._addresses)


class _CachedText:
    """Makes a text when the last one is old; may be called by any thread."""

    def __init__(self, make: Callable[[], str], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._making = threading.Lock()
        self._last: tuple[float, str] | None = None

    def text(self) -> str:
        requested = self._clock.monotonic()
        with self._making:
            if self._last is None or requested - self._last[0] >= CACHE_SECONDS:
                # Before it is made: what it shows is at least as new.
                begun = self._clock.monotonic()
                self._last = begun, self._make()
            return self._last[1]


def _logged_in(request: Request, access: PageAccess) -> Response:
    """Replace the token in the address by a cookie."""
    answer = RedirectResponse(
        request.url.path, status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS
    )
    answer.set_cookie(
        access.cookie_name,
        access.session,
        httponly=True,
        samesite="strict",
        secure=is_over_tls(request),
    )
    return answer


def _refused(verdict: Verdict, answer: Response) -> Response:
    answer.headers.update(PAGE_HEADERS)
    if verdict is Verdict.WRONG_HOST:
        answer.status_code = HTTPStatus.MISDIRECTED_REQUEST
    else:
        answer.status_code = HTTPStatus.UNAUTHORIZED
        answer.headers["www-authenticate"] = 'Bearer realm="frazil"'
    return answer


def _load_assets() -> dict[str, bytes]:
    folder = files("frazil.web") / "assets"
    return {name: (folder / name).read_bytes() for name in _ASSETS}


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:8]
