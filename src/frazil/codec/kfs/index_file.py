"""The index beside a segment: at which byte of it some offsets are."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from frazil.codec.malformed import MalformedFileError

MAGIC = b"IDX\x00"
_VERSION = 1
# Magic, version, entries, messages between two entries, reserved.
_HEADER = struct.Struct(">4sHiiH")
# Offset, and where its batch begins in the segment file.
_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """Entries in their order: an offset, and where its batch begins in the segment file."""

    interval: int
    entries: tuple[tuple[int, int], ...]


def parse_index(data: bytes) -> SegmentIndex:
    """The index in these bytes; MalformedFileError unless they are one, from first to last."""
    if len(data) < _HEADER.size:
        raise MalformedFileError("expected an index's header", offset=len(data))
    magic, version, count, interval, _ = _HEADER.unpack_from(data)
    if magic != MAGIC or version != _VERSION:
        what = f"expected an index of version {_VERSION}"
        raise MalformedFileError(what, offset=0)
    if len(data) != _HEADER.size + count * _ENTRY.size:
        what = f"expected {count} entries, found {len(data) - _HEADER.size} bytes"
        raise MalformedFileError(what, offset=_HEADER.size)
    return SegmentIndex(interval, tuple(_ENTRY.iter_unpack(data[_HEADER.size :])))
