"""The key index as facts: its key, its runs, the data files it covers, what is deleted there.

Entries are hints, files and their deletes are the truth: an entry counts only if its file is in the
file table and its row is not deleted there. A stale entry is harmless, so runs need no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import WIDEST_DECIMAL, Decimal, Nested, Primitive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.schema.types import Scalar, Type

FORMAT_NAME = "frazil-key-index-v1"
# A deleted key that an index with sequences remembers lies in no file.
TOMBSTONE = -1
# Eight bytes with an order of their own: one such column needs no digest.
_LONGS = frozenset(
    {Primitive.INT, Primitive.LONG, Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ}
)
# Spark cannot read them from an Iceberg table, so nothing could be hashed.
_UNREADABLE = frozenset({Primitive.TIME, Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS})
_WIDER = {Primitive.INT: Primitive.LONG, Primitive.FLOAT: Primitive.DOUBLE}


class KeyHash(StrEnum):
    """How a key becomes 128 bits; which one follows from the key's types alone."""

    # One integer, date or timestamp: a bijection of its eight bytes, and no lower half.
    XXHASH64 = "xxhash64"
    # One uuid: its own two halves, the first through the same bijection.
    UUID = "uuid"
    # Everything else: the first sixteen bytes of SHA-256 over the canonical encoding.
    SHA256 = "sha256"


class DeleteKind(StrEnum):
    """How row positions of a data file are marked as gone."""

    VECTOR = "vector"
    POSITIONS = "positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePointer:
    """One delete file, or one deletion vector inside a Puffin file.

    ``data_file`` is None for a file of position deletes that concerns several data files;
    ``offset`` and ``length`` are None for position deletes, which are complete files. ``partition``
    is the JSON text that Iceberg's own descriptors carry.
    """

    kind: DeleteKind
    location: str
    file_size: int
    rows: int
    spec_id: int
    partition: str
    data_file: str | None = None
    offset: int | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFile:
    """A live data file: the number entries know it by, and everything that is deleted in it."""

    ordinal: int
    location: str
    rows: int
    size: int
    spec_id: int
    partition: str
    deletes: tuple[DeletePointer, ...] = ()


@dataclass(frozen=True, slots=True)
class RunBlob:
    """The entries of one hash bucket, at an offset in a Puffin file."""

    bucket: int
    offset: int
    length: int
    entries: int
    checksum: int


@dataclass(frozen=True, slots=True)
class RunPart:
    """One Puffin file of a run, with the buckets that one task wrote."""

    location: str
    size: int
    blobs: tuple[RunBlob, ...]


@dataclass(frozen=True, slots=True)
class IndexRun:
    """Sorted entries that never change, split by the top ``bits`` of the hash.

    A bucket without entries has no blob. No two blobs of a run have the same bucket. A run that
    was written before its files had ordinals counts them from zero: ``first_ordinal`` is added to
    those of its entries.
    """

    name: str
    bits: int
    parts: tuple[RunPart, ...]
    first_ordinal: int = 0

    @property
    def entries(self) -> int:
        """How many entries it has, dead ones included."""
        return sum(blob.entries for part in self.parts for blob in part.blobs)

    @property
    def bytes(self) -> int:
        """What it takes in the store."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKey:
    """What the entries are hashes of."""

    field_ids: tuple[int, ...]
    types: tuple[Scalar, ...]
    hash: KeyHash


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifest:
    """Everything about an index but its entries.

    ``next_ordinal`` is above every ordinal ever given in this generation. ``idle_deletes``
    counts delete files that other engines left behind and that concern no live file.
    ``sequence_type`` is set when entries carry the sequence of their change, and deletes leave
    tombstones.
    """

    table_uuid: str
    snapshot_id: int
    generation: str
    key: IndexKey
    next_ordinal: int
    files: tuple[IndexedFile, ...]
    runs: tuple[IndexRun, ...] = ()
    young_entries: int = 0
    idle_deletes: int = 0
    sequence_type: Scalar | None = None

    @property
    def entries(self) -> int:
        """All entries, dead ones included."""
        return self.young_entries + sum(run.entries for run in self.runs)


def plan_key_hash(types: Sequence[Type]) -> KeyHash:
    """How a key of these columns is hashed; UnsupportedSchemaChangeError if it cannot be a key."""
    if not types:
        raise _unsupported("a key has at least one column")
    for each in types:
        if isinstance(each, Nested) or each in _UNREADABLE:
            message = f"a column of type {each} cannot be part of a key"
            raise _unsupported(message)
    if len(types) == 1 and types[0] in _LONGS:
        return KeyHash.XXHASH64
    if len(types) == 1 and types[0] is Primitive.UUID:
        return KeyHash.UUID
    return KeyHash.SHA256


def is_same_key(old: IndexKey, new: IndexKey) -> bool:
    """Whether what was hashed under the old key is found under the new one.

    Types may differ by what hashes do not see: int and long, float and double, and the precision
    of a decimal.
    """
    return (
        old.field_ids == new.field_ids
        and old.hash is new.hash
        and [_widest(each) for each in old.types] == [_widest(each) for each in new.types]
    )


def _widest(type_: Scalar) -> Scalar:
    if isinstance(type_, Decimal):
        return Decimal(WIDEST_DECIMAL, type_.scale)
    if isinstance(type_, Primitive):
        return _WIDER.get(type_, type_)
    return type_


def _unsupported(message: str) -> UnsupportedSchemaChangeError:
    return UnsupportedSchemaChangeError(
        message, next_step="Choose other columns in `tables[].key`."
    )


class RepairReason(StrEnum):
    """What was found instead of the index of the table's current state."""

    FOREIGN_COMMIT = "foreign_commit"
    NO_ANCESTOR = "no_ancestor"
    MISSING = "missing"
    DAMAGED = "damaged"
    OTHER_KEY = "other_key"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair: a rebuild reads every file, any other only the files that came since."""

    reason: RepairReason
    detail: str
    files_read: int
    rebuilt: bool
