"""One message of PostgreSQL's output plugin ``pgoutput``, protocols 1 and 2, from its bytes.

Every length is checked before it is believed, and what is left over is refused. For many messages
at once there is ``pgoutput_bulk``, which is tested to say the same. PostgreSQL's manual has the
layouts under "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    LogicalMessage,
    Message,
    MessageKind,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TruncateOption,
    TypeName,
    Update,
    Value,
    ValueKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Streamed ones name their transaction, because those of several are sent in turns.
CARRY_XID = frozenset(
    {
        MessageKind.LOGICAL_MESSAGE,
        MessageKind.RELATION,
        MessageKind.TYPE,
        MessageKind.INSERT,
        MessageKind.UPDATE,
        MessageKind.DELETE,
        MessageKind.TRUNCATE,
    }
)

_UINT8 = struct.Struct(">B")
_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_UINT64 = struct.Struct(">Q")
_INT64 = struct.Struct(">q")

# The server leaves out the name of its own schema.
_OWN_NAMESPACE = "pg_catalog"
_IDENTITIES = {ord(each.value): each for each in ReplicaIdentity}
# A plain number: the complement of flags has no others than those that are known.
_ALL_TRUNCATE_OPTIONS = int(TruncateOption.CASCADE | TruncateOption.RESTART_IDENTITY)
_VALUE_KINDS = {each.value: each for each in ValueKind}
_VALUED = frozenset({ValueKind.TEXT, ValueKind.BINARY})


def decode_message(data: bytes, *, in_stream: bool) -> Message:
    """The message that these bytes are, all of them.

    ``in_stream`` says that it came between Stream Start and Stream Stop, which its own bytes do not
    show. Raises MalformedFileError with the offset in the message.
    """
    reader = _Reader(data)
    found = reader.number(_UINT8, "a kind of message")
    decode = _DECODERS.get(found)
    if decode is None:
        what = f"expected a message of protocol 1 or 2, found the kind 0x{found:02x}"
        raise MalformedFileError(what, offset=0)
    carries_xid = in_stream and found in CARRY_XID
    message = decode(reader, reader.number(_UINT32, "a transaction") if carries_xid else None)
    reader.finish()
    return message


class _Reader:
    """The bytes of one message and how far they were read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, layout: struct.Struct, what: str) -> int:
        self._need(layout.size, what)
        (found,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(found)

    def flag(self, what: str) -> bool:
        found = self.number(_UINT8, what)
        if found > 1:
            self.refuse(f"expected 0 or 1 for {what}, found {found}", back=1)
        return found == 1

    def zero(self, what: str) -> None:
        found = self.number(_UINT8, what)
        if found:
            self.refuse(f"expected 0 for {what}, found {found}", back=1)

    def chunk(self, length: int, what: str) -> bytes:
        self._need(length, what)
        self._at += length
        return self._data[self._at - length : self._at]

    def name(self, what: str) -> str:
        end = self._data.find(0, self._at)
        if end < 0:
            self.refuse(f"expected {what} to end in a zero byte")
        try:
            found = self._data[self._at : end].decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = f"expected {what} in UTF-8"
            # Python's error holds the bytes, and would show them in a trace.
            raise MalformedFileError(wrong, offset=self._at + error.start) from None
        self._at = end + 1
        return found

    def finish(self) -> None:
        left = len(self._data) - self._at
        if left:
            self.refuse(f"expected the end of the message, found {left} more bytes")

    def refuse(self, what: str, *, back: int = 0) -> NoReturn:
        """Raise, with the offset that was reached or one a few bytes before it."""
        raise MalformedFileError(what, offset=self._at - back)

    def _need(self, length: int, what: str) -> None:
        left = len(self._data) - self._at
        if length > left:
            self.refuse(f"expected {length} bytes of {what}, found {left}")


def _begin(reader: _Reader, _xid: int | None) -> Begin:
    return Begin(
        final_lsn=reader.number(_UINT64, "a final position"),
        committed_at=reader.number(_INT64, "a commit time"),
        xid=reader.number(_UINT32, "a transaction"),
    )


def _commit(reader: _Reader, _xid: int | None) -> Commit:
    reader.zero("the flags of a commit")
    return Commit(
        commit_lsn=reader.number(_UINT64, "a commit position"),
        end_lsn=reader.number(_UINT64, "an end position"),
        committed_at=reader.number(_INT64, "a commit time"),
    )


def _origin(reader: _Reader, _xid: int | None) -> Origin:
    return Origin(lsn=reader.number(_UINT64, "a position"), name=reader.name("an origin"))


def _logical_message(reader: _Reader, xid: int | None) -> LogicalMessage:
    is_transactional = reader.flag("the flags of a message")
    lsn = reader.number(_UINT64, "a position")
    prefix = reader.name("a prefix")
    content = reader.chunk(reader.number(_UINT32, "a length"), "a message")
    return LogicalMessage(lsn, prefix, content, is_transactional=is_transactional, xid=xid)


def _relation(reader: _Reader, xid: int | None) -> Relation:
    oid = reader.number(_UINT32, "a relation")
    namespace = reader.name("a schema") or _OWN_NAMESPACE
    name = reader.name("a relation's name")
    identity = _IDENTITIES.get(reader.number(_UINT8, "a replica identity"))
    if identity is None:
        reader.refuse("expected d, n, f or i for a replica identity", back=1)
    count = reader.number(_UINT16, "a number of columns")
    columns = tuple(_relation_column(reader) for _ in range(count))
    return Relation(oid, namespace, name, identity, columns, xid)


def _relation_column(reader: _Reader) -> RelationColumn:
    is_key = reader.flag("the flags of a column")
    return RelationColumn(
        name=reader.name("a column"),
        type_oid=reader.number(_UINT32, "a type"),
        type_modifier=reader.number(_INT32, "a type's modifier"),
        is_key=is_key,
    )


def _type(reader: _Reader, xid: int | None) -> TypeName:
    oid = reader.number(_UINT32, "a type")
    return TypeName(oid, reader.name("a schema") or _OWN_NAMESPACE, reader.name("a type"), xid)


def _insert(reader: _Reader, xid: int | None) -> Insert:
    oid = reader.number(_UINT32, "a relation")
    _image_kind(reader, ImageKind.NEW)
    return Insert(oid, _values(reader), xid)


def _update(reader: _Reader, xid: int | None) -> Update:
    oid = reader.number(_UINT32, "a relation")
    kind = _image_kind(reader, ImageKind.NEW, ImageKind.OLD_KEY, ImageKind.OLD_ROW)
    old = None
    if kind is not ImageKind.NEW:
        old = OldImage(kind, _values(reader))
        _image_kind(reader, ImageKind.NEW)
    return Update(oid, old, _values(reader), xid)


def _delete(reader: _Reader, xid: int | None) -> Delete:
    oid = reader.number(_UINT32, "a relation")
    kind = _image_kind(reader, ImageKind.OLD_KEY, ImageKind.OLD_ROW)
    return Delete(oid, OldImage(kind, _values(reader)), xid)


def _image_kind(reader: _Reader, *allowed: ImageKind) -> ImageKind:
    found = reader.number(_UINT8, "a kind of row image")
    if found not in allowed:
        names = " or ".join(chr(each) for each in allowed)
        reader.refuse(f"expected a row image {names}, found 0x{found:02x}", back=1)
    return ImageKind(found)


def _values(reader: _Reader) -> tuple[Value, ...]:
    count = reader.number(_UINT16, "a number of columns")
    return tuple(_value(reader) for _ in range(count))


def _value(reader: _Reader) -> Value:
    found = reader.number(_UINT8, "a kind of value")
    kind = _VALUE_KINDS.get(found)
    if kind is None:
        reader.refuse(f"expected a value of kind n, u, t or b, found 0x{found:02x}", back=1)
    if kind not in _VALUED:
        return Value(kind)
    return Value(kind, reader.chunk(reader.number(_UINT32, "a value's length"), "a value"))


def _truncate(reader: _Reader, xid: int | None) -> Truncate:
    count = reader.number(_UINT32, "a number of relations")
    options = reader.number(_UINT8, "the options of a truncation")
    if options & ~_ALL_TRUNCATE_OPTIONS:
        reader.refuse(f"expected options from 0 to 3, found {options}", back=1)
    oids = reader.chunk(_UINT32.size * count, "relations")
    return Truncate(
        tuple(oid for (oid,) in _UINT32.iter_unpack(oids)), TruncateOption(options), xid
    )


def _stream_start(reader: _Reader, _xid: int | None) -> StreamStart:
    xid = reader.number(_UINT32, "a transaction")
    return StreamStart(xid, is_first=reader.flag("the first part of a transaction"))


def _stream_stop(_reader: _Reader, _xid: int | None) -> StreamStop:
    return StreamStop()


def _stream_commit(reader: _Reader, _xid: int | None) -> StreamCommit:
    xid = reader.number(_UINT32, "a transaction")
    end = _commit(reader, None)
    return StreamCommit(xid, end.commit_lsn, end.end_lsn, end.committed_at)


def _stream_abort(reader: _Reader, _xid: int | None) -> StreamAbort:
    xid = reader.number(_UINT32, "a transaction")
    return StreamAbort(xid, subxid=reader.number(_UINT32, "a subtransaction"))


_DECODERS: Mapping[int, Callable[[_Reader, int | None], Message]] = {
    MessageKind.BEGIN: _begin,
    MessageKind.COMMIT: _commit,
    MessageKind.ORIGIN: _origin,
    MessageKind.LOGICAL_MESSAGE: _logical_message,
    MessageKind.RELATION: _relation,
    MessageKind.TYPE: _type,
    MessageKind.INSERT: _insert,
    MessageKind.UPDATE: _update,
    MessageKind.DELETE: _delete,
    MessageKind.TRUNCATE: _truncate,
    MessageKind.STREAM_START: _stream_start,
    MessageKind.STREAM_STOP: _stream_stop,
    MessageKind.STREAM_COMMIT: _stream_commit,
    MessageKind.STREAM_ABORT: _stream_abort,
}
