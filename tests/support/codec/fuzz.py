"""Bent files for the codec, in a process of its own: what bends badly may take it down.

``python -m tests.support.codec.fuzz SECONDS SEED`` prints how many files of each kind were refused
and how many were still right; anything but a refusal ends it with a trace, or with a signal.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    decode_deletion_vector,
    deletion_vector_puffin,
    encode_deletion_vector,
)
from frazil.codec.deletes.position_deletes import decode_position_deletes, encode_position_deletes
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import Frames
from frazil.codec.puffin import (
    Blob,
    BlobCompression,
    TailTooShortError,
    read_blob,
    read_footer,
    write_puffin,
)
from tests.support.pgoutput.frames import encode_message
from tests.support.pgoutput.histories import Histories, SlowReplay, decoded_history

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
# Every file here is a few kilobytes; Python, NumPy and Arrow themselves map most of this.
MEMORY = 3 << 30
SLOWEST_SECONDS = 5
EDGES = (0, 1, 2, 3, 4, 12346, 12347, 0x3FFFF, 4095, 4096, 4097, 0x7FFF, 0xFFFF, 0x10000, 2**31 - 1)


def bent(data: bytes, chance: random.Random) -> bytes:
    """A few bits, bytes and numbers changed, cut out or repeated."""
    bytes_ = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(bytes_) + 1)
        match chance.randrange(6):
            case 0 if at < len(bytes_):
                bytes_[at] ^= 1 << chance.randrange(8)
            case 1:
                bytes_[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                bytes_[at : at + 2] = struct.pack("<H", chance.choice(EDGES) & 0xFFFF)
            case 3:
                bytes_[at : at + 4] = struct.pack("<I", chance.choice(EDGES))
            case 4:
                del bytes_[at : at + chance.randrange(1, 40)]
            case _:
                bytes_[at:at] = bytes_[at : at + chance.randrange(1, 40)]
    return bytes(bytes_)


def sealed(content: bytes) -> bytes:
    """A deletion vector with the length and checksum that this content should have."""
    body = bytes.fromhex("d1d33964") + content
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def vectors(chance: random.Random) -> DeletionVector:
    numbers = np.random.default_rng(chance.randrange(2**32))
    within = chance.choice((100, 70_000, 300_000, 2**33, 2**40))
    positions = numbers.integers(0, within, chance.choice((1, 5, 100, 3000)))
    runs = [
        np.arange(start, start + chance.choice((2, 300, 5000)))
        for start in positions[: chance.choice((0, 2, 6))]
    ]
    dense = numbers.integers(0, 65_536, chance.choice((0, 0, 0, 9000)))
    return DeletionVector.from_positions(np.concatenate([positions, dense, *runs]).astype(np.int64))


def bend_vector(chance: random.Random) -> None:
    """Sealed again after bending, or the checksum would hide everything behind it."""
    blob = encode_deletion_vector(vectors(chance))
    vector = decode_deletion_vector(sealed(bent(blob[8:-4], chance)))
    assert decode_deletion_vector(encode_deletion_vector(vector)) == vector
    if vector.cardinality < 1_000_000:
        positions = vector.positions()
        assert len(positions) == vector.cardinality
        assert (positions[1:] > positions[:-1]).all()
        assert all(int(each) in vector for each in positions[:3])


def bend_unsealed_vector(chance: random.Random) -> None:
    blob = encode_deletion_vector(vectors(chance))
    again = bent(blob, chance)
    assert decode_deletion_vector(again) is not None
    assert again == blob, "the checksum let a change pass"


def bend_puffin(chance: random.Random) -> None:
    data = chance.choice(
        (
            (GOLDEN / "blobs.puffin").read_bytes(),
            (GOLDEN / "deletes.puffin").read_bytes(),
            write_puffin([Blob("a", b"x" * 5000, codec=BlobCompression.LZ4)], {"k": "v"}).data,
            deletion_vector_puffin({"f": vectors(chance)}).data,
        )
    )
    again = bent(data, chance)
    try:
        # The trailer is twelve bytes: with them a reader always learns what it needs.
        footer = read_footer(again[-chance.randrange(12, 2000) :], file_size=len(again))
    except TailTooShortError as short:
        footer = read_footer(again[-short.needed :], file_size=len(again))
    for blob in footer.blobs:
        assert 4 <= blob.offset <= blob.end <= len(again) - footer.size
        read_blob(blob, again[blob.offset : blob.end], at_most=1 << 20)


def bend_position_deletes(chance: random.Random) -> None:
    golden = (GOLDEN / "deletes.parquet").read_bytes()
    ours = encode_position_deletes("s3://bucket/file.parquet", vectors(chance))
    again = bent(chance.choice((golden, ours)), chance)
    for path, vector in decode_position_deletes(again, most_rows=1 << 20).items():
        assert path is not None
        assert vector.cardinality


def bend_messages(chance: random.Random) -> None:
    """Refused all at once exactly when they are refused one by one."""
    messages = [encode_message(each) for each in Histories(chance).history()]
    for _ in range(chance.choice((1, 1, 2))):
        chosen = chance.randrange(len(messages))
        messages[chosen] = bent(messages[chosen], chance)
    try:
        expected = SlowReplay().replay(messages)
    except MalformedFileError:
        expected = None
    try:
        found = decoded_history(decode_frames(Frames.of(messages)))
    except MalformedFileError:
        assert expected is None, "only one by one they are right"
        raise
    assert found == expected


KINDS: tuple[Callable[[random.Random], None], ...] = (
    bend_vector,
    bend_vector,
    bend_vector,
    bend_unsealed_vector,
    bend_puffin,
    bend_position_deletes,
    bend_messages,
)


FEWEST_FILES = 400


def main(seconds: float, seed: int) -> None:
    # Other systems take no such limit, and are not where frazil runs at length.
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts: Counter[str] = Counter()
    ends = time.monotonic() + seconds
    number = 0
    # However busy the machine, enough files that every kind is met both ways.
    while number < FEWEST_FILES or time.monotonic() < ends:
        number += 1
        # Each file has a seed of its own: a failure is repeated without those before it.
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable on purpose
        kind = KINDS[number % len(KINDS)]
        started = time.thread_time()
        try:
            kind(chance)
            counts[f"{kind.__name__} still right"] += 1
        except MalformedFileError:
            counts[f"{kind.__name__} refused"] += 1
        except BaseException:
            print(f"file {number} of seed {seed}: {kind.__name__}", flush=True)  # noqa: T201
            raise
        assert time.thread_time() - started < SLOWEST_SECONDS, (kind, number)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")  # noqa: T201


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
