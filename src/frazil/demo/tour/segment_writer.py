"""Segments as KafScale's brokers store them: one batch of records between a header and a footer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.kfs.index_file import MAGIC as INDEX_MAGIC
from frazil.codec.kfs.segment import (
    BATCH,
    BATCH_MAGIC,
    CHECKSUM_ENDS,
    END_MAGIC,
    FOOTER,
    HEADER,
    LENGTH_ENDS,
    MAGIC,
    checksum_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION = 1
# Magic, version, entries, messages between two entries, reserved; then offset and place.
_INDEX = struct.Struct(">4sHiiHqi")
_INDEX_INTERVAL = 100
_SEVEN_BITS = 7
_MORE_FOLLOWS = 0x80
# A producer that is not idempotent, and a leader's epoch that nobody looks at.
_NONE = -1


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """What a producer sends; without a value it is a tombstone."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """The two files of a segment."""

    segment: bytes
    index: bytes


def write_segment(
    base_offset: int, records: Sequence[ProducedRecord], compression: BatchCompression
) -> WrittenSegment:
    """These records, the first of them with this offset; there must be one at least."""
    body = _batch(base_offset, records, compression)
    newest = max(each.timestamp_ms for each in records)
    header = HEADER.pack(MAGIC, _VERSION, 0, base_offset, len(records), newest, 0)
    last_offset = base_offset + len(records) - 1
    footer = FOOTER.pack(checksum_of(body, 0, len(body)), last_offset, END_MAGIC)
    entry = base_offset, HEADER.size
    index = _INDEX.pack(INDEX_MAGIC, _VERSION, 1, _INDEX_INTERVAL, 0, *entry)
    return WrittenSegment(header + body + footer, index)


def _batch(
    base_offset: int, records: Sequence[ProducedRecord], compression: BatchCompression
) -> bytes:
    first = records[0].timestamp_ms
    newest = max(each.timestamp_ms for each in records)
    data = b"".join(_record(number, each, first) for number, each in enumerate(records))
    if compression is not BatchCompression.NONE:
        data = pa.compress(data, codec=compression.name.lower(), asbytes=True)
    length = BATCH.size - LENGTH_ENDS + len(data)

    def header(checksum: int) -> bytes:
        return BATCH.pack(
            *(base_offset, length, _NONE, BATCH_MAGIC, checksum, compression, len(records) - 1),
            *(first, newest, _NONE, _NONE, _NONE, len(records)),
        )

    checked = header(0)[CHECKSUM_ENDS:] + data
    return header(checksum_of(checked, 0, len(checked))) + data


def _record(number: int, record: ProducedRecord, first_timestamp: int) -> bytes:
    """Its length, then attributes, time and offset since the first, key, value and no header."""
    fields = (
        b"\0",
        _varint(record.timestamp_ms - first_timestamp),
        _varint(number),
        _sized(record.key),
        _sized(record.value),
        _varint(0),
    )
    return _sized(b"".join(fields))


def _sized(data: bytes | None) -> bytes:
    return _varint(_NONE) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """The sign in the lowest bit, then groups of seven bits, the lowest first."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    groups = bytearray()
    while rest >= _MORE_FOLLOWS:
        groups.append(rest % _MORE_FOLLOWS | _MORE_FOLLOWS)
        rest >>= _SEVEN_BITS
    groups.append(rest)
    return bytes(groups)
