"""A record as the payload of a dead letter: all that is needed to read it again, as JSON.

People read it with ``frazil dlq show`` and SQL, and nothing of it is lost: bytes are text where
they are UTF-8, else an object with their base64, which cannot be taken for each other.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TypeAlias

BytesJson: TypeAlias = str | dict[str, str] | None

_BASE64 = "base64"
_MEMBERS = {"timestamp_ms", "key", "value", "headers"}


class PayloadFormError(Exception):
    """Bytes are no record of this form; shows nothing of them."""


def bytes_to_json(data: bytes | None) -> BytesJson:
    """Bytes as a value that the json module takes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: b64encode(data).decode()}


def bytes_from_json(value: object) -> bytes | None:
    """The bytes again; PayloadFormError for a value that stands for none."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text), **others} if not others:
            try:
                return b64decode(text, validate=True)
            except ValueError:
                raise PayloadFormError from None
        case _:
            raise PayloadFormError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPayload:
    """What a producer sent; where it was read is not in it."""

    timestamp_ms: int
    key: bytes | None = field(default=None, repr=False)
    value: bytes | None = field(default=None, repr=False)
    headers: tuple[tuple[bytes, bytes | None], ...] = field(default=(), repr=False)

    def encode(self) -> bytes:
        """The payload of its dead letter; the same record gives the same bytes."""
        document = {
            "timestamp_ms": self.timestamp_ms,
            "key": bytes_to_json(self.key),
            "value": bytes_to_json(self.value),
            "headers": [
                {"key": bytes_to_json(key), "value": bytes_to_json(value)}
                for key, value in self.headers
            ],
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode_record_payload(payload: bytes) -> RecordPayload:
    """The record in a payload; PayloadFormError if it was not written by ``encode``."""
    try:
        document = json.loads(payload)
    except ValueError:
        raise PayloadFormError from None
    if not isinstance(document, dict) or document.keys() != _MEMBERS:
        raise PayloadFormError
    timestamp, headers = document["timestamp_ms"], document["headers"]
    if type(timestamp) is not int or not isinstance(headers, list):
        raise PayloadFormError
    return RecordPayload(
        timestamp_ms=timestamp,
        key=bytes_from_json(document["key"]),
        value=bytes_from_json(document["value"]),
        headers=tuple(map(_header, headers)),
    )


def _header(member: object) -> tuple[bytes, bytes | None]:
    if not isinstance(member, dict) or member.keys() != {"key", "value"}:
        raise PayloadFormError
    key = bytes_from_json(member["key"])
    if key is None:
        raise PayloadFormError
    return key, bytes_from_json(member["value"])
