"""Segments as a broker stores them; the batches come from a Kafka client's own encoder."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CREATED = 1_700_000_000_123
TIMESTAMP = 1_700_000_000_000

_HEADER = struct.Struct(">4sHHqiqI")
_FOOTER = struct.Struct(">Iq4s")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_INDEX_HEADER = struct.Struct(">4sHiiH")
_INDEX_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Message:
    """What a producer sends."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()


def client_batch(base: int, messages: Sequence[Message], *, compression: int = 0) -> bytes:
    """A batch as aiokafka encodes it, with the base offset that the broker writes into it."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 30)
    for offset, each in enumerate(messages):
        builder.append(offset, each.timestamp, each.key, each.value, list(each.headers))
    return struct.pack(">q", base) + bytes(builder.build())[8:]


def raw_batch(
    records: bytes,
    *,
    count: int,
    base: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    newest: int = TIMESTAMP,
    magic: int = 2,
) -> bytes:
    """A batch with right checksums around any bytes."""
    delta = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    checked = struct.pack(
        ">hiqqqhii", attributes, delta, TIMESTAMP, newest, producer_id, -1, -1, count
    )
    checked += records
    fixed = struct.pack(">ibI", -1, magic, google_crc32c.value(checked))
    return struct.pack(">qi", base, len(fixed) + len(checked)) + fixed + checked


def segment(batches: Iterable[bytes], *, base: int = 0, last: int | None = None) -> bytes:
    """A segment file of these batches."""
    parts = tuple(batches)
    body = b"".join(parts)
    count = sum(int.from_bytes(each[57:61]) for each in parts)
    if last is None:
        last = base - 1
        if parts:
            last = int.from_bytes(parts[-1][:8]) + _LAST_OFFSET_DELTA.unpack_from(parts[-1], 23)[0]
    header = _HEADER.pack(b"KAFS", 1, 0, base, count, CREATED, 0)
    return header + body + _FOOTER.pack(google_crc32c.value(body), last, b"END!")


def index_of(base: int) -> bytes:
    """The index of a segment whose one entry is its first batch."""
    return _INDEX_HEADER.pack(b"IDX\0", 1, 1, 100, 0) + _INDEX_ENTRY.pack(base, _HEADER.size)


def varint(number: int) -> bytes:
    """A signed number as records have it."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(
    value: bytes | None = None, *, key: bytes | None = None, offset: int = 0, headers: bytes = b"\0"
) -> bytes:
    """One record, byte by byte."""
    body = b"\0" + varint(0) + varint(offset) + _sized(key) + _sized(value) + headers
    return varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value
