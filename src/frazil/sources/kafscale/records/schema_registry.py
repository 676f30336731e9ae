"""The registry of schemas: ``{base_url}/{topic}.json`` over HTTP, each kept for a while."""

from __future__ import annotations

import http.client
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from frazil.errors import ConfigError, SourceUnavailableError
from frazil.sources.kafscale.records.record_schema import RecordSchema

if TYPE_CHECKING:
    from frazil.config.models.kafscale_source import Registry
    from frazil.hooks import Clock

# Far more than a schema that people write.
_LARGEST_SCHEMA = 4 << 20
_NOT_FOUND = 404


class SchemaRegistry:
    """Schemas of topics, asked for once in ``registry.cache``; one thread uses it.

    An outage raises SourceUnavailableError: it says nothing about any record.
    """

    def __init__(self, section: Registry, clock: Clock) -> None:
        self._section = section
        self._clock = clock
        self._opener = build_opener(_NoRedirects)
        self._kept: dict[str, tuple[float, RecordSchema]] = {}

    def load(self, topic: str) -> RecordSchema:
        """The schema of this topic."""
        now = self._clock.monotonic()
        kept = self._kept.get(topic)
        if kept is not None and now - kept[0] < self._section.cache.total_seconds():
            return kept[1]
        schema = RecordSchema(topic, self._fetch(topic))
        self._kept[topic] = (now, schema)
        return schema

    def _fetch(self, topic: str) -> bytes:
        if self._section.base_url is None:
            raise ConfigError("source.registry.base_url is missing.")
        base = urlsplit(self._section.base_url)
        path = f"{base.path.rstrip('/')}/{quote(topic, safe='')}.json"
        address = base._replace(netloc=base.netloc.rpartition("@")[2], path=path).geturl()
        request = Request(address, headers={"Accept": "application/json"})  # noqa: S310 - a WebAddress
        if base.username is not None:
            account = f"{unquote(base.username)}:{unquote(base.password or '')}"
            encoded = b64encode(account.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {encoded}")
        try:
            timeout = self._section.timeout.total_seconds()
            with self._opener.open(request, timeout=timeout) as answer:
                text: bytes = answer.read(_LARGEST_SCHEMA + 1)
        except HTTPError as error:
            error.close()
            if error.code == _NOT_FOUND:
                message = f"the registry has no schema of topic {topic}."
                raise ConfigError(message, next_step="register it, or unmap the topic") from None
            raise _unavailable(base.hostname, f"it answered {error.code}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable(base.hostname, type(error).__name__) from None
        if len(text) > _LARGEST_SCHEMA:
            message = (
                f"the registry's schema of topic {topic} is larger than {_LARGEST_SCHEMA} bytes."
            )
            raise ConfigError(message, next_step="correct it in the registry")
        return text


class _NoRedirects(HTTPRedirectHandler):
    """A registry that points elsewhere, to another scheme or host, is not followed."""

    def redirect_request(self, *_parts: object) -> None:
        return None


def _unavailable(host: str | None, reason: str) -> SourceUnavailableError:
    return SourceUnavailableError(f"the schema registry at {host} failed: {reason}.")
