from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from frazil.config.models.observability import split_listen
from frazil.errors import ConfigError
from frazil.model.policy import LogFormat
from frazil.telemetry.logs import LogSettings, configure_logs
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web import server
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.readiness import Readiness, Ready
from frazil.web.server import Address, open_socket, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

# Far above what a busy machine needs.
PATIENCE = 60.0


LOCAL = HostRule(is_local=True)


def app() -> Starlette:
    redactor = Redactor()
    readiness = Readiness()
    readiness.add("source", Ready)
    metrics = Metrics("shop", release="1", redactor=redactor)
    return build_app(metrics, readiness, redactor, hosts=LOCAL)


def client() -> httpx.Client:
    # Loopback, whatever proxy the machine uses.
    return httpx.Client(trust_env=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9093", ("127.0.0.1", 9093)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9093", ("::1", 9093)),
        (":9093", ("", 9093)),
    ],
)
def test_addresses_are_understood(text: str, address: tuple[str, int]) -> None:
    assert split_listen(text) == address


@pytest.mark.parametrize("text", ["", "9093", "host", "host:", "::1:9093", "host:65536", "h:x"])
def test_what_is_no_address_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="host:port, :port for every interface"):
        split_listen(text)


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:9093", "[::1]:9093", ":9093"):
        assert str(Address(*split_listen(text))) == text


@pytest.mark.fault("U24")
def test_port_0_takes_a_free_one_and_serves_everything() -> None:
    with serving(app(), "127.0.0.1:0") as address, client() as http:
        assert address.port > 0
        root = f"http://{address}"
        alive = http.get(f"{root}/healthz")
        assert (alive.status_code, alive.text) == (200, "ok")
        assert "server" not in alive.headers
        assert http.get(f"{root}/readyz").json()["ready"] is True
        assert b"frazil_build_info" in http.get(f"{root}/metrics").content
        head = http.head(f"{root}/metrics")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["cache-control"] == "no-store"
        assert http.post(f"{root}/metrics").status_code == 405


def test_ipv6_loopback_is_served() -> None:
    # Checked without our code: what that refuses on a machine with IPv6 is a failure.
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    with serving(app(), "[::1]:0") as address, client() as http:
        assert http.get(f"http://{address}/healthz").text == "ok"


def test_a_port_alone_means_every_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    create, calls = socket.create_server, list[tuple[str, int]]()

    def on_loopback_after_all(address: tuple[str, int], **_options: object) -> socket.socket:
        calls.append(address)
        return create(("127.0.0.1", 0))

    for both in (True, False):
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda both=both: both)
        monkeypatch.setattr(socket, "create_server", on_loopback_after_all)
        open_socket(Address("", 9093)).close()
    assert calls == [("", 9093), ("", 9093)]


def test_a_port_in_use_is_one_clear_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError) as caught, serving(app(), listen):
            pass
    assert str(caught.value) == (
        f"cannot listen on {listen}: it is already in use. "
        "Next: choose another address in telemetry.listen."
    )


def test_an_address_of_another_machine_is_one_clear_sentence() -> None:
    # From the block reserved for documentation.
    with (
        pytest.raises(ConfigError, match="this machine does not have that address"),
        serving(app(), "192.0.2.1:0"),
    ):
        pass


def test_leaving_the_block_frees_the_port_and_ends_the_thread() -> None:
    with serving(app(), "127.0.0.1:0") as address, client() as http:
        http.get(f"http://{address}/healthz")
    assert not any(thread.name == "frazil web" for thread in threading.enumerate())
    with socket.create_server(("127.0.0.1", address.port)):
        pass


def test_a_request_under_way_is_answered_before_the_end() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(_request: Request) -> PlainTextResponse:
        entered.set()
        go_on.wait(PATIENCE)
        return PlainTextResponse("done")

    answers: list[str] = []
    with serving(Starlette(routes=[Route("/slow", slow)]), "127.0.0.1:0") as address:

        def send() -> None:
            with client() as http:
                answers.append(http.get(f"http://{address}/slow").text)

        request = threading.Thread(target=send)
        request.start()
        assert entered.wait(PATIENCE)
        threading.Timer(0.05, go_on.set).start()
    request.join(PATIENCE)
    assert answers == ["done"]


def test_requests_are_not_logged_and_failures_are_logged_redacted() -> None:
    def fail(_request: Request) -> PlainTextResponse:
        raise ValueError("canary-9911 in a handler")

    stream = io.StringIO()
    undo = configure_logs(LogSettings(format=LogFormat.JSON), Redactor(["canary-9911"]), stream)
    routes = [Route("/fail", fail)]
    redactor = Redactor(["canary-9911"])
    metrics = Metrics("shop", release="1", redactor=redactor)
    failing = build_app(metrics, Readiness(), redactor, routes=routes, hosts=LOCAL)
    try:
        with serving(failing, "127.0.0.1:0") as address, client() as http:
            assert http.get(f"http://{address}/healthz").status_code == 200
            answer = http.get(f"http://{address}/fail")
    finally:
        undo()
    assert answer.status_code == 500
    assert "canary" not in answer.text
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["level"] for event in events] == ["error"]
    assert "canary" not in stream.getvalue()
    assert "in a handler" in events[0]["exception"]


SLOW = 1000


@pytest.mark.fault("N49")
@pytest.mark.parametrize(
    "sent", [b"", b"GET /status HTTP/1.1\r\nHost: x\r\n"], ids=["idle", "slow"]
)
def test_probes_answer_despite_a_thousand_slow_connections(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by the clock: no connection is closed for being slow within this test.
    monkeypatch.setattr(server, "REQUEST_SECONDS", 600)
    with (
        serving(app(), "127.0.0.1:0") as address,
        contextlib.ExitStack() as connections,
        client() as http,
    ):
        for number in range(SLOW):
            slow = connections.enter_context(
                socket.create_connection((address.host, address.port), 30)
            )
            with contextlib.suppress(ConnectionError):
                slow.sendall(sent)
            if number % 100 == 99:
                for path in ("healthz", "readyz", "metrics"):
                    assert http.get(f"http://{address}/{path}").status_code == 200
        with client() as newcomer:
            assert newcomer.get(f"http://{address}/healthz").text == "ok"


@pytest.mark.fault("N49")
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_connection_that_sends_no_request_in_time_ends(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with (
        serving(app(), "127.0.0.1:0") as address,
        socket.create_connection((address.host, address.port), timeout=60) as slow,
    ):
        slow.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""


@pytest.mark.fault("N49")
def test_an_answer_that_is_not_read_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.5)
    left = threading.Event()

    async def endless(_request: Request) -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 2**20
                    await asyncio.sleep(0)
            finally:
                left.set()

        return StreamingResponse(body())

    routes = [Route("/endless", endless)]
    with (
        serving(Starlette(routes=routes), "127.0.0.1:0") as address,
        socket.create_connection((address.host, address.port), timeout=60) as slow,
    ):
        slow.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert left.wait(60)


@pytest.mark.fault("N49")
# More than there are threads for pages, and more than there may be connections.
@pytest.mark.parametrize("pages", [60, 150])
def test_probes_do_not_wait_for_slow_pages(pages: int) -> None:
    go_on = threading.Event()

    def slow(_request: Request) -> PlainTextResponse:
        go_on.wait(60)
        return PlainTextResponse("done")

    redactor, readiness = Redactor(), Readiness()
    readiness.add("source", Ready)
    metrics = Metrics("shop", release="1", redactor=redactor)
    slowed = build_app(metrics, readiness, redactor, [Route("/slow", slow)], hosts=LOCAL)
    with (
        serving(slowed, "127.0.0.1:0") as address,
        contextlib.ExitStack() as connections,
    ):
        try:
            for _ in range(pages):
                one = connections.enter_context(
                    socket.create_connection((address.host, address.port))
                )
                one.sendall(b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            for path in ("healthz", "readyz"):
                # On a connection of its own, as a kubelet asks.
                with client() as http:
                    assert http.get(f"http://{address}/{path}", timeout=30).status_code == 200
        finally:
            go_on.set()
