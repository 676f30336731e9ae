"""A segment file: a header, record batches one after another, and a footer.

Every byte is accounted for and both checksums are checked before a record is decoded: what a
producer, a broker or a half-finished upload damaged is an error, never fewer records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c

from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.malformed import MalformedFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC, END_MAGIC = b"KAFS", b"END!"
VERSION = 1
# Magic, version, flags, base offset, messages, created, reserved.
HEADER = struct.Struct(">4sHHqiqI")
# Checksum of the batches, last offset, magic.
FOOTER = struct.Struct(">Iq4s")
# Base offset and length, leader epoch, magic, checksum, then what the checksum is of: attributes,
# last offset delta, base and newest timestamp, producer id, epoch and sequence, records.
BATCH = struct.Struct(">qiibIhiqqqhii")
BATCH_MAGIC = 2
# The length of a batch counts what follows it, the checksum what follows itself.
LENGTH_ENDS, CHECKSUM_ENDS = 12, 21
_LAST_OFFSET = (1 << 63) - 1
# Fits into a processor's cache.
_CHECKSUM_BYTES = 1 << 18

_COMPRESSION = 0b111
_APPEND_TIME = 1 << 3
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class BatchFrame:
    """A record batch whose checksum is right.

    ``at`` is where it begins in the file, and ``size`` how many bytes its records take there.
    """

    at: int
    base_offset: int
    last_offset: int
    attributes: int
    base_timestamp: int
    newest_timestamp: int
    producer_id: int
    record_count: int
    # All of the segment's, in which the batch is: its records are not copied before they are read.
    file: bytes
    size: int

    @property
    def compression(self) -> BatchCompression:
        """How the records are stored."""
        return BatchCompression(self.attributes & _COMPRESSION)

    @property
    def has_append_time(self) -> bool:
        """Whether every record has the newest timestamp, which is the broker's."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is in a transaction, which may be aborted."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it ends a transaction instead of having records of a producer."""
        return bool(self.attributes & _CONTROL)

    @property
    def records_at(self) -> int:
        """Where the records begin in the file."""
        return self.at + BATCH.size


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class KafscaleSegment:
    """A segment that is complete and undamaged.

    ``message_count`` and ``footer_offset`` are what the broker wrote about its batches. It takes
    them from the first header of what a client sent, so that they may be wrong; what is in the
    batches counts.
    """

    base_offset: int
    message_count: int
    created_ms: int
    footer_offset: int
    batches: tuple[BatchFrame, ...]

    @property
    def last_offset(self) -> int:
        """The highest offset that its batches take; one before the base without batches."""
        return max((each.last_offset for each in self.batches), default=self.base_offset - 1)


def parse_segment(data: bytes) -> KafscaleSegment:
    """The segment in these bytes; MalformedFileError unless they are one, from first to last."""
    if len(data) < HEADER.size + FOOTER.size:
        raise MalformedFileError("expected a segment, found the beginning of one", offset=len(data))
    magic, version, flags, base_offset, message_count, created_ms, _ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise MalformedFileError("expected a segment's header", offset=0)
    if version != VERSION or flags:
        what = f"expected a segment of version {VERSION} without flags, found {version}, {flags:#x}"
        raise MalformedFileError(what, offset=len(MAGIC))
    ends = len(data) - FOOTER.size
    checksum, footer_offset, magic = FOOTER.unpack_from(data, ends)
    if magic != END_MAGIC:
        raise MalformedFileError("expected a segment's footer", offset=ends)
    if checksum_of(data, HEADER.size, ends) != checksum:
        raise MalformedFileError("expected batches with the footer's checksum", offset=HEADER.size)
    return KafscaleSegment(
        base_offset=base_offset,
        message_count=message_count,
        created_ms=created_ms,
        footer_offset=footer_offset,
        batches=tuple(_split_batches(data, ends)),
    )


def checksum_of(data: bytes, begins: int, ends: int) -> int:
    """CRC-32C of a part; in pieces, because it takes bytes only, which are copies."""
    checksum = 0
    for at in range(begins, ends, _CHECKSUM_BYTES):
        piece = data[at : min(at + _CHECKSUM_BYTES, ends)]
        checksum = google_crc32c.extend(checksum, piece)
    return checksum


def _split_batches(data: bytes, ends: int) -> Iterator[BatchFrame]:
    at = HEADER.size
    while at < ends:
        batch = _parse_batch(data, at, ends)
        yield batch
        at = batch.records_at + batch.size


def _parse_batch(data: bytes, at: int, most: int) -> BatchFrame:
    if most - at < BATCH.size:
        raise MalformedFileError("expected a record batch, found the beginning of one", offset=at)
    (base_offset, length, _, magic, checksum, attributes, last_offset_delta, base_timestamp,
     newest_timestamp, producer_id, _, _, record_count) = BATCH.unpack_from(data, at)  # fmt: skip
    if magic != BATCH_MAGIC:
        what = f"expected a record batch of version {BATCH_MAGIC}, found {magic}"
        raise MalformedFileError(what, offset=at)
    ends = at + LENGTH_ENDS + length
    if not at + BATCH.size <= ends <= most:
        raise MalformedFileError("expected a record batch to end in its segment", offset=at)
    if checksum_of(data, at + CHECKSUM_ENDS, ends) != checksum:
        raise MalformedFileError("expected a record batch with its checksum", offset=at)
    last_offset = base_offset + last_offset_delta
    if base_offset < 0 or last_offset_delta < 0 or record_count < 0 or last_offset > _LAST_OFFSET:
        what = "expected offsets and a number of records that are possible"
        raise MalformedFileError(what, offset=at)
    if attributes & _COMPRESSION > max(BatchCompression):
        raise MalformedFileError("expected a compression that Kafka has", offset=at)
    return BatchFrame(
        at=at,
        base_offset=base_offset,
        last_offset=last_offset,
        attributes=attributes,
        base_timestamp=base_timestamp,
        newest_timestamp=newest_timestamp,
        producer_id=producer_id,
        record_count=record_count,
        file=data,
        size=ends - at - BATCH.size,
    )
