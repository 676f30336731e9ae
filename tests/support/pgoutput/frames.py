"""Messages of ``pgoutput`` as the server writes them; the product only reads them."""

from __future__ import annotations

import struct
from functools import singledispatch

from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
    Update,
    Value,
    ValueKind,
)

NULL = Value(ValueKind.NULL)
UNCHANGED = Value(ValueKind.UNCHANGED)


def text(content: str) -> Value:
    return Value(ValueKind.TEXT, content.encode())


def encode_message(message: Message) -> bytes:
    return _encode(message)


@singledispatch
def _encode(message: object) -> bytes:
    raise TypeError(type(message))


def _head(kind: bytes, xid: int | None) -> bytes:
    return kind if xid is None else kind + struct.pack(">I", xid)


def _name(name: str) -> bytes:
    return name.encode() + b"\0"


def _namespace(name: str) -> bytes:
    return _name("" if name == "pg_catalog" else name)


def encode_values(values: tuple[Value, ...]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        parts.append(bytes([value.kind]))
        if value.kind in {ValueKind.TEXT, ValueKind.BINARY}:
            parts.append(struct.pack(">I", len(value.data)) + value.data)
    return b"".join(parts)


def _old(image: OldImage) -> bytes:
    return bytes([image.kind]) + encode_values(image.values)


@_encode.register
def _(message: Begin) -> bytes:
    return b"B" + struct.pack(">QqI", message.final_lsn, message.committed_at, message.xid)


@_encode.register
def _(message: Commit) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, message.commit_lsn, message.end_lsn, message.committed_at)


@_encode.register
def _(message: Origin) -> bytes:
    return b"O" + struct.pack(">Q", message.lsn) + _name(message.name)


@_encode.register
def _(message: LogicalMessage) -> bytes:
    return b"".join(
        (
            _head(b"M", message.xid),
            struct.pack(">BQ", message.is_transactional, message.lsn),
            _name(message.prefix),
            struct.pack(">I", len(message.content)),
            message.content,
        )
    )


@_encode.register
def _(message: Relation) -> bytes:
    columns = (
        struct.pack(">B", column.is_key)
        + _name(column.name)
        + struct.pack(">Ii", column.type_oid, column.type_modifier)
        for column in message.columns
    )
    return b"".join(
        (
            _head(b"R", message.xid),
            struct.pack(">I", message.oid),
            _namespace(message.namespace),
            _name(message.name),
            message.replica_identity.value.encode(),
            struct.pack(">H", len(message.columns)),
            *columns,
        )
    )


@_encode.register
def _(message: TypeName) -> bytes:
    name = _namespace(message.namespace) + _name(message.name)
    return _head(b"Y", message.xid) + struct.pack(">I", message.oid) + name


@_encode.register
def _(message: Insert) -> bytes:
    oid = struct.pack(">I", message.relation_oid)
    return _head(b"I", message.xid) + oid + b"N" + encode_values(message.new)


@_encode.register
def _(message: Update) -> bytes:
    oid = struct.pack(">I", message.relation_oid)
    old = b"" if message.old is None else _old(message.old)
    return _head(b"U", message.xid) + oid + old + b"N" + encode_values(message.new)


@_encode.register
def _(message: Delete) -> bytes:
    return _head(b"D", message.xid) + struct.pack(">I", message.relation_oid) + _old(message.old)


@_encode.register
def _(message: Truncate) -> bytes:
    oids = message.relation_oids
    numbers = struct.pack(f">IB{len(oids)}I", len(oids), message.options, *oids)
    return _head(b"T", message.xid) + numbers


@_encode.register
def _(message: StreamStart) -> bytes:
    return b"S" + struct.pack(">IB", message.xid, message.is_first)


@_encode.register
def _(message: StreamStop) -> bytes:  # noqa: ARG001 - it has a type and nothing else
    return b"E"


@_encode.register
def _(message: StreamCommit) -> bytes:
    return b"c" + struct.pack(
        ">IBQQq", message.xid, 0, message.commit_lsn, message.end_lsn, message.committed_at
    )


@_encode.register
def _(message: StreamAbort) -> bytes:
    return b"A" + struct.pack(">II", message.xid, message.subxid)
