"""The frames that carry a replication stream: what the server sends, and our answer to it.

PostgreSQL's manual has the layouts under "Streaming Replication Protocol".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from frazil.codec.malformed import MalformedFileError

_LOG_DATA = ord("w")
_KEEPALIVE = ord("k")
_STATUS = ord("r")

# Without the kind, which was checked before.
_LOG_DATA_HEAD = struct.Struct(">xQQq")
_KEEPALIVE_FRAME = struct.Struct(">BQqB")
_STATUS_FRAME = struct.Struct(">BQQQqB")
_HEAD_BYTES = _LOG_DATA_HEAD.size
_read_head = _LOG_DATA_HEAD.unpack_from
_new_tuple = tuple.__new__


# Tuples, because one is made for every change, and a frozen dataclass takes three times as long.
class LogData(NamedTuple):
    """A piece of the stream: for logical replication, exactly one message.

    ``end_lsn`` is the server's end of log when it sent this; ``sent_at`` counts microseconds from
    the year 2000.
    """

    start_lsn: int
    end_lsn: int
    sent_at: int
    payload: bytes

    def __repr__(self) -> str:
        # A payload holds rows, which are shown nowhere.
        return f"LogData(start_lsn={self.start_lsn:#x}, payload of {len(self.payload)} bytes)"


class Keepalive(NamedTuple):
    """The server is there, and its log ends here; it may want to know whether we are."""

    end_lsn: int
    sent_at: int
    wants_reply: bool


def decode_replication_frame(data: bytes) -> LogData | Keepalive:
    """The frame that these bytes are; MalformedFileError for any other."""
    kind = data[0] if data else -1
    if kind == _LOG_DATA:
        if len(data) < _HEAD_BYTES:
            what = f"expected {_HEAD_BYTES} bytes before a message, found {len(data)}"
            raise MalformedFileError(what, offset=len(data))
        # As LogData(…) does it, in half the time.
        return _new_tuple(LogData, (*_read_head(data), data[_HEAD_BYTES:]))
    if kind == _KEEPALIVE:
        return _keepalive(data)
    found = f"the kind 0x{kind:02x}" if data else "no bytes"
    what = f"expected a frame of kind w or k, found {found}"
    raise MalformedFileError(what, offset=0)


def _keepalive(data: bytes) -> Keepalive:
    if len(data) != _KEEPALIVE_FRAME.size:
        what = f"expected a keepalive of {_KEEPALIVE_FRAME.size} bytes, found {len(data)}"
        raise MalformedFileError(what, offset=min(len(data), _KEEPALIVE_FRAME.size))
    _, end, sent_at, reply = _KEEPALIVE_FRAME.unpack(data)
    if reply > 1:
        what = f"expected 0 or 1 for the reply flag, found {reply}"
        raise MalformedFileError(what, offset=_KEEPALIVE_FRAME.size - 1)
    return Keepalive(end, sent_at, wants_reply=reply == 1)


def encode_standby_status(
    *, written: int, flushed: int, applied: int, sent_at: int, wants_reply: bool = False
) -> bytes:
    """Our answer: how far we have come, and our clock in microseconds since the year 2000.

    The server forgets everything before ``flushed``: it may only name what is durable.
    """
    return _STATUS_FRAME.pack(_STATUS, written, flushed, applied, sent_at, wants_reply)
