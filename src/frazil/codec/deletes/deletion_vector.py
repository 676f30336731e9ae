"""Deletion vectors: which rows of a data file are gone, as format version 3 stores it.

A blob is ``int32 length · magic · vector · CRC-32``; length and checksum are big-endian and cover
magic and vector. The vector is a count of 32-bit bitmaps and, for each, the upper half of its
positions and the bitmap in roaring's portable form, all little-endian.
https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64, FrozenBitMap64

from frazil.codec.deletes.roaring_layout import check_bitmap
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import Blob, PuffinFile, write_puffin
from frazil.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

BLOB_TYPE = "deletion-vector-v1"
# The length that a signed 32-bit number in front of the blob can hold, and length and checksum.
LARGEST_BLOB = (1 << 31) - 1 + 8

_MAGIC = bytes.fromhex("d1d33964")
_LENGTH = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_COUNT = struct.Struct("<q")
_KEY = struct.Struct("<i")
# Iceberg for Java keeps a bitmap per key in an array, and has no space for the two largest keys.
_LARGEST_KEY = (1 << 31) - 2
_POSITIONS_END = (_LARGEST_KEY + 1) << 32
# The metadata column `_pos`, which is what a deletion vector is made of.
_POSITION_FIELD = 2147483645


@dataclass(frozen=True)
class DeletionVector:
    """A set of row positions; crosses to Spark tasks and back as it is."""

    bitmap: FrozenBitMap64 = field(default_factory=FrozenBitMap64)

    @classmethod
    def from_positions(cls, positions: ArrayLike) -> DeletionVector:
        """The set of these integers, in any order, repeated or not."""
        numbers = np.asarray(positions)
        if not numbers.size:
            return cls()
        if not np.issubdtype(numbers.dtype, np.integer):
            raise TypeError("positions are integers, and none is missing")
        if numbers.min() < 0 or numbers.max() >= _POSITIONS_END:
            message = f"positions lie between 0 and {_POSITIONS_END - 1}"
            raise ValueError(message)
        # In order they are added ten times as fast; sorted ones cost a stable sort next to nothing.
        ascending = np.sort(numbers, axis=None, kind="stable").astype(np.uint64, copy=False)
        # From an array the C code takes its numbers itself; from NumPy's it takes Python's.
        return cls(FrozenBitMap64(array("Q", ascending.tobytes())))

    @property
    def cardinality(self) -> int:
        """How many rows are deleted."""
        return len(self.bitmap)

    @property
    def smallest(self) -> int:
        """The first deleted row; an empty set has none and raises ValueError."""
        return self.bitmap.min()

    @property
    def largest(self) -> int:
        """The last deleted row; an empty set has none and raises ValueError."""
        return self.bitmap.max()

    def positions(self) -> NDArray[np.uint64]:
        """All positions, ascending: eight bytes each, even where the set itself is a few runs."""
        return np.frombuffer(self.bitmap.to_array(), dtype=np.uint64)

    def union(self, other: DeletionVector) -> DeletionVector:
        """What either deletes."""
        return DeletionVector(self.bitmap | other.bitmap)

    def __contains__(self, position: int) -> bool:
        return position in self.bitmap


def encode_deletion_vector(vector: DeletionVector) -> bytes:
    """The blob, byte for byte as Iceberg for Java writes it below 2³² rows."""
    bitmap = BitMap64(vector.bitmap)
    bitmap.run_optimize()
    content = _MAGIC + bitmap.serialize()
    if len(content) > LARGEST_BLOB - 8:
        raise ValueError("a deletion vector is at most 2 GiB")
    return b"".join((_LENGTH.pack(len(content)), content, _CHECKSUM.pack(zlib.crc32(content))))


def decode_deletion_vector(blob: bytes, *, cardinality: int | None = None) -> DeletionVector:
    """The set that a blob stores; with ``cardinality``, only if it has that many members.

    A file's record count must be given where it is known: it reveals an offset that points to
    another vector.
    """
    smallest = _LENGTH.size + len(_MAGIC) + _COUNT.size + _CHECKSUM.size
    if len(blob) < smallest:
        what = f"expected a deletion vector of at least {smallest} bytes, found {len(blob)}"
        raise MalformedFileError(what, offset=0)
    (length,) = _LENGTH.unpack_from(blob)
    if length != len(blob) - _LENGTH.size - _CHECKSUM.size:
        what = f"expected the length {len(blob) - _LENGTH.size - _CHECKSUM.size}, found {length}"
        raise MalformedFileError(what, offset=0)
    if blob[4:8] != _MAGIC:
        raise MalformedFileError("expected the magic D1D33964", offset=4)
    if not has_valid_checksum(blob):
        what = "expected another CRC-32: the deletion vector is damaged"
        raise MalformedFileError(what, offset=len(blob) - _CHECKSUM.size)
    vector = DeletionVector(FrozenBitMap64.deserialize(_checked_vector(blob)))
    if cardinality is not None and vector.cardinality != cardinality:
        what = f"expected {cardinality} positions, found {vector.cardinality}"
        raise MalformedFileError(what, offset=8)
    return vector


def has_valid_checksum(blob: bytes) -> bool:
    """Whether the last four bytes are the checksum of those between length and checksum."""
    return blob[-4:] == _CHECKSUM.pack(zlib.crc32(blob[4:-4]))


def _checked_vector(blob: bytes) -> bytes:
    at = _LENGTH.size + len(_MAGIC)
    end = len(blob) - _CHECKSUM.size
    (count,) = _COUNT.unpack_from(blob, at)
    vector_starts = at
    at += _COUNT.size
    # The least that a bitmap takes is its key, a cookie and a count of zero.
    most = (end - at) // 12
    if not 0 <= count <= most:
        what = f"expected at most {most} bitmaps, found {count}"
        raise MalformedFileError(what, offset=vector_starts)
    previous = -1
    for _ in range(count):
        if at + _KEY.size > end:
            raise MalformedFileError("expected the key of a bitmap", offset=at)
        (key,) = _KEY.unpack_from(blob, at)
        if not previous < key <= _LARGEST_KEY:
            what = f"expected a key from {previous + 1} to {_LARGEST_KEY}, found {key}"
            raise MalformedFileError(what, offset=at)
        previous = key
        at = check_bitmap(blob, start=at + _KEY.size, end=end)
    if at != end:
        what = f"expected the end of the deletion vector, found {end - at} more bytes"
        raise MalformedFileError(what, offset=at)
    return blob[vector_starts:end]


def deletion_vector_puffin(vectors: Mapping[str, DeletionVector]) -> PuffinFile:
    """One Puffin file with the vector of each data file, in the mapping's order."""
    if not all(vector.cardinality for vector in vectors.values()):
        raise ValueError("a deletion vector deletes at least one row")
    blobs = (
        Blob(
            BLOB_TYPE,
            encode_deletion_vector(vector),
            fields=(_POSITION_FIELD,),
            properties={
                "referenced-data-file": data_file,
                "cardinality": str(vector.cardinality),
            },
        )
        for data_file, vector in vectors.items()
    )
    return write_puffin(blobs, {"created-by": f"frazil {__version__}"})


def delete_file_descriptors(
    location: str, file: PuffinFile, placements: Mapping[str, FilePartition]
) -> tuple[str, ...]:
    """The vectors of a file made above, one line of JSON each, in the file's order.

    ``location`` is where the file was put; ``placements`` has every data file of it.
    """
    return tuple(
        describe_delete_file(
            location,
            file_format="PUFFIN",
            file_size=len(file.data),
            record_count=int(blob.properties["cardinality"]),
            data_file=blob.properties["referenced-data-file"],
            placement=placements[blob.properties["referenced-data-file"]],
            more={"content-offset": blob.offset, "content-size-in-bytes": blob.length},
        )
        for blob in file.blobs
    )


@dataclass(frozen=True)
class FilePartition:
    """The spec and partition of a data file, which its deletes must share exactly.

    Otherwise every scan of the table fails. ``partition`` maps partition field ids to values in
    Iceberg's JSON form; a field whose value is null is left out.
    """

    spec_id: int = 0
    partition: Mapping[int, str | int | float | bool] = field(default_factory=dict)


def describe_delete_file(
    location: str,
    *,
    file_format: str,
    file_size: int,
    record_count: int,
    data_file: str,
    placement: FilePartition,
    more: Mapping[str, object],
) -> str:
    """A position delete file, or one vector of a Puffin file, as ``ContentFileParser`` reads it."""
    members = {
        "spec-id": placement.spec_id,
        "content": "POSITION_DELETES",
        "file-path": location,
        "file-format": file_format,
        "partition": {str(key): value for key, value in placement.partition.items()},
        "file-size-in-bytes": file_size,
        "record-count": record_count,
        **more,
        "referenced-data-file": data_file,
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
