"""What etcd itself says about keys, by its JSON gateway and without our client."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Event:
    """A key was written, or deleted."""

    revision: int
    key: str
    value: bytes | None
    lease: int


def encode(text: str | bytes) -> str:
    """As the gateway wants keys and values."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def end_of(prefix: str) -> str:
    """The key after all those with the prefix."""
    return encode(prefix[:-1] + chr(ord(prefix[-1]) + 1))


def request(endpoint: str, path: str, **fields: object) -> dict[str, Any]:
    """One request that must succeed."""
    answer = httpx.post(f"{endpoint}/v3/{path}", json=fields, timeout=60)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def value_at(endpoint: str, key: str) -> bytes | None:
    """The value of a key."""
    found = request(endpoint, "kv/range", key=encode(key)).get("kvs", [])
    return base64.b64decode(found[0]["value"]) if found else None


def put(endpoint: str, key: str, value: bytes, *, lease: str = "0") -> None:
    """Write a key whatever is there, as the processor does."""
    request(endpoint, "kv/put", key=encode(key), value=encode(value), lease=lease)


def claim_as_processor(endpoint: str, key: str, *, ttl: int = 60) -> str | None:
    """What KafScale's processor does to claim a partition; its lease, None if it is refused."""
    lease: str = request(endpoint, "lease/grant", TTL=ttl)["ID"]
    value = b'{"owner_id":"processor-0","lease_expires_at":1700000000000,"generation":1}'
    answer = request(
        endpoint,
        "kv/txn",
        compare=[{"key": encode(key), "target": "VERSION", "result": "EQUAL", "version": "0"}],
        success=[{"request_put": {"key": encode(key), "value": encode(value), "lease": lease}}],
    )
    if answer.get("succeeded"):
        return lease
    request(endpoint, "lease/revoke", ID=lease)
    return None


def history(endpoint: str, prefix: str) -> list[Event]:
    """All that ever happened to keys with a prefix, in its order."""
    newest = int(request(endpoint, "kv/range", key=encode(prefix))["header"]["revision"])
    # The last one that the watch reports.
    put(endpoint, f"{prefix}/\x7fend", b"")
    watch = {"key": encode(prefix), "range_end": end_of(prefix), "start_revision": "1"}
    events: list[Event] = []
    with httpx.stream(
        "POST", f"{endpoint}/v3/watch", json={"create_request": watch}, timeout=60
    ) as answer:
        for line in answer.iter_lines():
            for event in json.loads(line)["result"].get("events", []):
                kv = event["kv"]
                events.append(
                    Event(
                        int(kv["mod_revision"]),
                        base64.b64decode(kv["key"]).decode(),
                        None
                        if event.get("type") == "DELETE"
                        else base64.b64decode(kv.get("value", "")),
                        int(kv.get("lease", 0)),
                    )
                )
            if events and events[-1].revision > newest:
                return events[:-1]
    raise AssertionError("the watch ended")
