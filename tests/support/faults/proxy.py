"""Proxies that break the conversation with a real catalog, on cue and from outside.

`HttpProxy` is before a REST catalog, `TcpProxy` before the database of a JDBC catalog. Both
pass everything on until a test scripts a fault, and leave neither sockets nor threads behind.
"""

from __future__ import annotations

import http.client
import re
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Self, TypeAlias
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
# Far above any healthy step, far below pytest's own limit.
PATIENCE_SECONDS = 120.0
CHUNK_BYTES = 64 * 1024
# They describe one connection, so they are not passed on (RFC 9110, 7.6.1): the proxy frames bodies
# again, names the upstream as host and answers `Expect` itself.
HOP_BY_HOP = re.compile(
    "(?i)connection|content-length|expect|host|keep-alive|te|trailer|transfer-encoding|upgrade"
)
COMMIT_PATH = re.compile(r"/v1/(?:[^?]+/)?namespaces/[^/?]+/tables/[^/?]+(?:\?.*)?$")

Match: TypeAlias = Callable[[str, str, bytes], bool]
Headers: TypeAlias = Mapping[str, str]


def is_commit(method: str, path: str, _body: bytes) -> bool:
    """Match a commit to one table: not its creation, its metrics or its scan plans."""
    return method == "POST" and COMMIT_PATH.search(path) is not None


@dataclass(frozen=True)
class Pass:
    """Forward the request and its reply."""


@dataclass(frozen=True)
class Answer:
    """Answer without forwarding: the request never lands."""

    status: int
    body: bytes = b""
    headers: Headers = field(default_factory=dict)


@dataclass(frozen=True)
class AnswerInstead:
    """Forward, throw the reply away and answer this: the request lands and the client is misled."""

    status: int


@dataclass(frozen=True)
class LoseReply:
    """Forward, then close the client's connection without a byte."""


@dataclass(frozen=True)
class CutReply:
    """Forward, then send the head and so much of the body; the last byte is always missing."""

    after_bytes: int = 0


@dataclass(frozen=True)
class Refuse:
    """Close the client's connection without forwarding."""


@dataclass(frozen=True)
class CutRequest:
    """Forward the head and half of the body, then end both connections."""


@dataclass(frozen=True)
class Rewrite:
    """Forward, and answer what the function makes of the reply's body."""

    body: Callable[[bytes], bytes]


@dataclass(frozen=True)
class Delay:
    """Wait, then forward."""

    seconds: float


@dataclass(frozen=True)
class HoldUntilReleased:
    """Forward once the name is released, though the client may have left; one name, one request."""

    name: str


@dataclass(frozen=True)
class TimeOut:
    """Neither forward nor answer until the proxy closes."""


Unforwarded: TypeAlias = Answer | Refuse | TimeOut
Forwarded: TypeAlias = (
    Pass | AnswerInstead | LoseReply | CutReply | Rewrite | Delay | HoldUntilReleased
)
Fault: TypeAlias = Unforwarded | Forwarded | CutRequest


@dataclass(frozen=True)
class Exchange:
    """What became of one request, as known before the client receives it."""

    method: str
    path: str
    fault: Fault
    body: bytes | None = None
    forwarded: bool = False
    upstream_status: int | None = None


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    headers: Headers
    body: bytes
    keeps_alive: bool


class _Listener:
    """Serve each connection to a free local port in its own thread, until closed."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.closed = False
        # A proxy's only lock: a change of state wakes the threads that wait for it.
        self.changed = threading.Condition()
        self.port = 0

    def start(self) -> None:
        server = socket.create_server((LOOPBACK, 0))
        self.port = server.getsockname()[1]
        self._spawn(self._accept, server)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.hang_up()
        # Only a connection wakes a blocked accept() on every platform; one may just have come.
        with suppress(OSError):
            socket.create_connection((LOOPBACK, self.port), timeout=PATIENCE_SECONDS).close()
        # The first thread accepts: once it has ended, the list no longer grows.
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a connection of the proxy does not end"

    def hang_up(self) -> None:
        """Wake the threads of all open connections; each closes its own sockets."""
        with self.changed:
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def owned(self, sock: socket.socket) -> Iterator[None]:
        """Close the socket in the end, and let `hang_up` reach it until then."""
        with sock:
            with self.changed:
                if self.closed:
                    raise ConnectionAbortedError("the proxy is closing")
                self._sockets.add(sock)
            try:
                yield
            finally:
                with self.changed:
                    self._sockets.remove(sock)

    def wait(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for the state, the time-out or the end of the proxy; False is the time-out."""
        with self.changed:
            return self.changed.wait_for(lambda: self.closed or until(), timeout)

    def _spawn(self, work: Callable[[socket.socket], None], sock: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=(sock,), daemon=True))
        self._threads[-1].start()

    def _accept(self, server: socket.socket) -> None:
        with server:
            while not self.closed:
                self._spawn(self._attend, server.accept()[0])

    def _attend(self, client: socket.socket) -> None:
        # Peers that leave are the point of these proxies. Any other error fails the test: pytest
        # reports what a thread raises.
        with suppress(OSError, http.client.HTTPException), self.owned(client):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve(client)


class HttpProxy:
    """Forward HTTP/1.1 to a REST catalog or an object store, with faults request by request.

    ``keep_host`` is for object stores, whose clients sign the name that they called.
    """

    def __init__(
        self, upstream: str, *, keep_bodies: bool = False, keep_host: bool = False
    ) -> None:
        self._upstream = urlsplit(upstream)
        self._keep_host = keep_host
        self._keep_bodies = keep_bodies
        self._listener = _Listener(self._serve)
        self._rules: list[tuple[Match, deque[Fault]]] = []
        self._withheld: set[str] = set()
        self._released: set[str] = set()
        # Every request in order of arrival; replaced, never changed, so readers need no lock.
        self.requests: tuple[Exchange, ...] = ()
        # The upstream's status for each request that was withheld, None if it gave none.
        self.late_results: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        """The address that clients use instead of the upstream's."""
        return f"http://{LOOPBACK}:{self._listener.port}{self._upstream.path}"

    def script(self, match: Match, *faults: Fault) -> None:
        """Give one fault to each matching request, oldest rule first, then let them pass."""
        with self._listener.changed:
            self._rules.append((match, deque(faults)))

    def heal(self) -> None:
        """Forget every fault that has not come yet."""
        with self._listener.changed:
            self._rules.clear()

    def wait_withheld(self, name: str) -> None:
        """Wait until a request is withheld under the name."""
        withheld = self._listener.wait(lambda: name in self._withheld, PATIENCE_SECONDS)
        assert withheld, f"no request is withheld as {name!r}"

    def release(self, name: str) -> int | None:
        """Forward the request withheld under the name, and return the upstream's status."""
        self.wait_withheld(name)
        with self._listener.changed:
            self._released.add(name)
            self._listener.changed.notify_all()
        landed = self._listener.wait(lambda: name in self.late_results, PATIENCE_SECONDS)
        assert landed, f"the upstream does not answer {name!r}"
        return self.late_results[name]

    def _serve(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            while request := _load_request(stream, client):
                index, fault = self._record(request)
                wire = self._respond(request, fault, index)
                client.sendall(wire)
                if not wire or isinstance(fault, CutReply) or not request.keeps_alive:
                    return

    def _record(self, request: _Request) -> tuple[int, Fault]:
        request_line = (request.method, request.path, request.body)
        with self._listener.changed:
            scripted = (faults for match, faults in self._rules if faults and match(*request_line))
            fault = next(scripted, deque[Fault]([Pass()])).popleft()
            body = request.body if self._keep_bodies else None
            self.requests += (Exchange(request.method, request.path, fault, body),)
            return len(self.requests) - 1, fault

    def _note(self, index: int, *, upstream_status: int | None) -> None:
        with self._listener.changed:
            recorded = replace(
                self.requests[index], forwarded=True, upstream_status=upstream_status
            )
            self.requests = (*self.requests[:index], recorded, *self.requests[index + 1 :])

    def _respond(self, request: _Request, fault: Fault, index: int) -> bytes:
        """The bytes for the client; none means that its connection just ends."""
        match fault:
            case Answer():
                return _wire(request, fault)
            case Refuse():
                return b""
            case TimeOut():
                self._listener.wait(lambda: False)
                return b""
            case Delay(seconds):
                self._listener.wait(lambda: False, seconds)
            case HoldUntilReleased(name):
                return _spoil(request, fault, self._hold(request, name, index))
            case CutRequest():
                return _spoil(request, fault, self._forward(request, index, half=True))
        return _spoil(request, fault, self._forward(request, index))

    def _hold(self, request: _Request, name: str, index: int) -> Answer | None:
        with self._listener.changed:
            self._withheld.add(name)
            self._listener.changed.notify_all()
        self._listener.wait(lambda: name in self._released)
        reply = self._forward(request, index)
        with self._listener.changed:
            self.late_results[name] = reply.status if reply else None
            self._listener.changed.notify_all()
        return reply

    def _forward(self, request: _Request, index: int, *, half: bool = False) -> Answer | None:
        """The upstream's reply, over a new connection: a stale one would be another fault."""
        host, port = self._upstream.hostname or LOOPBACK, self._upstream.port
        upstream = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
        called = request.headers.get("Host", "") if self._keep_host else ""
        headers = _end_to_end(request.headers) | {"Host": called or self._upstream.netloc}
        body = request.body
        if half:
            headers, body = headers | {"Content-Length": str(len(body))}, body[: len(body) // 2]
        with suppress(OSError, http.client.HTTPException), closing(upstream):
            if self._listener.closed:
                return None
            upstream.connect()
            with self._listener.owned(upstream.sock):
                self._note(index, upstream_status=None)
                upstream.request(request.method, request.path, body or None, headers)
                if half:
                    return None
                with upstream.getresponse() as got:
                    reply = Answer(got.status, got.read(), dict(got.getheaders()))
            self._note(index, upstream_status=reply.status)
            return reply
        return None


def _spoil(request: _Request, fault: Fault, reply: Answer | None) -> bytes:
    if reply is None or isinstance(fault, LoseReply):
        return b""
    if isinstance(fault, AnswerInstead):
        return _wire(request, Answer(fault.status))
    if isinstance(fault, Rewrite):
        reply = replace(reply, body=fault.body(reply.body))
    wire = _wire(request, reply)
    if isinstance(fault, CutReply):
        head = wire.index(b"\r\n\r\n") + 4
        return wire[: min(head + fault.after_bytes, len(wire) - 1)]
    return wire


def _end_to_end(headers: Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not HOP_BY_HOP.fullmatch(name)}


def _wire(request: _Request, reply: Answer) -> bytes:
    headers, body = _end_to_end(reply.headers), reply.body
    # These have no body, and a length would make some clients wait for one; that of a HEAD is sent.
    if request.method == "HEAD" or reply.status in {204, 304}:
        body = b""
        lengths = [name for name in reply.headers if name.lower() == "content-length"]
        if request.method == "HEAD" and lengths:
            headers["Content-Length"] = reply.headers[lengths[0]]
    else:
        headers["Content-Length"] = str(len(body))
    lines = [f"HTTP/1.1 {reply.status} {http.client.responses.get(reply.status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _load_request(stream: BinaryIO, client: socket.socket) -> _Request | None:
    line = stream.readline(CHUNK_BYTES)
    if not line:
        return None
    method, path, version = line.decode("latin-1").split()
    headers = http.client.parse_headers(stream)
    if headers.get("Expect", "").lower() == "100-continue":
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    keeps_alive = version == "HTTP/1.1" and headers.get("Connection", "").lower() != "close"
    named = {name.title(): value for name, value in headers.items()}
    return _Request(method, path, named, _load_body(stream, headers), keeps_alive)


def _load_body(stream: BinaryIO, headers: http.client.HTTPMessage) -> bytes:
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        return _load_exactly(stream, int(headers.get("Content-Length", "0")))
    body = b""
    # The last chunk is empty. No line at all is a client that left: then the next read fails.
    while size := int(stream.readline().split(b";")[0] or b"-1", 16):
        body += _load_exactly(stream, size + 2)[:-2]
    http.client.parse_headers(stream)
    return body


def _load_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise http.client.IncompleteRead(data, size - len(data))
    return data


class TcpProxy:
    """Forward plain TCP to a database, with replies cut on cue."""

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        self._upstream = (upstream_host, upstream_port)
        self._listener = _Listener(self._serve)
        self._cues: list[Callable[[bytes], bool]] = []
        self._refusing = False
        # How many connections were opened, and how many of them lost a reply.
        self.connections = 0
        self.cuts = 0

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that clients use instead of the upstream's."""
        return self._listener.port

    def cut_replies_when(self, cue: Callable[[bytes], bool]) -> None:
        """Drop the reply to the next request that matches, then reset its connection.

        The cue sees all that the client sent since the last reply. A statement that the driver has
        prepared on the server no longer shows its text.
        """
        with self._listener.changed:
            self._cues.append(cue)

    def refuse_all(self) -> None:
        """Reset new connections and end the open ones, as in an outage."""
        self._refusing = True
        self._listener.hang_up()

    def allow_all(self) -> None:
        """Let new connections through again."""
        self._refusing = False

    def _serve(self, client: socket.socket) -> None:
        with self._listener.changed:
            self.connections += 1
        if self._refusing:
            _reset(client)
            return
        upstream = socket.create_connection(self._upstream, timeout=PATIENCE_SECONDS)
        with self._listener.owned(upstream):
            upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pump(client, upstream)

    def _pump(self, client: socket.socket, upstream: socket.socket) -> None:
        sent, cued = b"", False
        # One thread owns both directions, as a socket that another one reads cannot be reset.
        while True:
            for source in select.select([client, upstream], [], [])[0]:
                data = source.recv(CHUNK_BYTES)
                if not data:
                    return
                if source is client:
                    upstream.sendall(data)
                    sent = (sent + data)[-CHUNK_BYTES:]
                    cued = cued or self._is_cue(sent)
                elif cued:
                    self._cut(client)
                    return
                else:
                    client.sendall(data)
                    sent = b""

    def _is_cue(self, sent: bytes) -> bool:
        with self._listener.changed:
            met = [cue for cue in self._cues if cue(sent)][:1]
            self._cues = [cue for cue in self._cues if cue not in met]
            return bool(met)

    def _cut(self, client: socket.socket) -> None:
        with self._listener.changed:
            self.cuts += 1
        _reset(client)


def _reset(sock: socket.socket) -> None:
    # Closing without lingering sends RST instead of FIN.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
