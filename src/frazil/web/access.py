"""Access to the pages: requests with the token, and on loopback only names of loopback."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from frazil.config.models.values import is_loopback

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.datastructures import Headers
    from starlette.requests import Request

# What the cookie and its name are derived from the token with; the cookie is not the token.
_SESSION: Final = b"frazil pages: session"
_COOKIE: Final = b"frazil pages: cookie"
_SCHEME: Final = "bearer "
PARAMETER: Final = "token"


class Verdict(Enum):
    """The decision about a request."""

    SEEN = auto()
    LOGGED_IN = auto()
    """The token is in the address: a cookie replaces it."""
    NO_TOKEN = auto()
    WRONG_TOKEN = auto()
    WRONG_HOST = auto()


class HostRule:
    """Which Host headers are accepted, for everything but ``/healthz``.

    Against DNS rebinding: a foreign page can point its own name to our address and read the answer.
    ``is_local`` means that the server is bound to loopback: only names of loopback are accepted.
    Elsewhere ``names`` are, if there are any; a numeric address always is, because it cannot be
    pointed elsewhere, and probes and scrapers of Kubernetes use it.
    """

    def __init__(self, *, is_local: bool, names: Collection[str] = ()) -> None:
        self._is_local = is_local
        self._names = frozenset(name.lower() for name in names)

    def allows(self, header: str) -> bool:
        """Whether a request with this Host header is answered."""
        name = host_name(header)
        if self._is_local:
            return is_loopback(name)
        return not self._names or name in self._names or _is_address(name)


class PageAccess:
    """Judges requests; without a token everyone who can reach the server is allowed."""

    def __init__(self, *, token: str | None, hosts: HostRule) -> None:
        self._token = None if token is None else token.encode()
        self._hosts = hosts

    def judge(self, request: Request) -> Verdict:
        """Decide, taking the same time for every token that is wrong."""
        if not self._hosts.allows(request.headers.get("host", "")):
            return Verdict.WRONG_HOST
        if self._token is None:
            return Verdict.SEEN
        bearer = _bearer(request.headers)
        if bearer is not None:
            return Verdict.SEEN if self._is_token(bearer) else Verdict.WRONG_TOKEN
        given = parse_qs(request.url.query).get(PARAMETER)
        if given:
            return Verdict.LOGGED_IN if self._is_token(given[-1].encode()) else Verdict.WRONG_TOKEN
        cookie = request.cookies.get(self.cookie_name)
        if cookie is None:
            return Verdict.NO_TOKEN
        is_ours = hmac.compare_digest(cookie.encode("latin-1"), self.session.encode())
        return Verdict.SEEN if is_ours else Verdict.WRONG_TOKEN

    @property
    def cookie_name(self) -> str:
        """Another one for every token: ports of one host share their cookies."""
        return f"frazil_{self._derived(_COOKIE)[:8]}"

    @property
    def session(self) -> str:
        """What a browser shows instead of the token."""
        return self._derived(_SESSION)

    def _is_token(self, given: bytes) -> bool:
        # Of equal length, so that not even the token's length can be measured.
        theirs = hashlib.sha256(given).digest()
        ours = hashlib.sha256(self._token or b"").digest()
        return self._token is not None and hmac.compare_digest(theirs, ours)

    def _derived(self, purpose: bytes) -> str:
        return hmac.new(self._token or b"", purpose, hashlib.sha256).hexdigest()


def host_name(header: str) -> str:
    """The name or the address in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") <= 1 else name


def is_over_tls(request: Request) -> bool:
    """Whether the browser came over TLS, which ends before us.

    The header is trusted: it only decides that a cookie is restricted to TLS.
    """
    first = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in {request.url.scheme, first}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(headers: Headers) -> bytes | None:
    given = headers.get("authorization", "")
    if not given.lower().startswith(_SCHEME):
        return None
    # Headers are bytes, shown to us as Latin-1; a token may be anything.
    return given[len(_SCHEME) :].strip().encode("latin-1")
