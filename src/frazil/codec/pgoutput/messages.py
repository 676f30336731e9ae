"""What PostgreSQL's output plugin ``pgoutput`` says, protocols 1 and 2, as frozen values.

Positions in the log are integers, never text. Times are microseconds since the year 2000,
which every integer is; ``moment`` turns one into a date where there is such a date. Values of
rows are in no ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum, IntFlag
from typing import TypeAlias

# From the beginning of 1970, where the rest of the world counts from, to PostgreSQL's.
EPOCH_MICROSECONDS = 946_684_800_000_000

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> datetime:
    """The date and time that a message means; OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=microseconds)


class MessageKind(IntEnum):
    """The first byte of a message."""

    BEGIN = ord("B")
    COMMIT = ord("C")
    ORIGIN = ord("O")
    LOGICAL_MESSAGE = ord("M")
    RELATION = ord("R")
    TYPE = ord("Y")
    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    TRUNCATE = ord("T")
    STREAM_START = ord("S")
    STREAM_STOP = ord("E")
    STREAM_COMMIT = ord("c")
    STREAM_ABORT = ord("A")


class ImageKind(IntEnum):
    """The byte before a row image: which image of the row it is."""

    NEW = ord("N")
    # The columns of the replica identity; all others are sent as NULL and are not.
    OLD_KEY = ord("K")
    OLD_ROW = ord("O")


class ValueKind(IntEnum):
    """The byte before a column of a row image."""

    NULL = ord("n")
    # Stored out of line and not touched by the update: the value is what it was before.
    UNCHANGED = ord("u")
    TEXT = ord("t")
    BINARY = ord("b")


class ReplicaIdentity(Enum):
    """Which columns of an old row the server sends."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


class TruncateOption(IntFlag):
    """What was said along with TRUNCATE."""

    CASCADE = 1
    RESTART_IDENTITY = 2


@dataclass(frozen=True, slots=True)
class Value:
    """One column of a row image; ``data`` is empty for what is NULL or unchanged."""

    kind: ValueKind
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class OldImage:
    """A row as it was, complete or only its key."""

    kind: ImageKind
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction follows whose commit record starts at ``final_lsn``."""

    final_lsn: int
    committed_at: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction is over; the next one's records start at ``end_lsn`` or later."""

    commit_lsn: int
    end_lsn: int
    committed_at: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction came to this server from another one, where it had this position."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What was given to ``pg_logical_emit_message``."""

    lsn: int
    prefix: str
    content: bytes = field(repr=False)
    is_transactional: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A published column; ``is_key`` says that the replica identity has it."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the row messages after this one describe it."""

    oid: int
    namespace: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type that is not built in, before the relation that uses it."""

    oid: int
    namespace: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """A row came."""

    relation_oid: int
    new: tuple[Value, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A row changed; ``old`` is sent when its key changed, or with the identity FULL."""

    relation_oid: int
    old: OldImage | None
    new: tuple[Value, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A row went."""

    relation_oid: int
    old: OldImage
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these tables went."""

    relation_oids: tuple[int, ...]
    options: TruncateOption
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A part of a transaction that has not ended follows; whose it is."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The part is over; others may follow, and those of other transactions between them."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A transaction that was sent in parts is committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    committed_at: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """What ``subxid`` sent so far never was; if it is ``xid`` itself, the entire transaction."""

    xid: int
    subxid: int


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | LogicalMessage
    | Relation
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)
