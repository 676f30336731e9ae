"""Who may see the pages: whoever has the token, and on loopback only who asked for loopback."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request

# What the cookie and its name are derived from the token with; the cookie is not the token.
_SESSION: Final = b"frazil pages: session"
_COOKIE: Final = b"frazil pages: cookie"
_SCHEME: Final = "bearer "
PARAMETER: Final = "token"


class Verdict(Enum):
    """What a request gets."""

    SEEN = auto()
    LOGGED_IN = auto()
    """The token stands in the address: a cookie takes its place."""
    NO_TOKEN = auto()
    WRONG_TOKEN = auto()
    WRONG_HOST = auto()


class Access:
    """Judges requests; without a token everybody who can reach the server may look.

    ``is_local`` says that the server is bound to loopback. A page of a stranger can have its own
    name point to 127.0.0.1 and read what answers there, so that such a name is refused.
    """

    def __init__(self, *, token: str | None, is_local: bool) -> None:
        self._token = None if token is None else token.encode()
        self._is_local = is_local

    def judge(self, request: Request) -> Verdict:
        """Decide, taking the same time for every token that is wrong."""
        if self._is_local and not is_local_host(request.headers.get("host", "")):
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


def is_local_host(header: str) -> bool:
    """Whether a Host header names this machine's loopback and nothing else."""
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _bearer(headers: Headers) -> bytes | None:
    given = headers.get("authorization", "")
    if not given.lower().startswith(_SCHEME):
        return None
    # Headers are bytes, shown to us as Latin-1; a token may be anything.
    return given[len(_SCHEME) :].strip().encode("latin-1")
