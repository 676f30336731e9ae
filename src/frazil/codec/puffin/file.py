"""Puffin, Iceberg's container of blobs: ``Magic · blob · blob · … · footer``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin.compression import BlobCompression, compress, decompress
from frazil.codec.puffin.footer import (
    MAGIC,
    BlobMetadata,
    Footer,
    TailTooShortError,
    check_magic,
    read_footer,
    write_footer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Blob",
    "BlobCompression",
    "BlobMetadata",
    "Footer",
    "PuffinAssembly",
    "PuffinFile",
    "TailTooShortError",
    "check_magic",
    "read_blob",
    "read_footer",
    "write_puffin",
]

# Readers hold blobs completely in memory; a gigabyte out of a few bytes is an attack.
LARGEST_BLOB = 1 << 30


@dataclass(frozen=True)
class Blob:
    """Bytes to be stored, and what the footer says of them."""

    type: str
    data: bytes | memoryview
    fields: tuple[int, ...] = ()
    # What Iceberg writes for blobs that belong to a snapshot not made yet.
    snapshot_id: int = -1
    sequence_number: int = -1
    codec: BlobCompression = BlobCompression.NONE
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PuffinFile:
    """A complete file in memory and where its blobs lie."""

    data: bytes
    blobs: tuple[BlobMetadata, ...]
    footer_size: int


class PuffinAssembly:
    """A Puffin file made blob by blob: what each call returns is written, in that order.

    Keeps the metadata and no data, so that a file may be larger than the memory.
    """

    def __init__(self) -> None:
        self._blobs: list[BlobMetadata] = []
        self._size = 0
        self._footer_size = 0

    @property
    def blobs(self) -> tuple[BlobMetadata, ...]:
        """What was added so far, with its offset in the file."""
        return tuple(self._blobs)

    @property
    def size(self) -> int:
        """How many bytes were handed out so far."""
        return self._size

    @property
    def footer_size(self) -> int:
        """The footer's share of the size; zero until the file is finished."""
        return self._footer_size

    def add(self, blob: Blob) -> tuple[bytes | memoryview, ...]:
        """The chunks to write for this blob; an uncompressed one is not copied."""
        head = self._head()
        stored = compress(blob.data, blob.codec)
        # A view counts its items; what lies in a file is bytes.
        length = memoryview(stored).nbytes
        offset = self._size + len(head)
        self._blobs.append(
            BlobMetadata(
                type=blob.type,
                fields=tuple(blob.fields),
                snapshot_id=blob.snapshot_id,
                sequence_number=blob.sequence_number,
                offset=offset,
                length=length,
                codec=blob.codec,
                properties=dict(blob.properties),
            )
        )
        self._size = offset + length
        return (head, stored) if head else (stored,)

    def finish(self, properties: Mapping[str, str]) -> bytes:
        """The last bytes of the file; nothing can be added after them."""
        head = self._head()
        footer = write_footer(self._blobs, properties)
        self._footer_size = len(footer)
        self._size += len(head) + len(footer)
        return head + footer

    def _head(self) -> bytes:
        if self._footer_size:
            raise ValueError("this file is finished")
        return b"" if self._size else MAGIC


def write_puffin(blobs: Iterable[Blob], properties: Mapping[str, str]) -> PuffinFile:
    """A file with these blobs, in this order."""
    assembly = PuffinAssembly()
    chunks = [chunk for blob in blobs for chunk in assembly.add(blob)]
    chunks.append(assembly.finish(properties))
    return PuffinFile(b"".join(chunks), assembly.blobs, assembly.footer_size)


def read_blob(
    metadata: BlobMetadata, data: bytes | memoryview, *, at_most: int = LARGEST_BLOB
) -> bytes | memoryview:
    """The content of a blob, given the bytes of its range; refused when it opens to too much."""
    if len(data) != metadata.length:
        what = f"expected a blob of {metadata.length} bytes, found {len(data)}"
        raise MalformedFileError(what, offset=metadata.offset)
    return decompress(data, metadata.codec, at_most=at_most, offset=metadata.offset)
