"""One HTTP request over the loopback, to check that a service is up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from frazil.demo.services.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

# A service that needs longer is probed again. Not longer, because another process may listen on
# our port and never answer, while our own service has long ended.
_TIMEOUT_SECONDS = 2.0

_OK, _REDIRECT = 200, 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``status`` is 0 without an answer."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return _OK <= self.status < _REDIRECT

    def field(self, name: str) -> object:
        """One field of a JSON object, or None if there is none."""
        try:
            document = json.loads(self.body)
        except ValueError:
            return None
        return document.get(name) if isinstance(document, dict) else None


def request(
    port: int,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request; a service that is not there yet is an answer, not an error."""
    # Not urllib: it would send loopback requests through a proxy named in the environment.
    connection = HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, HTTPException):
        return Answer(0, b"")
    finally:
        connection.close()


def request_json(port: int, path: str, document: Mapping[str, object]) -> Answer:
    """Send one JSON object."""
    return request(
        port,
        "POST",
        path,
        body=json.dumps(document).encode(),
        headers={"Content-Type": "application/json"},
    )
