"""Compressed payloads of Puffin files, opened without trusting the sizes they declare."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from frazil.codec.malformed import MalformedFileError

# Small enough that a bomb is noticed long before it hurts, large enough to be quick.
_CHUNK = 1 << 20


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
    """What was compressed, if it is no longer than ``at_most`` bytes; ``offset`` is for errors.

    The declared size is not trusted: memory grows with what comes out, chunk by chunk.
    """
    if codec is BlobCompression.NONE:
        return data
    if not len(data):
        what = f"expected a {codec} frame, found nothing"
        raise MalformedFileError(what, offset=offset)
    chunks: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec.value) as stream:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                if size > at_most:
                    what = f"expected {codec} data of at most {at_most} bytes, found more"
                    raise MalformedFileError(what, offset=offset)
                chunks.append(chunk)
    except (pa.ArrowException, OSError) as error:
        what = f"expected a complete {codec} frame, found a damaged one"
        raise MalformedFileError(what, offset=offset) from error
    return b"".join(chunks)
