"""Segments of the spool are read back completely or not at all."""

from __future__ import annotations

import mmap
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import MAGIC, Frames, SegmentAssembly, read_segment
from tests.support.pgoutput.golden import golden
from tests.support.pgoutput.histories import decoded_history
from tests.support.sampling import examples


def segment(*batches: list[bytes]) -> bytes:
    assembly = SegmentAssembly()
    return b"".join([*(assembly.add(batch) for batch in batches), assembly.finish()])


def sealed(body: bytes, lengths: list[int], *, count: int | None = None) -> bytes:
    """A segment whose checksum is right whatever it says."""
    stored = MAGIC + body + struct.pack(f"<{len(lengths)}I", *lengths)
    stored += struct.pack("<Q", len(lengths) if count is None else count)
    return stored + struct.pack("<I", zlib.crc32(stored)) + MAGIC


@given(st.lists(st.lists(st.binary(max_size=30), max_size=5), max_size=4))
@examples(60)
def test_messages_are_read_back_in_their_order(batches: list[list[bytes]]) -> None:
    data = segment(*batches)
    messages = [each for batch in batches for each in batch]
    frames = read_segment(data)
    assert [frames.message(number) for number in range(len(frames))] == messages
    assert data == sealed(b"".join(messages), list(map(len, messages)))


def test_a_segment_is_decoded_where_it_lies() -> None:
    messages = golden().complete
    data = memoryview(bytearray(segment(list(messages[:5]), list(messages[5:]))))
    found = decode_frames(read_segment(data))
    assert len(decoded_history(found).rows) == 14


def test_an_assembly_knows_its_size_and_ends_once() -> None:
    assembly = SegmentAssembly()
    written = assembly.add([b"one", b""]) + assembly.add([])
    assert (len(assembly), assembly.size) == (2, len(written))
    written += assembly.finish()
    assert assembly.size == len(written)
    for late in (assembly.finish, lambda: assembly.add([b"late"])):
        with pytest.raises(ValueError, match="this segment is finished"):
            late()


def test_a_segment_cut_at_any_byte_is_refused() -> None:
    data = segment([b"message", b"another"])
    for length in range(len(data)):
        with pytest.raises(MalformedFileError):
            read_segment(data[:length])
        with pytest.raises(MalformedFileError):
            read_segment(data[len(data) - length :])
    with pytest.raises(MalformedFileError):
        read_segment(data + b"\0")


def test_every_flipped_bit_is_noticed() -> None:
    data = segment([b"message", b"another"])
    for bit in range(8 * len(data)):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFileError):
            read_segment(bytes(bent))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (sealed(b"abc", [2]), "lengths that add up"),
        (sealed(b"abc", [2, 2]), "lengths that add up"),
        (sealed(b"abc", [2**32 - 1, 2**32 - 1]), "lengths that add up"),
        (sealed(b"abc", [3], count=2), "at most 1 messages, found 2"),
        (sealed(b"abc", [3], count=2**64 - 1), "at most 1 messages"),
        (sealed(b"abc", [3], count=0), "lengths that add up"),
    ],
)
def test_a_segment_that_contradicts_itself_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedFileError, match=complaint):
        read_segment(data)


def test_a_segment_does_not_grow_past_what_arrow_can_count() -> None:
    assembly = SegmentAssembly()
    megabyte = bytes(1 << 20)
    with pytest.raises(ValueError, match="at most 2147483647 bytes"):
        assembly.add([megabyte] * 2048)
    # Memory that no one touches is not there yet, and costs nothing.
    with mmap.mmap(-1, 1 << 31) as huge:
        huge[:8] = huge[-8:] = MAGIC
        with (
            memoryview(huge) as view,
            pytest.raises(MalformedFileError, match="at most 2147483647"),
        ):
            read_segment(view)
        with memoryview(huge) as view, pytest.raises(ValueError, match="at most 2147483647"):
            Frames(view, np.array([0, 1]))
