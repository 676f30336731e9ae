from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from frazil.telemetry.metric_names import INDEX_BYTES
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.readiness import NotReady, Readiness, Ready

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

CANARY = "canary-77aa/'\"x"


class Client:
    """Calls the application without a socket; starlette's own client needs another httpx."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def request(self, method: str, path: str, accept: str = "*/*") -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
                return await http.request(method, path, headers={"accept": accept})

        return asyncio.run(send())

    def get(self, path: str, accept: str = "*/*") -> httpx.Response:
        return self.request("GET", path, accept)


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
def client(readiness: Readiness) -> Client:
    redactor = Redactor([CANARY])
    metrics = Metrics("shop", release="1", redactor=redactor)
    metrics.set(INDEX_BYTES, 5, table=CANARY)

    async def extra(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("more", headers={"cache-control": "max-age=60"})

    app = build_app(
        metrics,
        readiness,
        redactor,
        routes=[Route("/extra", extra)],
        hosts=HostRule(is_local=False),
    )
    return Client(app)


def test_metrics_are_text_by_default(client: Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'frazil_index_bytes{pipeline="shop",table="***"} 5.0' in answer.text
    assert "canary" not in answer.text


def test_metrics_are_openmetrics_on_request(client: Client) -> None:
    answer = client.get("/metrics", "application/openmetrics-text")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "canary" not in answer.text


def test_alive_is_ok_even_when_nothing_is_ready(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")


def test_not_ready_before_any_check_ran(client: Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "checks": {}, "reason": "the process is starting"}


def test_ready_lists_each_check(client: Client, readiness: Readiness) -> None:
    readiness.add("source", Ready)
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "checks": {"source": {"ready": True}}}


def test_reasons_are_redacted(client: Client, readiness: Readiness) -> None:
    def fail() -> Ready:
        message = f"connection to postgres://app:other@db failed with {CANARY}"
        raise OSError(message)

    readiness.add(f"source {CANARY}", lambda: NotReady(f"refused {CANARY}"))
    readiness.add("catalog", fail)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "canary" not in answer.text
    assert answer.json()["checks"] == {
        "source ***": {"ready": False, "reason": "refused ***"},
        "catalog": {
            "ready": False,
            "reason": "OSError: connection to postgres://app:***@db failed with ***",
        },
    }


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nowhere", "/"])
def test_every_answer_carries_our_headers(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_head_is_served_and_writing_is_not(client: Client, path: str) -> None:
    assert client.request("HEAD", path).status_code == client.get(path).status_code
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, path).status_code == 405


@pytest.mark.parametrize("path", ["/nowhere", "/metrics/", "/status"])
def test_an_unknown_path_is_a_short_404(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert len(answer.text) < 40


def test_routes_may_be_added_and_may_say_how_long_they_keep(client: Client) -> None:
    answer = client.get("/extra")
    assert answer.text == "more"
    assert answer.headers["cache-control"] == "max-age=60"
