"""Compressed payloads of Puffin files, opened without trusting the sizes they declare."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from frazil.codec.decompression import decompress_stream


class BlobCompression(StrEnum):
    """How a payload is stored; the values are the names in the file's footer."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


def compress(data: bytes | memoryview, codec: BlobCompression) -> bytes | memoryview:
    """One frame of that codec, or the data itself."""
    if codec is BlobCompression.NONE:
        return data
    return bytes(pa.compress(data, codec=codec.value, asbytes=True))


def decompress(
    data: bytes | memoryview, codec: BlobCompression, *, at_most: int, offset: int
) -> bytes | memoryview:
    """What was compressed, if it is no longer than ``at_most`` bytes; ``offset`` is for errors."""
    if codec is BlobCompression.NONE:
        return data
    return decompress_stream(data, codec.value, at_most=at_most, offset=offset)
