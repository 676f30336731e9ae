"""Compressed records of a batch, opened without trusting the sizes they declare."""

from __future__ import annotations

import struct
from enum import IntEnum

import pyarrow as pa

from frazil.codec.decompression import decompress_stream
from frazil.codec.malformed import MalformedFileError

# What the Java client, aiokafka and kafka-python put before Snappy: a magic, and two versions.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_BLOCK_LENGTH = struct.Struct(">i")
# Snappy's preamble, a length of 32 bits in groups of seven.
_PREAMBLE_BYTES = 5


class BatchCompression(IntEnum):
    """How records are stored; the values are those of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress_records(
    data: memoryview, compression: BatchCompression, *, at_most: int, offset: int
) -> bytes:
    """The records of a batch, if they have no more than ``at_most`` bytes."""
    if compression is BatchCompression.SNAPPY:
        return _decompress_snappy(data, at_most=at_most, offset=offset)
    return decompress_stream(data, compression.name.lower(), at_most=at_most, offset=offset)


def _decompress_snappy(data: memoryview, *, at_most: int, offset: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_block(data, at_most=at_most, offset=offset)
    blocks: list[bytes] = []
    at = _XERIAL_HEADER_SIZE
    while at < len(data):
        begins = at + _BLOCK_LENGTH.size
        length = _BLOCK_LENGTH.unpack_from(data, at)[0] if begins <= len(data) else -1
        if length < 0 or begins + length > len(data):
            raise MalformedFileError("expected a complete block of Snappy", offset=offset + at)
        block = _decompress_block(data[begins : begins + length], at_most=at_most, offset=offset)
        blocks.append(block)
        at_most -= len(block)
        at = begins + length
    return b"".join(blocks)


def _decompress_block(data: memoryview, *, at_most: int, offset: int) -> bytes:
    size = shift = 0
    for byte in data[:_PREAMBLE_BYTES]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            break
    else:
        raise MalformedFileError("expected the size of a block of Snappy", offset=offset)
    if size > at_most:
        what = f"expected snappy data of at most {at_most} bytes, found more"
        raise MalformedFileError(what, offset=offset)
    try:
        return bytes(pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        what = "expected a complete block of Snappy, found a damaged one"
        raise MalformedFileError(what, offset=offset) from error
