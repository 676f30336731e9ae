"""Puffin, Iceberg's container of blobs: ``Magic · blob · blob · … · footer``.

The footer says what is in the file, and where. Its layout is ``Magic · JSON · int32 size of the
JSON · 4 bytes of flags · Magic``, little-endian, at the end of the file.
https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.decompression import decompress_stream
from frazil.codec.json_record import JsonRecord, parse_json
from frazil.codec.malformed import MalformedFileError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAGIC = b"PFA1"
TRAILER = struct.Struct("<i4s4s")
# The footer without its JSON: a magic in front, the trailer behind.
FRAME = len(MAGIC) + TRAILER.size
# Ten thousand deletion vectors make a footer of 4 MB; a longer one is damaged.
LARGEST_FOOTER = 64 << 20

_COMPRESSED = 1
_LONG = range(-(1 << 63), 1 << 63)
_INT = range(-(1 << 31), 1 << 31)
_NATURAL = range(1 << 63)
# Readers hold blobs completely in memory; a gigabyte out of a few bytes is an attack.
LARGEST_BLOB = 1 << 30


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


@dataclass(frozen=True)
class BlobMetadata:
    """What the footer says of one blob; the offset counts from the start of the file."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    codec: BlobCompression = BlobCompression.NONE
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The first byte after the blob."""
        return self.offset + self.length


@dataclass(frozen=True)
class Footer:
    """Every blob of a file, in the file's own order; ``size`` counts both magics."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str]
    size: int


class TailTooShortError(Exception):
    """The footer is longer than the bytes given; read the last ``needed`` ones and try again."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed

    def __str__(self) -> str:
        return f"the last {self.needed} bytes of the file are needed"


def write_footer(blobs: Iterable[BlobMetadata], properties: Mapping[str, str]) -> bytes:
    """The footer, never compressed: Iceberg for Java and PyIceberg cannot open compressed ones."""
    document: dict[str, object] = {"blobs": [_as_json(blob) for blob in blobs]}
    if properties:
        document["properties"] = dict(properties)
    payload = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join((MAGIC, payload, TRAILER.pack(len(payload), bytes(4), MAGIC)))


def read_footer(tail: bytes, *, file_size: int) -> Footer:
    """What the last bytes of a file of that size say; a tail longer than the footer is fine.

    Raises:
        TailTooShortError: More of the file's end is needed; the error says how much.
        MalformedFileError: This is not the end of a Puffin file; offsets are those in the file.
    """
    if file_size < len(MAGIC) + FRAME:
        what = f"expected a Puffin file, found {file_size} bytes"
        raise MalformedFileError(what, offset=0)
    if len(tail) < TRAILER.size:
        raise TailTooShortError(TRAILER.size)
    size, codec = _read_trailer(tail, file_size)
    if len(tail) < size:
        raise TailTooShortError(size)
    starts = file_size - size
    footer = tail[len(tail) - size :]
    check_magic(footer, offset=starts)
    if len(tail) >= file_size:
        check_magic(tail[len(tail) - file_size :], offset=0)
    at = starts + len(MAGIC)
    stored = footer[len(MAGIC) : -TRAILER.size]
    payload = decompress(stored, codec, at_most=LARGEST_FOOTER, offset=at)
    document = JsonRecord("the footer", parse_json(bytes(payload), offset=at), offset=at)
    blobs = tuple(
        _blob(JsonRecord(f"blob {number}", each, offset=at))
        for number, each in enumerate(document.items("blobs"))
    )
    _check_ranges(blobs, starts)
    return Footer(blobs, document.properties("properties"), size)


def check_magic(data: bytes, *, offset: int) -> None:
    """Refuse bytes that do not begin as a Puffin file and its footer do."""
    if not data.startswith(MAGIC):
        raise MalformedFileError("expected the magic PFA1", offset=offset)


def _read_trailer(tail: bytes, file_size: int) -> tuple[int, BlobCompression]:
    at = file_size - TRAILER.size
    length, flags, magic = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    check_magic(magic, offset=file_size - len(MAGIC))
    bits = int.from_bytes(flags, "little")
    if bits & ~_COMPRESSED:
        what = f"expected no footer flags but compression, found 0x{bits:08x}"
        raise MalformedFileError(what, offset=at + 4)
    most = min(LARGEST_FOOTER, file_size - len(MAGIC) - FRAME)
    if not 0 <= length <= most:
        what = f"expected a footer of at most {most} bytes, found {length}"
        raise MalformedFileError(what, offset=at)
    return FRAME + length, BlobCompression.LZ4 if bits else BlobCompression.NONE


def _codec(record: JsonRecord) -> BlobCompression:
    member = "compression-codec"
    if member not in record:
        return BlobCompression.NONE
    name = record.text(member)
    # What is not compressed has no codec; the name "none" is ours, not the format's.
    if name not in {BlobCompression.LZ4, BlobCompression.ZSTD}:
        raise record.refusal(member, f"lz4 or zstd, not {quoted(name)}")
    return BlobCompression(name)


def _blob(record: JsonRecord) -> BlobMetadata:
    return BlobMetadata(
        type=record.text("type"),
        fields=tuple(record.numbers("fields", _INT)),
        snapshot_id=record.number("snapshot-id", _LONG),
        sequence_number=record.number("sequence-number", _LONG),
        offset=record.number("offset", _NATURAL),
        length=record.number("length", _NATURAL),
        codec=_codec(record),
        properties=record.properties("properties"),
    )


def _check_ranges(blobs: Iterable[BlobMetadata], footer_starts: int) -> None:
    """Refuse blobs outside of the space between head and footer, and blobs that share bytes."""
    free = len(MAGIC)
    for blob in sorted(blobs, key=lambda blob: (blob.offset, blob.end)):
        if blob.offset < free or blob.end > footer_starts:
            what = (
                f"expected a blob between bytes {free} and {footer_starts}, "
                f"found {blob.length} bytes at {blob.offset}"
            )
            raise MalformedFileError(what, offset=footer_starts)
        free = blob.end


def _as_json(blob: BlobMetadata) -> dict[str, object]:
    members: dict[str, object] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.codec is not BlobCompression.NONE:
        members["compression-codec"] = blob.codec.value
    if blob.properties:
        members["properties"] = dict(blob.properties)
    return members


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
