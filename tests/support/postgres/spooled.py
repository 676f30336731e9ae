"""Histories for the spool of a Postgres stream, and what its segments say when read alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import read_segment
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    LogicalMessage,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Truncate,
)
from frazil.codec.pgoutput.replication_frames import LogData
from tests.support.pgoutput.frames import encode_message, text
from tests.support.pgoutput.histories import Histories, Row, decoded_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.bulk_decoder import DecodedFrames
    from frazil.codec.pgoutput.messages import Message
    from frazil.sources.postgres.stream.segment import Segment

MOMENT = 7_000_000
XID = 3


class WholeHistories(Histories):
    """Transactions that are sent complete, and what may be between them."""

    def history(self) -> list[Message]:
        messages: list[Message] = [self._relation(None)]
        for _ in range(self._chance.randrange(12)):
            if self._chance.random() < 0.15:
                messages.append(self._relation(None))
            elif self._chance.random() < 0.15:
                messages.append(LogicalMessage(9, "beat", b"\0\xff", is_transactional=False))
            else:
                messages += self._transaction()
        return messages


@dataclass
class MemoryFile:
    """A file in memory; ``written`` remembers how large each write was."""

    owner: MemoryFiles
    name: str
    content: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes) -> None:
        self.owner.written.append(len(data))
        self.content += data

    def finish(self) -> None:
        self.owner.files[self.name] = bytes(self.content)

    def abandon(self) -> None:
        self.owner.abandoned.append(self.name)


@dataclass
class MemoryFiles:
    """``SpoolFiles`` in memory."""

    files: dict[str, bytes] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)

    def write(self, name: str) -> MemoryFile:
        assert name not in self.files
        return MemoryFile(self, name)

    def load(self, name: str) -> bytes:
        return self.files[name]


def framed(messages: Sequence[Message]) -> list[LogData]:
    return [LogData(9, 9, 0, encode_message(each)) for each in messages]


def relation(oid: int = 7, *, columns: int = 1, name: str = "t") -> Relation:
    described = tuple(
        RelationColumn(f"c{number}", 25, -1, is_key=not number) for number in range(columns)
    )
    return Relation(oid, "public", name, ReplicaIdentity.DEFAULT, described)


def insert(oid: int = 7, *, columns: int = 1, value: str = "ice") -> Insert:
    return Insert(oid, (text(value),) * columns)


def transaction(final_lsn: int, *inside: Message) -> list[Message]:
    return [
        Begin(final_lsn, MOMENT + final_lsn, XID),
        *inside,
        Commit(final_lsn, final_lsn + 5, MOMENT + final_lsn),
    ]


def kept(payloads: Sequence[bytes]) -> list[bytes]:
    """What a spool must hold of these: transactions with rows, without what people emitted."""
    found: list[bytes] = []
    inside: list[bytes] | None = None
    for payload in payloads:
        if payload[:1] == b"B":
            inside = []
        if inside is not None and payload[:1] != b"M":
            inside.append(payload)
        if payload[:1] == b"C":
            assert inside is not None
            if any(each[:1] in {b"I", b"U", b"D", b"T"} for each in inside):
                found += inside
            inside = None
    return found


def messages_of(data: bytes) -> list[bytes]:
    frames = read_segment(data)
    return [frames.message(number) for number in range(len(frames))]


def decoded(segment: Segment, data: bytes) -> DecodedFrames:
    return decode_frames(read_segment(data), inside_transaction=segment.opens is not None)


def rows_of(segment: Segment, data: bytes) -> list[Row]:
    """The rows as a task reads them, knowing nothing but this segment."""
    return decoded_history(decoded(segment, data)).rows


def counted_oids(messages: Sequence[bytes]) -> list[int]:
    """For every change and truncation the tables it is about."""
    found: list[int] = []
    for payload in messages:
        message = decode_message(payload, in_stream=False)
        if isinstance(message, Truncate):
            found += message.relation_oids
        elif payload[:1] in {b"I", b"U", b"D"}:
            found.append(int.from_bytes(payload[1:5]))
    return found
