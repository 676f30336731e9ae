"""The faulty proxies break what they say they break, and nothing else."""

from __future__ import annotations

import http.client
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.support.faults.proxy import (
    Answer,
    AnswerInstead,
    CutReply,
    CutRequest,
    Delay,
    Exchange,
    Fault,
    HoldUntilReleased,
    HttpProxy,
    LoseReply,
    Pass,
    Refuse,
    Rewrite,
    TcpProxy,
    TimeOut,
    is_commit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Far above what a busy machine needs.
PATIENCE = 60.0

COMMIT = "/v1/shop/namespaces/sales/tables/orders"
LANDED = b'{"metadata-location": "v2"}'


class Catalog(BaseHTTPRequestHandler):
    """A catalog that remembers its requests and accepts every commit."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        assert isinstance(self.server, CatalogServer)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append((self.command, self.path, body))
        self.server.headers = dict(self.headers.items())
        self.send_response(204 if self.command == "DELETE" else 200)
        self.send_header("ETag", "v2")
        if self.command == "GET":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LANDED), LANDED))
            return
        if self.command != "DELETE":
            self.send_header("Content-Length", str(len(LANDED)))
        self.end_headers()
        self.wfile.write(LANDED if self.command in {"POST", "PURGE"} else b"")

    def log_message(self, *_: object) -> None:
        """Say nothing: the output belongs to pytest."""


for method in ("GET", "HEAD", "POST", "DELETE", "PURGE"):
    setattr(Catalog, f"do_{method}", Catalog.answer)


class CatalogServer(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Catalog)
        self.seen: list[tuple[str, str, bytes]] = []
        self.headers: dict[str, str] = {}


class Shout(socketserver.BaseRequestHandler):
    """A database that answers every request with the same text in capitals."""

    def handle(self) -> None:
        while data := self.request.recv(65536):
            assert isinstance(self.server, ShoutServer)
            self.server.seen.append(data)
            self.request.sendall(data.upper())


class ShoutServer(socketserver.ThreadingTCPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Shout)
        self.seen: list[bytes] = []


def serve(server: socketserver.BaseServer) -> threading.Thread:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    return thread


@pytest.fixture
def catalog() -> Iterator[CatalogServer]:
    with CatalogServer() as server:
        thread = serve(server)
        yield server
        server.shutdown()
        thread.join(PATIENCE)


@pytest.fixture
def proxy(catalog: CatalogServer) -> Iterator[HttpProxy]:
    with HttpProxy(f"http://127.0.0.1:{catalog.server_port}", keep_bodies=True) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: HttpProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=PATIENCE)
    yield connection
    connection.close()


@pytest.fixture
def database() -> Iterator[ShoutServer]:
    with ShoutServer() as server:
        thread = serve(server)
        yield server
        server.shutdown()
        thread.join(PATIENCE)


@pytest.fixture
def wire(database: ShoutServer) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", database.server_address[1]) as proxy:
        yield proxy


def send(
    client: http.client.HTTPConnection, method: str = "POST", path: str = COMMIT
) -> tuple[int, bytes]:
    client.request(method, path, b"{}" if method == "POST" else None)
    with client.getresponse() as response:
        return response.status, response.read()


def say(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(65536)


def test_everything_passes_over_one_connection_while_nothing_is_scripted(
    proxy: HttpProxy, client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    assert send(client) == (200, LANDED)
    port = client.sock.getsockname()[1]
    assert send(client, "GET", "/v1/config?warehouse=a%20b") == (200, LANDED)
    assert send(client, "HEAD") == (200, b"")
    assert send(client, "DELETE") == (204, b"")
    assert send(client, "PURGE") == (200, LANDED)
    assert client.sock.getsockname()[1] == port
    assert [method for method, _, _ in catalog.seen] == ["POST", "GET", "HEAD", "DELETE", "PURGE"]
    assert catalog.seen[1][1] == "/v1/config?warehouse=a%20b"
    assert proxy.requests[0] == Exchange("POST", COMMIT, Pass(), b"{}", True, 200)  # noqa: FBT003


def test_headers_pass_but_the_host_is_the_upstream(
    client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    client.request("POST", COMMIT, b"{}", {"Authorization": "Bearer t", "Connection": "close"})
    with client.getresponse() as response:
        assert response.headers["ETag"] == "v2"
    assert catalog.headers["Authorization"] == "Bearer t"
    assert catalog.headers["Host"] == f"127.0.0.1:{catalog.server_port}"
    assert "Connection" not in catalog.headers


def test_a_chunked_body_arrives_completely(
    client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    client.request("POST", COMMIT, iter([b"a" * 70_000, b"b"]), encode_chunked=True)
    with client.getresponse() as response:
        assert response.status == 200
    assert catalog.seen[0][2] == b"a" * 70_000 + b"b"
    assert send(client) == (200, LANDED)


@pytest.mark.parametrize(
    "half",
    [
        b"Content-Length: 5\r\n\r\nab",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    ],
)
def test_half_a_request_is_never_forwarded(
    half: bytes, proxy: HttpProxy, catalog: CatalogServer
) -> None:
    port = int(proxy.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(b"POST " + COMMIT.encode() + b" HTTP/1.1\r\n" + half)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert (proxy.requests, catalog.seen) == ((), [])


@pytest.mark.parametrize(
    ("method", "path", "matches"),
    [
        ("POST", COMMIT, True),
        ("POST", "/v1/namespaces/a%1Fb/tables/t", True),
        ("POST", "/api/v1/deep/prefix/namespaces/a/tables/t?x=1", True),
        ("GET", COMMIT, False),
        ("POST", "/v1/namespaces/a/tables", False),
        ("POST", COMMIT + "/metrics", False),
        ("POST", COMMIT + "/plan", False),
        ("POST", "/v1/tables/rename", False),
    ],
)
def test_only_commits_to_a_table_are_commits(method: str, path: str, *, matches: bool) -> None:
    assert is_commit(method, path, b"") is matches


def test_faults_meet_matching_requests_in_order_and_then_end(
    proxy: HttpProxy, client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    proxy.script(is_commit, Answer(409, b"no"), Pass(), Answer(429, headers={"Retry-After": "1"}))
    assert send(client, "GET") == (200, LANDED)
    assert send(client) == (409, b"no")
    assert send(client) == (200, LANDED)
    client.request("POST", COMMIT)
    with client.getresponse() as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        response.read()
    assert send(client) == (200, LANDED)
    assert [request.forwarded for request in proxy.requests] == [True, False, True, False, True]
    assert len(catalog.seen) == 3


@pytest.mark.parametrize("status", [409, 500, 502, 503, 504])
def test_a_commit_answered_instead_lands_but_the_client_hears_failure(
    status: int, proxy: HttpProxy, client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    proxy.script(is_commit, AnswerInstead(status))
    assert send(client) == (status, b"")
    assert catalog.seen == [("POST", COMMIT, b"{}")]
    assert proxy.requests[0].upstream_status == 200


@pytest.mark.parametrize(("fault", "lands"), [(LoseReply(), 1), (Refuse(), 0)])
def test_the_connection_ends_without_a_byte(
    fault: Fault,
    lands: int,
    proxy: HttpProxy,
    client: http.client.HTTPConnection,
    catalog: CatalogServer,
) -> None:
    proxy.script(is_commit, fault)
    with pytest.raises(http.client.RemoteDisconnected):
        send(client)
    assert len(catalog.seen) == lands
    assert proxy.requests[0].upstream_status == (200 if lands else None)
    assert send(client) == (200, LANDED)


@pytest.mark.parametrize(("after_bytes", "heard"), [(0, 0), (5, 5), (999, len(LANDED) - 1)])
def test_a_cut_reply_promises_more_than_it_sends(
    after_bytes: int,
    heard: int,
    proxy: HttpProxy,
    client: http.client.HTTPConnection,
    catalog: CatalogServer,
) -> None:
    proxy.script(is_commit, CutReply(after_bytes))
    with pytest.raises(http.client.IncompleteRead) as cut:
        send(client)
    assert cut.value.partial == LANDED[:heard]
    assert cut.value.expected == len(LANDED) - heard
    assert len(catalog.seen) == 1


def test_a_cut_request_reaches_the_upstream_in_half() -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        got: list[bytes] = []

        def listen() -> None:
            with upstream.accept()[0] as connection:
                while data := connection.recv(65536):
                    got.append(data)

        listening = threading.Thread(target=listen)
        listening.start()
        with HttpProxy(f"http://127.0.0.1:{upstream.getsockname()[1]}") as proxy:
            client = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=PATIENCE)
            proxy.script(is_commit, CutRequest())
            client.request("POST", COMMIT, b"halfhere")
            with pytest.raises(http.client.RemoteDisconnected):
                client.getresponse()
            client.close()
        listening.join(PATIENCE)
    head, _, body = b"".join(got).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b"half"


def test_a_reply_is_rewritten(proxy: HttpProxy, client: http.client.HTTPConnection) -> None:
    proxy.script(is_commit, Rewrite(lambda body: body.replace(b"v2", b"version 1")))
    assert send(client) == (200, LANDED.replace(b"v2", b"version 1"))
    assert send(client) == (200, LANDED)


def test_a_delayed_request_lands_later(
    proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    proxy.script(is_commit, Delay(0.1))
    began = time.monotonic()
    assert send(client) == (200, LANDED)
    assert time.monotonic() - began >= 0.1


def test_a_delayed_commit_lands_after_its_client_timed_out(
    proxy: HttpProxy, client: http.client.HTTPConnection, catalog: CatalogServer
) -> None:
    proxy.script(is_commit, HoldUntilReleased("late"))
    client.timeout = 0.1
    with pytest.raises(TimeoutError):
        send(client)
    client.close()
    proxy.wait_withheld("late")
    assert catalog.seen == []
    assert not proxy.requests[0].forwarded
    assert proxy.release("late") == 200
    assert proxy.late_results == {"late": 200}
    assert catalog.seen == [("POST", COMMIT, b"{}")]
    assert proxy.requests[0].upstream_status == 200


def test_a_delayed_commit_answers_a_client_that_waited(
    proxy: HttpProxy, client: http.client.HTTPConnection
) -> None:
    proxy.script(is_commit, HoldUntilReleased("late"))
    client.request("POST", COMMIT, b"{}")
    assert proxy.release("late") == 200
    with client.getresponse() as response:
        assert response.read() == LANDED


def test_requests_without_an_answer_end_with_the_proxy_and_never_land(
    catalog: CatalogServer,
) -> None:
    threads = threading.active_count()
    with HttpProxy(f"http://127.0.0.1:{catalog.server_port}") as proxy:
        proxy.script(is_commit, TimeOut(), HoldUntilReleased("never"), Delay(60))
        clients = [http.client.HTTPConnection(proxy.url.removeprefix("http://")) for _ in "abc"]
        for client in clients:
            client.request("POST", COMMIT, b"{}")
        proxy.wait_withheld("never")
        clients[0].sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            clients[0].sock.recv(1)
    for client in clients:
        client.close()
    assert not any(request.forwarded for request in proxy.requests)
    assert {request.body for request in proxy.requests} == {None}
    assert catalog.seen == []
    assert threading.active_count() == threads


def test_an_upstream_that_is_down_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with HttpProxy(f"http://127.0.0.1:{port}") as proxy:
        client = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=PATIENCE)
        with pytest.raises(http.client.RemoteDisconnected):
            send(client)
        assert proxy.requests == (Exchange("POST", COMMIT, Pass()),)


def dial(wire: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", wire.port), timeout=PATIENCE)


def test_bytes_pass_both_ways_until_a_cut_is_requested(wire: TcpProxy) -> None:
    with dial(wire) as one, dial(wire) as other:
        assert say(one, b"select") == b"SELECT"
        assert say(other, b"insert") == b"INSERT"
    assert (wire.connections, wire.cuts) == (2, 0)


def test_a_cut_reply_reached_the_database_and_resets_only_that_connection(
    wire: TcpProxy, database: ShoutServer
) -> None:
    wire.cut_replies_when(lambda sent: b"update iceberg_tables" in sent)
    with dial(wire) as loser, dial(wire) as bystander:
        assert say(loser, b"begin") == b"BEGIN"
        with pytest.raises(ConnectionResetError):
            say(loser, b"update iceberg_tables")
        assert database.seen == [b"begin", b"update iceberg_tables"]
        assert say(bystander, b"update iceberg_tables") == b"UPDATE ICEBERG_TABLES"
    with dial(wire) as later:
        assert say(later, b"update iceberg_tables") == b"UPDATE ICEBERG_TABLES"
    assert (wire.connections, wire.cuts) == (3, 1)


def test_what_was_answered_before_is_no_cue(wire: TcpProxy) -> None:
    with dial(wire) as connection:
        assert say(connection, b"commit") == b"COMMIT"
        wire.cut_replies_when(lambda sent: b"commit" in sent)
        assert say(connection, b"select") == b"SELECT"
        with pytest.raises(ConnectionResetError):
            say(connection, b"commit")


def test_an_outage_ends_open_connections_and_refuses_new_ones(
    wire: TcpProxy, database: ShoutServer
) -> None:
    with dial(wire) as connection:
        assert say(connection, b"select") == b"SELECT"
        wire.refuse_all()
        assert connection.recv(1) == b""
    # The reset may come while connecting, while speaking or while listening.
    with pytest.raises(ConnectionError), dial(wire) as refused:
        say(refused, b"select")
    wire.allow_all()
    with dial(wire) as connection:
        assert say(connection, b"select") == b"SELECT"
    assert database.seen == [b"select", b"select"]
    assert wire.connections == 3
