"""The frames around the messages, and our answer to them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.replication_frames import (
    Keepalive,
    LogData,
    decode_replication_frame,
    encode_standby_status,
)

UINT64 = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)


@given(UINT64, UINT64, TIMES, st.binary(max_size=20))
def test_log_data_is_read(start: int, end: int, sent_at: int, payload: bytes) -> None:
    frame = b"w" + struct.pack(">QQq", start, end, sent_at) + payload
    assert decode_replication_frame(frame) == LogData(start, end, sent_at, payload)


@given(UINT64, TIMES, st.booleans())
def test_a_keepalive_is_read(end: int, sent_at: int, wants_reply: bool) -> None:  # noqa: FBT001
    frame = b"k" + struct.pack(">QqB", end, sent_at, wants_reply)
    assert decode_replication_frame(frame) == Keepalive(end, sent_at, wants_reply)


@pytest.mark.parametrize(
    ("data", "complaint", "offset"),
    [
        (b"", "a frame of kind w or k, found no bytes", 0),
        (b"z" + bytes(40), "found the kind 0x7a", 0),
        (b"w" + bytes(23), "25 bytes before a message, found 24", 24),
        (b"k" + bytes(16), "a keepalive of 18 bytes, found 17", 17),
        (b"k" + bytes(18), "a keepalive of 18 bytes, found 19", 18),
        (b"k" + bytes(16) + b"\2", "0 or 1 for the reply flag, found 2", 17),
    ],
)
def test_other_frames_are_refused(data: bytes, complaint: str, offset: int) -> None:
    with pytest.raises(MalformedFileError, match=complaint) as refused:
        decode_replication_frame(data)
    assert refused.value.offset == offset


def test_a_status_is_written_as_the_server_reads_it() -> None:
    status = encode_standby_status(
        written=0x16B374D848, flushed=0x16B374D800, applied=1, sent_at=-2, wants_reply=True
    )
    assert status == bytes.fromhex(
        "72 00000016b374d848 00000016b374d800 0000000000000001 fffffffffffffffe 01"
    )
    quiet = encode_standby_status(written=0, flushed=0, applied=0, sent_at=0)
    assert quiet == b"r" + bytes(33)


def test_a_payload_is_not_shown() -> None:
    assert "secret" not in repr(LogData(1, 2, 3, b"secret"))
