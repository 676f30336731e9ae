"""Reads and transactions as values, and their form in the JSON of etcd's gateway.

A transaction may hold transactions, each with comparisons of its own: many keys are then changed
in one request, and one that may not be changed does not hold up the others.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# etcd's own limit of comparisons, and of operations, in one transaction.
MOST_OPERATIONS = 128
# A transaction within counts towards the limit of the outer one: with this many, each may have 8.
MOST_NESTED = MOST_OPERATIONS - 8


class Fact(Enum):
    """What is compared of a key; each is 0 for a key that does not exist."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Equals:
    """This fact of a key has this value."""

    key: str
    fact: Fact
    value: int

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        target = self.fact.name.removesuffix("_REVISION")
        return _compare(self.key, "EQUAL", target, {self.fact.value: str(self.value)})


@dataclass(frozen=True, slots=True)
class UnchangedSince:
    """No key with this prefix was written after a revision."""

    prefix: str
    revision: int

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        later = {"mod_revision": str(self.revision + 1), "range_end": _end_of(self.prefix)}
        return _compare(self.prefix, "LESS", "MOD", later)


@dataclass(frozen=True, slots=True)
class Range:
    """Read a key, or every key with a prefix in order; ``only_keys`` leaves the values out."""

    key: str
    is_prefix: bool = False
    only_keys: bool = False

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        end = {"range_end": _end_of(self.key)} if self.is_prefix else {}
        return {"key": _encode(self.key), "keys_only": self.only_keys, **end}


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key; it is deleted when its lease ends, 0 is none."""

    key: str
    value: bytes
    lease: int = 0

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        value = base64.b64encode(self.value).decode()
        return {"key": _encode(self.key), "value": value, "lease": str(self.lease)}


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete a key."""

    key: str

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        return {"key": _encode(self.key)}


@dataclass(frozen=True, slots=True)
class Txn:
    """If all comparisons hold, do ``then``, else ``otherwise``; all of it or nothing."""

    then: Sequence[Operation]
    given: Sequence[Equals | UnchangedSince] = ()
    otherwise: Sequence[Operation] = ()

    def to_json(self) -> dict[str, object]:
        """As the gateway reads it."""
        return {
            "compare": [comparison.to_json() for comparison in self.given],
            "success": [{_REQUESTS[type(each)]: each.to_json()} for each in self.then],
            "failure": [{_REQUESTS[type(each)]: each.to_json()} for each in self.otherwise],
        }


Operation: TypeAlias = Range | Put | DeleteKey | Txn

_REQUESTS: Mapping[type, str] = {
    Range: "request_range",
    Put: "request_put",
    DeleteKey: "request_delete_range",
    Txn: "request_txn",
}


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it was read."""

    key: str
    value: bytes
    lease: int
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transaction did.

    ``found`` has the keys of each read among the operations done, ``nested`` the outcome of each
    transaction among them; both in their order. ``revision`` is that of the entire store then.
    """

    succeeded: bool
    revision: int
    found: tuple[tuple[KeyValue, ...], ...]
    nested: tuple[Outcome, ...]


def outcome_from_json(answer: Mapping[str, Any]) -> Outcome:
    """Read an answer; KeyError, TypeError or ValueError when it is none of etcd's."""
    return _outcome(answer, int(answer["header"]["revision"]))


def _outcome(answer: Mapping[str, Any], revision: int) -> Outcome:
    # The gateway leaves out what is false, zero or empty, and writes integers as text.
    responses = answer.get("responses", ())
    return Outcome(
        bool(answer.get("succeeded", False)),
        revision,
        tuple(
            tuple(map(_key_value, each["response_range"].get("kvs", ())))
            for each in responses
            if "response_range" in each
        ),
        tuple(
            _outcome(each["response_txn"], revision) for each in responses if "response_txn" in each
        ),
    )


def _key_value(kv: Mapping[str, Any]) -> KeyValue:
    return KeyValue(
        # A key that is no text is none of ours.
        base64.b64decode(kv["key"]).decode(errors="replace"),
        base64.b64decode(kv.get("value", "")),
        int(kv.get("lease", 0)),
        int(kv["create_revision"]),
        int(kv["mod_revision"]),
    )


def _compare(key: str, result: str, target: str, fields: dict[str, str]) -> dict[str, object]:
    return {"key": _encode(key), "result": result, "target": target, **fields}


def _encode(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _end_of(prefix: str) -> str:
    """The first key after all those with this prefix; ours are text, so no byte is the last one."""
    text = prefix.encode()
    return base64.b64encode(text[:-1] + bytes([text[-1] + 1])).decode()
