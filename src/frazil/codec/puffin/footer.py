"""The footer of a Puffin file: what is in the file, and where.

The layout is ``Magic · JSON · int32 size of the JSON · 4 bytes of flags · Magic``, little-endian,
at the end of the file. https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.codec.malformed import MalformedFileError, quoted
from frazil.codec.puffin.compression import BlobCompression, decompress

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
    document = _Record("the footer", _parsed(bytes(payload), at), at)
    blobs = tuple(
        _blob(_Record(f"blob {number}", each, at))
        for number, each in enumerate(document.items("blobs"))
    )
    _check_ranges(blobs, starts)
    return Footer(blobs, document.texts("properties"), size)


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


def _parsed(payload: bytes, at: int) -> object:
    try:
        return json.loads(
            payload.decode(), object_pairs_hook=_unique_members, parse_constant=_no_constant
        )
    # The parser descends once per bracket, and a footer may be nothing but brackets.
    except (ValueError, RecursionError) as error:
        raise MalformedFileError("expected a JSON document", offset=at) from error


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is there twice")
    return members


def _no_constant(name: str) -> object:
    raise ValueError(name)


class _Record:
    """A JSON object whose members are taken out by the type they must have."""

    def __init__(self, name: str, members: object, offset: int) -> None:
        self._name = name
        self._offset = offset
        if not isinstance(members, dict):
            what = f"expected {name} to be an object"
            raise MalformedFileError(what, offset=offset)
        self._members = members

    def refusal(self, member: str, expected: str) -> MalformedFileError:
        what = f"expected `{member}` of {self._name} to be {expected}"
        return MalformedFileError(what, offset=self._offset)

    def items(self, member: str) -> list[object]:
        value = self._members.get(member)
        if not isinstance(value, list):
            raise self.refusal(member, "a list")
        return value

    def number(self, member: str, within: range) -> int:
        return self._as_number(member, self._members.get(member), within)

    def numbers(self, member: str, within: range) -> tuple[int, ...]:
        return tuple(self._as_number(member, each, within) for each in self.items(member))

    def text(self, member: str) -> str:
        return self._as_text(member, self._members.get(member))

    def texts(self, member: str) -> dict[str, str]:
        value = self._members.get(member, {})
        if not isinstance(value, dict):
            raise self.refusal(member, "an object")
        return {
            self._as_text(member, key): self._as_text(member, each) for key, each in value.items()
        }

    def codec(self, member: str) -> BlobCompression:
        if member not in self._members:
            return BlobCompression.NONE
        name = self.text(member)
        # What is not compressed has no codec; the name "none" is ours, not the format's.
        if name not in {BlobCompression.LZ4, BlobCompression.ZSTD}:
            raise self.refusal(member, f"lz4 or zstd, not {quoted(name)}")
        return BlobCompression(name)

    def _as_number(self, member: str, value: object, within: range) -> int:
        # JSON's true is an int to Python.
        if not isinstance(value, int) or isinstance(value, bool) or value not in within:
            raise self.refusal(member, f"a number from {within[0]} to {within[-1]}")
        return value

    def _as_text(self, member: str, value: object) -> str:
        # JSON can escape half a character, which no terminal and no file can be given.
        if not isinstance(value, str) or any("\ud800" <= each <= "\udfff" for each in value):
            raise self.refusal(member, "text")
        return value


def _blob(record: _Record) -> BlobMetadata:
    return BlobMetadata(
        type=record.text("type"),
        fields=record.numbers("fields", _INT),
        snapshot_id=record.number("snapshot-id", _LONG),
        sequence_number=record.number("sequence-number", _LONG),
        offset=record.number("offset", _NATURAL),
        length=record.number("length", _NATURAL),
        codec=record.codec("compression-codec"),
        properties=record.texts("properties"),
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
