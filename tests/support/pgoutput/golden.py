"""Messages that PostgreSQL 18 sent; ``pgoutput.capture`` says what for, and writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import (
    Relation,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.messages import Message

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "pgoutput-frames.json"
# Everything below this number is built in and has the same one in every database.
FIRST_OWN_OID = 16_384


@dataclass(frozen=True)
class Captured:
    """The messages of transactions sent complete, and of transactions sent in parts."""

    complete: tuple[bytes, ...]
    in_parts: tuple[bytes, ...]


def decode_all(messages: Sequence[bytes]) -> list[Message]:
    """One by one, as they came."""
    decoded: list[Message] = []
    in_stream = False
    for data in messages:
        message = decode_message(data, in_stream=in_stream)
        in_stream = isinstance(message, StreamStart) or (
            in_stream and not isinstance(message, StreamStop)
        )
        decoded.append(message)
    return decoded


def without_chance(messages: Sequence[Message]) -> list[Message]:
    """The same history with positions and times gone, and numbers given in order of appearance."""
    numbers: dict[int, int] = {}
    return [_without_chance(message, numbers) for message in messages]


def _without_chance(message: Message, numbers: dict[int, int]) -> Message:
    def renumbered(number: int) -> int:
        return numbers.setdefault(number, len(numbers) + 1)

    def own(oid: int) -> int:
        return oid if oid < FIRST_OWN_OID else renumbered(oid)

    changes: dict[str, object] = {}
    if isinstance(message, Truncate):
        changes["relation_oids"] = tuple(map(own, message.relation_oids))
    if isinstance(message, Relation):
        columns = (replace(each, type_oid=own(each.type_oid)) for each in message.columns)
        changes["columns"] = tuple(columns)
    found = {each.name: getattr(message, each.name) for each in fields(message)}
    changes |= {name: 0 for name in found if name.endswith("lsn") or name == "committed_at"}
    changes |= {name: own(found[name]) for name in found if name in {"oid", "relation_oid"}}
    xids = {name for name in ("xid", "subxid") if found.get(name) is not None}
    changes |= {name: renumbered(found[name]) for name in sorted(xids)}
    return replace(message, **changes)  # type: ignore[arg-type]


def without_empty_parts(messages: Sequence[Message]) -> list[Message]:
    """Parts that say nothing are left out: versions differ in how many of them they send."""
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, StreamStop) and isinstance(kept[-1], StreamStart):
            kept.pop()
        else:
            kept.append(message)
    return kept


def without_repetitions(messages: Sequence[Message]) -> list[Message]:
    """Descriptions that were given before are left out: a server gives them again at any time.

    It does so whenever something makes it forget what it has sent, such as an autovacuum.
    """
    known: dict[tuple[type[Message], int, int | None], Message] = {}
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, Relation | TypeName):
            key = (type(message), message.oid, message.xid)
            if known.get(key) == message:
                continue
            known[key] = message
        kept.append(message)
    return kept


def golden() -> Captured:
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return Captured(
        complete=tuple(map(bytes.fromhex, stored["complete"])),
        in_parts=tuple(map(bytes.fromhex, stored["in_parts"])),
    )
