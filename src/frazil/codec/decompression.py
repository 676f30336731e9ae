"""Compressed bytes, opened without trusting the sizes they declare."""

from __future__ import annotations

import pyarrow as pa

from frazil.codec.malformed import MalformedFileError

# Small enough that a bomb is noticed long before it hurts, large enough to be quick.
_CHUNK = 1 << 20


def decompress_stream(data: bytes | memoryview, codec: str, *, at_most: int, offset: int) -> bytes:
    """What was compressed, if it is no longer than ``at_most`` bytes; ``offset`` is for errors.

    The declared size is not trusted: memory grows with what comes out, chunk by chunk.
    """
    if not len(data):
        what = f"expected a {codec} frame, found nothing"
        raise MalformedFileError(what, offset=offset)
    chunks: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
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
