"""One request to etcd at a time, to whichever endpoint answers."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from frazil.clients.etcd.transactions import (
    MOST_NESTED,
    MOST_OPERATIONS,
    Txn,
    outcome_from_json,
)
from frazil.errors import (
    ConfigError,
    FrazilError,
    LeaseLostError,
    PermissionError,  # noqa: A004 - the published name of this error
    SourceUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from urllib.parse import SplitResult

    from frazil.clients.etcd.transactions import KeyValue, Outcome, Range
    from frazil.clients.postgres.dsn import SecretText

# What KafScale's own processor waits for a connection.
TIMEOUT_SECONDS: Final = 5.0
# Hundreds of thousands of keys fit; what is larger is something else.
_LARGEST_ANSWER: Final = 64 * 2**20
_OK: Final = 200
_ADDRESS: Final = "check source.etcd.endpoints, and whether etcd runs"
_TLS: Final = "set source.etcd.ca to the file with the CA of its certificate"
_CREDENTIALS: Final = "check source.etcd.username and password, and the roles of that user"

# Of gRPC, which the gateway passes on.
_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_PERMISSION_DENIED: Final = 7
_FAILED_PRECONDITION: Final = 9
_UNAUTHENTICATED: Final = 16
# A token that was never given, has expired, or is older than a change of users or roles.
_STALE_TOKEN: Final = frozenset({_UNAUTHENTICATED, _INVALID_ARGUMENT})
# UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE: another endpoint may have a leader.
_NO_ANSWER: Final = frozenset({2, 4, 13, 14})

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int | None
    """The code of an error; None is a success."""
    document: Mapping[str, Any]
    endpoint: str


class _UnsentError(Exception):
    """No connection was made, so that nothing can have happened."""


class _NoAnswerError(Exception):
    """Something came back that does not say what happened."""


class Etcd:
    """A cluster of etcd; usable by several threads.

    Each request has a connection of its own: after a failure of one that was kept, it would not be
    known whether a transaction was carried out. For the same reason a transaction is sent to
    another endpoint only if it was not sent to the first: SourceUnavailableError can mean that it
    was carried out, and the caller reads what is there.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        username: str | None = None,
        password: SecretText | None = None,
        ca: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._endpoints = tuple(urlsplit(endpoint) for endpoint in endpoints)
        self._credentials = (username, password) if username is not None else None
        self._timeout = timeout_seconds
        self._tls = _tls_context(ca) if any(e.scheme == "https" for e in self._endpoints) else None
        self._preferred = 0
        self._token: str | None = None

    def commit(self, transaction: Txn) -> Outcome:
        """Carry it out once; SourceUnavailableError when that is not known."""
        return self._ask("kv/txn", transaction.to_json(), outcome_from_json, repeatable=False)

    def read(self, transaction: Txn) -> Outcome:
        """Carry out a transaction that changes nothing: from whichever endpoint can answer."""
        return self._ask("kv/txn", transaction.to_json(), outcome_from_json, repeatable=True)

    def commit_each(self, transactions: Sequence[Txn]) -> list[Outcome]:
        """Carry each out by itself, many in one request; a request is carried out whole or not."""
        return [
            outcome
            for first in range(0, len(transactions), MOST_NESTED)
            for outcome in self.commit(Txn(transactions[first : first + MOST_NESTED])).nested
        ]

    def read_each(self, ranges: Sequence[Range]) -> list[tuple[KeyValue, ...]]:
        """What each finds."""
        return [
            found
            for first in range(0, len(ranges), MOST_OPERATIONS)
            for found in self.read(Txn(ranges[first : first + MOST_OPERATIONS])).found
        ]

    def grant_lease(self, seconds: int) -> tuple[int, int]:
        """A new lease, and the seconds until it ends: not fewer than asked for."""
        # One that is granted twice ends by itself.
        return self._ask("lease/grant", {"TTL": str(seconds)}, _lease, repeatable=True)

    def keep_lease_alive(self, lease: int) -> int:
        """Restart the time of a lease, and return it; 0: the lease has ended."""
        return self._ask(
            "lease/keepalive",
            {"ID": str(lease)},
            lambda answer: int(answer["result"].get("TTL", 0)),
            repeatable=True,
        )

    def revoke_lease(self, lease: int) -> None:
        """End a lease; etcd deletes its keys at once, and no others."""
        try:
            self._ask("lease/revoke", {"ID": str(lease)}, lambda _: None, repeatable=True)
        except LeaseLostError:
            return

    def _ask(
        self,
        path: str,
        request: Mapping[str, object],
        read: Callable[[Mapping[str, Any]], _Read],
        *,
        repeatable: bool,
    ) -> _Read:
        answer = self._authorised(path, request, repeatable=repeatable)
        if answer.code in _STALE_TOKEN and self._credentials is not None:
            # Refused before anything was done.
            self._token = None
            answer = self._authorised(path, request, repeatable=repeatable)
        if answer.code is not None:
            raise _refusal(answer)
        return _read(answer, read)

    def _authorised(self, path: str, request: Mapping[str, object], *, repeatable: bool) -> _Answer:
        if self._credentials is not None and self._token is None:
            self._token = self._authenticate(*self._credentials)
        return self._send(path, request, self._token, repeatable=repeatable)

    def _authenticate(self, username: str, password: SecretText | None) -> str | None:
        secret = "" if password is None else password.get_secret_value()
        answer = self._send(
            "auth/authenticate", {"name": username, "password": secret}, None, repeatable=True
        )
        if answer.code == _FAILED_PRECONDITION:
            # Authentication is not switched on: anybody may do everything.
            return None
        if answer.code in _STALE_TOKEN:
            message = f"etcd at {answer.endpoint} does not accept the user or the password."
            raise PermissionError(message, next_step=_CREDENTIALS)
        if answer.code is not None:
            raise _refusal(answer)
        return _read(answer, lambda document: str(document["token"]))

    def _send(
        self, path: str, request: Mapping[str, object], token: str | None, *, repeatable: bool
    ) -> _Answer:
        body = json.dumps(request).encode()
        problem: FrazilError | None = None
        for index in self._in_order():
            try:
                answer = self._send_to(self._endpoints[index], path, body, token)
            except _UnsentError as error:
                problem = _unreachable(self._endpoints[index], error.__cause__)
            except (OSError, http.client.HTTPException, _NoAnswerError) as error:
                problem = _unreachable(self._endpoints[index], error)
                if not repeatable:
                    raise problem from error
            else:
                self._preferred = index
                return answer
        if problem is None:
            raise ConfigError("etcd has no address.", next_step="set source.etcd.endpoints")
        raise problem

    def _in_order(self) -> Iterator[int]:
        first, count = self._preferred, len(self._endpoints)
        return ((first + step) % count for step in range(count))

    def _send_to(self, endpoint: SplitResult, path: str, body: bytes, token: str | None) -> _Answer:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = token
        connection = self._connection(endpoint)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _UnsentError from error
            connection.request("POST", f"{endpoint.path.rstrip('/')}/v3/{path}", body, headers)
            response = connection.getresponse()
            return _understood(_shown(endpoint), response.status, response.read(_LARGEST_ANSWER))
        finally:
            connection.close()

    def _connection(self, endpoint: SplitResult) -> http.client.HTTPConnection:
        # Not urllib: it would follow redirects, and use proxies named in the environment.
        host, port = endpoint.hostname or "", endpoint.port
        if self._tls is not None and endpoint.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _tls_context(ca: Path | None) -> ssl.SSLContext:
    """Certificates are always verified, and the host's name with them."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        message = f"source.etcd.ca: {ca} cannot be read as certificates."
        raise ConfigError(message, next_step=_TLS) from error
    # Later Pythons refuse a CA without fields that etcd's own clients do not demand.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _understood(endpoint: str, status: int, body: bytes) -> _Answer:
    try:
        document = json.loads(body)
    except ValueError as error:
        message = f"answers with HTTP status {status} and not as etcd's JSON gateway does"
        raise _NoAnswerError(message) from error
    if not isinstance(document, dict):
        message = "does not answer as etcd's JSON gateway does"
        raise _NoAnswerError(message)
    # An error of a stream, such as that of renewals, comes with status 200.
    failure = document.get("error", document) if status == _OK else document
    code = failure.get("code") if isinstance(failure, dict) else None
    if status != _OK and not isinstance(code, int):
        message = f"answers with HTTP status {status}"
        raise _NoAnswerError(message)
    if code in _NO_ANSWER:
        message = f"cannot serve it: {_said(document)}"
        raise _NoAnswerError(message)
    return _Answer(code, document, endpoint)


def _said(document: Mapping[str, Any]) -> str:
    error = document.get("error")
    said = error.get("message") if isinstance(error, dict) else document.get("message", error)
    return str(said)[:200]


def _read(answer: _Answer, read: Callable[[Mapping[str, Any]], _Read]) -> _Read:
    try:
        return read(answer.document)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = f"{answer.endpoint} does not answer as etcd's JSON gateway does."
        raise SourceUnavailableError(message, next_step=_ADDRESS) from error


def _lease(answer: Mapping[str, Any]) -> tuple[int, int]:
    return int(answer["ID"]), int(answer["TTL"])


def _refusal(answer: _Answer) -> FrazilError:
    if answer.code == _NOT_FOUND:
        return LeaseLostError("the lease in etcd has ended.")
    if answer.code in {_PERMISSION_DENIED, *_STALE_TOKEN}:
        message = f"etcd at {answer.endpoint} refuses: {_said(answer.document)}."
        return PermissionError(message, next_step=_CREDENTIALS)
    message = f"etcd at {answer.endpoint} cannot serve a request: {_said(answer.document)}."
    return SourceUnavailableError(message)


def _unreachable(endpoint: SplitResult, cause: BaseException | None) -> FrazilError:
    shown = _shown(endpoint)
    if isinstance(cause, _NoAnswerError):
        return SourceUnavailableError(f"etcd at {shown} {cause}.", next_step=_ADDRESS)
    if isinstance(cause, ssl.SSLError):
        message = f"no TLS with etcd at {shown}: {cause.reason or type(cause).__name__}."
        return SourceUnavailableError(message, next_step=_TLS)
    reason = (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
    message = f"etcd at {shown} does not answer: {reason}."
    return SourceUnavailableError(message, next_step=_ADDRESS)


def _shown(endpoint: SplitResult) -> str:
    """Without a user and password that someone may have put into it."""
    return f"{endpoint.scheme}://{endpoint.netloc.rpartition('@')[2]}"
