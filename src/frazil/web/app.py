"""Routes: /metrics, /healthz, /readyz, and whatever a caller adds."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from frazil.model.printable import printable_json
from frazil.web.readiness import NO_CHECKS, NotReady, Ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from frazil.telemetry.metrics import Exposition
    from frazil.telemetry.redaction import Redactor
    from frazil.web.access import HostRule
    from frazil.web.readiness import Readiness, State

# A state is true for a moment, and a browser must not guess what it is.
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

# Two requests at once; the answer is cached for a second.
PROBES_AT_ONCE: Final = 2


class Scraped(Protocol):
    """What /metrics shows."""

    def expose(self, accept: str = "") -> Exposition:
        """Everything recorded, in the format of the Accept header."""


def build_app(
    metrics: Scraped,
    readiness: Readiness,
    redactor: Redactor,
    routes: Sequence[BaseRoute] = (),
    *,
    hosts: HostRule,
) -> Starlette:
    """The application; every answer carries our headers, only GET and HEAD are served."""
    # Probes have threads of their own: pages that are slow take none of them away.
    probing = ThreadPoolExecutor(PROBES_AT_ONCE, thread_name_prefix="frazil probe")

    # A plain function runs in starlette's threads, so that a slow scrape holds up nothing.
    def scrape(request: Request) -> Response:
        if not hosts.allows(request.headers.get("host", "")):
            return _misdirected()
        shown = metrics.expose(request.headers.get("accept", ""))
        return Response(shown.body, headers={"content-type": shown.content_type})

    async def alive(_request: Request) -> Response:
        # On the loop itself: it must answer even when every thread is waiting for a source.
        return PlainTextResponse("ok")

    async def ready(request: Request) -> Response:
        if not hosts.allows(request.headers.get("host", "")):
            return _misdirected()
        report = await asyncio.get_running_loop().run_in_executor(probing, readiness.report)
        states = {
            redactor.redact(name): _shown(state, redactor) for name, state in report.states.items()
        }
        body: dict[str, object] = {"ready": report.ready, "checks": states}
        if not states:
            body["reason"] = NO_CHECKS.reason
        return JsonAnswer(body, status_code=200 if report.ready else HTTPStatus.SERVICE_UNAVAILABLE)

    app = Starlette(
        routes=[
            Route("/metrics", scrape, methods=["GET"]),
            Route("/healthz", alive, methods=["GET"]),
            Route("/readyz", ready, methods=["GET"]),
            *routes,
        ],
        middleware=[Middleware(_OurHeaders)],
    )
    app.router.redirect_slashes = False
    return app


def _misdirected() -> Response:
    text = "the Host header is not a name of this server; see telemetry.hosts"
    return PlainTextResponse(text, status_code=HTTPStatus.MISDIRECTED_REQUEST)


def _shown(state: State, redactor: Redactor) -> dict[str, object]:
    match state:
        case Ready():
            return {"ready": True}
        case NotReady(reason):
            return {"ready": False, "reason": redactor.redact(reason)}


class _OurHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class JsonAnswer(JSONResponse):
    """JSON that is safe to print on a terminal: names of tables are in it."""

    def render(self, content: object) -> bytes:
        """The document as bytes."""
        document = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return printable_json(document).encode()
