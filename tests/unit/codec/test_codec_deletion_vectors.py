from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    FilePartition,
    decode_deletion_vector,
    delete_file_descriptors,
    deletion_vector_puffin,
    encode_deletion_vector,
    has_valid_checksum,
)
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import BlobCompression, read_footer
from tests.support.codec.fuzz import sealed
from tests.support.sampling import examples

ROOT = Path(__file__).resolve().parents[3]
POSITIONS = st.integers(0, 2**40)
RUNS = st.tuples(POSITIONS, st.integers(1, 70_000))
# An empty 32-bit bitmap: the cookie of one without runs, and no container.
EMPTY = struct.pack("<II", 12346, 0)


def vector_of(*bitmaps: tuple[int, bytes], count: int | None = None, more: bytes = b"") -> bytes:
    """A sealed blob of these keys and 32-bit bitmaps."""
    body = b"".join(struct.pack("<i", key) + bitmap for key, bitmap in bitmaps)
    return sealed(struct.pack("<q", len(bitmaps) if count is None else count) + body + more)


def serialized(positions: list[int]) -> bytes:
    return bytes(BitMap(positions).serialize())


@given(st.lists(POSITIONS, max_size=200), st.lists(RUNS, max_size=3))
@examples(60)
def test_a_vector_is_read_back_as_it_was_written(
    single: list[int], runs: list[tuple[int, int]]
) -> None:
    parts = [np.arange(start, start + length) for start, length in runs]
    positions = np.concatenate([np.array(single, dtype=np.int64), *parts])
    vector = DeletionVector.from_positions(positions)
    blob = encode_deletion_vector(vector)
    assert decode_deletion_vector(blob, cardinality=vector.cardinality) == vector
    assert np.array_equal(vector.positions(), np.unique(positions).astype(np.uint64))
    assert vector.positions().dtype == np.uint64


@pytest.mark.parametrize(
    ("count", "within"),
    [
        (200_000, 300_000),
        (100_000, 2**32),
        (100_000, 2**40),
        pytest.param(1_000_000, 1_500_000, marks=pytest.mark.deep),
        pytest.param(1_000_000, 2**40, marks=pytest.mark.deep),
    ],
)
def test_many_positions_are_read_back(count: int, within: int) -> None:
    positions = np.random.default_rng(within).integers(0, within, count)
    vector = DeletionVector.from_positions(positions)
    again = decode_deletion_vector(encode_deletion_vector(vector))
    assert np.array_equal(again.positions(), np.unique(positions).astype(np.uint64))


def test_runs_cost_next_to_nothing() -> None:
    entire_file = DeletionVector.from_positions(np.arange(3_000_000))
    assert len(encode_deletion_vector(entire_file)) < 1_000


def test_an_empty_vector_is_a_vector() -> None:
    empty = DeletionVector()
    blob = encode_deletion_vector(empty)
    assert len(blob) == 24 - 4
    assert decode_deletion_vector(blob, cardinality=0) == empty
    assert empty.positions().tolist() == []
    assert empty == DeletionVector.from_positions([])


@pytest.mark.parametrize(
    "given_as",
    [
        [3, 1, 2, 2],
        np.array([3, 1, 2, 2], dtype=np.uint8),
        np.array([[3, 1], [2, 2]], dtype=np.int32),
        np.array([9, 3, 9, 1, 9, 2])[1::2],
        array("q", [3, 1, 2, 2]),
        pa.array([3, 1, 2, 2]),
        pa.chunked_array([[3, 1], [2, 2]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_positions_come_in_any_order_and_kind_of_array(given_as: object) -> None:
    vector = DeletionVector.from_positions(given_as)  # type: ignore[arg-type]
    assert vector.positions().tolist() == [1, 2, 3]


@pytest.mark.parametrize("wrong", [[-1], [2**63 - 1], [(2**31 - 1) << 32]])
def test_positions_no_file_can_have_are_refused(wrong: list[int]) -> None:
    with pytest.raises(ValueError, match="positions lie between"):
        DeletionVector.from_positions(wrong)


@pytest.mark.parametrize("wrong", [[1.5], [True], ["1"], pa.array([1, None])])
def test_a_position_must_be_an_integer(wrong: object) -> None:
    with pytest.raises(TypeError, match="integers"):
        DeletionVector.from_positions(wrong)  # type: ignore[arg-type]


def test_the_largest_position_is_kept() -> None:
    largest = ((2**31 - 1) << 32) - 1
    vector = DeletionVector.from_positions([largest])
    assert decode_deletion_vector(encode_deletion_vector(vector)).largest == largest


def test_a_vector_answers_as_a_set() -> None:
    one, two = DeletionVector.from_positions([1, 2]), DeletionVector.from_positions([2, 2**35])
    both = one.union(two)
    assert both.positions().tolist() == [1, 2, 2**35]
    assert (both.cardinality, both.smallest, both.largest) == (3, 1, 2**35)
    assert 2**35 in both
    assert 3 not in both
    # What was united is as it was.
    assert (one.cardinality, two.cardinality) == (2, 2)
    assert one.union(two) == two.union(one)
    assert pickle.loads(pickle.dumps(both)) == both


def test_a_vector_cut_at_any_byte_is_refused() -> None:
    blob = encode_deletion_vector(DeletionVector.from_positions([1, 2, 3, 70_000, 2**33]))
    for length in range(len(blob)):
        with pytest.raises(MalformedFileError):
            decode_deletion_vector(blob[:length])
        with pytest.raises(MalformedFileError):
            decode_deletion_vector(blob[len(blob) - length :])
        # Also where the cut is inside and everything around it was made to fit.
        if length < len(blob) - 13:
            with pytest.raises(MalformedFileError):
                decode_deletion_vector(sealed(blob[8 : 8 + length]))
    with pytest.raises(MalformedFileError):
        decode_deletion_vector(blob + b"\0")


@given(st.lists(POSITIONS, min_size=1, max_size=30), st.data())
@examples(50)
def test_every_flipped_bit_is_noticed(positions: list[int], data: st.DataObject) -> None:
    blob = encode_deletion_vector(DeletionVector.from_positions(positions))
    first = data.draw(st.integers(0, 8 * len(blob) - 1))
    for bit in {first, *range(0, 8 * len(blob), 7)}:
        bent = bytearray(blob)
        bent[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedFileError):
            decode_deletion_vector(bytes(bent))


def test_the_checksum_is_distinguished_from_the_rest() -> None:
    blob = bytearray(encode_deletion_vector(DeletionVector.from_positions([1])))
    assert has_valid_checksum(bytes(blob))
    blob[-1] ^= 1
    assert not has_valid_checksum(bytes(blob))
    with pytest.raises(MalformedFileError, match="CRC-32") as refused:
        decode_deletion_vector(bytes(blob))
    assert refused.value.offset == len(blob) - 4
    assert not has_valid_checksum(b"")


def test_a_vector_of_another_cardinality_is_refused() -> None:
    blob = encode_deletion_vector(DeletionVector.from_positions([1, 2]))
    with pytest.raises(MalformedFileError, match="expected 3 positions, found 2"):
        decode_deletion_vector(blob, cardinality=3)


def test_bitmaps_without_members_are_passed_over() -> None:
    """Iceberg for Java writes one for every key below the largest."""
    blob = vector_of((0, EMPTY), (1, EMPTY), (2, serialized([7])))
    assert decode_deletion_vector(blob).positions().tolist() == [2 * 2**32 + 7]


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (sealed(bytes(8))[:8] + b"\0" * 12, "expected another CRC-32"),
        (vector_of(count=-1), "at most 0 bitmaps, found -1"),
        (vector_of(count=2**62), "at most 0 bitmaps"),
        (vector_of((0, EMPTY), (1, EMPTY), count=1), "found 12 more bytes"),
        (vector_of((0, serialized([1])), count=2), "at most 1 bitmaps, found 2"),
        (vector_of((0, serialized([1, 3, 5])), count=2), "the key of a bitmap"),
        (vector_of((-1, EMPTY)), "a key from 0 to 2147483646, found -1"),
        (vector_of((2**31 - 1, EMPTY)), "found 2147483647"),
        (vector_of((1, EMPTY), (1, EMPTY)), "a key from 2 to"),
        (vector_of((2, EMPTY), (1, EMPTY)), "a key from 3 to"),
        (vector_of((0, b"\0" * 8)), "the cookie of a roaring bitmap"),
        (vector_of((0, struct.pack("<II", 12346, 65_537))), "at most 65,536 containers"),
        (vector_of((0, struct.pack("<II", 12346, 65_536))), "more bytes of a roaring bitmap"),
        (vector_of((0, struct.pack("<II", 12347 | 0xFFFF << 16, 0))), "more bytes"),
    ],
)
def test_a_sealed_vector_of_another_shape_is_refused(blob: bytes, expected: str) -> None:
    with pytest.raises(MalformedFileError, match=expected):
        decode_deletion_vector(blob)


def plain(*containers: tuple[int, int, bytes], shift: int = 0) -> bytes:
    """A bitmap of arrays and bit sets: key, cardinality and body of each."""
    head = struct.pack("<II", 12346, len(containers))
    pairs = b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    at = len(head) + 8 * len(containers)
    offsets = b""
    for _, _, body in containers:
        offsets += struct.pack("<I", at + shift)
        at += len(body)
    return head + pairs + offsets + b"".join(body for _, _, body in containers)


def with_runs(*containers: tuple[int, int, bytes], flags: bytes = b"\xff", at: int = 0) -> bytes:
    """A bitmap whose containers are runs where the flags say so; offsets only from four on."""
    count = len(containers)
    head = struct.pack("<I", 12347 | (count - 1) << 16) + flags
    pairs = b"".join(struct.pack("<HH", key, members - 1) for key, members, _ in containers)
    offsets = b""
    if count >= 4:
        at += len(head) + 8 * count
        for _, _, body in containers:
            offsets += struct.pack("<I", at)
            at += len(body)
    return head + pairs + offsets + b"".join(body for _, _, body in containers)


def shorts(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}H", *numbers)


FULL = b"\xff" * 8192


@pytest.mark.parametrize(
    ("bitmap", "positions"),
    [
        (plain((0, 2, shorts(1, 2)), (3, 1, shorts(0))), [1, 2, 3 * 65_536]),
        (plain((0, 65_536, FULL)), range(65_536)),
        (with_runs((0, 3, shorts(1, 5, 2))), [5, 6, 7]),
        (with_runs((0, 65_536, shorts(1, 0, 65_535))), range(65_536)),
        (with_runs((0, 4, shorts(2, 5, 1, 8, 1))), [5, 6, 8, 9]),
        (
            with_runs((0, 2, shorts(5, 9)), (1, 2, shorts(1, 5, 1)), flags=b"\2"),
            [5, 9, 65541, 65542],
        ),
        (
            with_runs(*((key, 1, shorts(1, key, 0)) for key in range(5))),
            [k * 65_537 for k in range(5)],
        ),
        (
            with_runs(*((key, 1, shorts(key)) for key in range(5)), flags=b"\0"),
            [k * 65_537 for k in range(5)],
        ),
    ],
)
def test_every_kind_of_container_is_read(bitmap: bytes, positions: list[int]) -> None:
    assert decode_deletion_vector(vector_of((0, bitmap))).positions().tolist() == list(positions)


@pytest.mark.parametrize(
    ("bitmap", "expected"),
    [
        (plain((1, 1, shorts(1)), (1, 1, shorts(1))), "ascending order"),
        (plain((1, 1, shorts(1)), (0, 1, shorts(1))), "ascending order"),
        (plain((0, 2, shorts(2, 1))), "in order and as full"),
        (plain((0, 2, shorts(1, 1))), "in order and as full"),
        (plain((0, 4097, b"\0" * 8192)), "in order and as full"),
        (plain((0, 65_535, FULL)), "in order and as full"),
        (plain((0, 4097, b"\0" * 100)), "to fit in"),
        (plain((0, 1, shorts(1)), shift=2), "without gaps"),
        (plain((0, 1, shorts(1)), shift=2**30), "without gaps"),
        (with_runs((0, 1, shorts(0))), "in order and as full"),
        (with_runs((0, 2, shorts(1, 5, 2))), "in order and as full"),
        (with_runs((0, 3, shorts(1, 65_534, 2))), "in order and as full"),
        (with_runs((0, 6, shorts(2, 5, 2, 7, 2))), "in order and as full"),
        (with_runs((0, 6, shorts(2, 9, 2, 1, 2))), "in order and as full"),
        # Runs that touch would have been one.
        (with_runs((0, 4, shorts(2, 5, 1, 7, 1))), "in order and as full"),
        (with_runs((0, 3, shorts(60_000, 5, 2))), "to fit in"),
        (with_runs((0, 3, b"")), "more bytes"),
        (with_runs(*((k, 1, shorts(1, 1, 0)) for k in range(4)), at=2), "without gaps"),
        (with_runs(*((k, 1, shorts(1, k, 0)) for k in range(4)), at=2**31), "inside of the bitmap"),
    ],
)
def test_a_container_that_is_not_what_it_claims_is_refused(bitmap: bytes, expected: str) -> None:
    with pytest.raises(MalformedFileError, match=expected):
        decode_deletion_vector(vector_of((0, bitmap)))


def test_a_vector_too_large_for_its_length_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.codec.deletes.deletion_vector.LARGEST_BLOB", 40)
    with pytest.raises(ValueError, match="at most 2 GiB"):
        encode_deletion_vector(DeletionVector.from_positions([1, 3, 5, 7]))


def test_bent_files_never_take_the_process_down() -> None:
    """A short run of what tests/deep does at length; a crash in C is a signal, not an exception."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.codec.fuzz", "0.5", "4711"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "bend_vector refused" in finished.stdout
    assert "bend_vector still right" in finished.stdout


def test_many_vectors_share_a_file_and_are_distinguished() -> None:
    vectors = {
        "s3://bucket/å.parquet": DeletionVector.from_positions([1, 5]),
        "s3://bucket/b.parquet": DeletionVector.from_positions(np.arange(100)),
    }
    file = deletion_vector_puffin(vectors)
    footer = read_footer(file.data, file_size=len(file.data))
    assert footer.blobs == file.blobs
    assert footer.properties["created-by"].startswith("frazil ")
    for blob, (path, vector) in zip(footer.blobs, vectors.items(), strict=True):
        assert (blob.type, blob.fields) == ("deletion-vector-v1", (2147483645,))
        assert (blob.snapshot_id, blob.sequence_number) == (-1, -1)
        assert blob.codec is BlobCompression.NONE
        assert blob.properties == {
            "referenced-data-file": path,
            "cardinality": str(vector.cardinality),
        }
        assert decode_deletion_vector(file.data[blob.offset : blob.end]) == vector


def test_a_vector_that_deletes_nothing_is_not_put_in_a_file() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        deletion_vector_puffin({"f": DeletionVector()})


def test_each_vector_is_described_with_the_placement_of_its_data_file() -> None:
    vectors = {
        "s3://b/one.parquet": DeletionVector.from_positions([1, 5]),
        "s3://b/two.parquet": DeletionVector.from_positions([7]),
    }
    file = deletion_vector_puffin(vectors)
    placements = {
        "s3://b/two.parquet": FilePartition(3, {1000: "2026-01-01", 1001: 7}),
        "s3://b/one.parquet": FilePartition(),
    }
    one, two = map(json.loads, delete_file_descriptors("s3://b/d.puffin", file, placements))
    assert one == {
        "spec-id": 0,
        "content": "POSITION_DELETES",
        "file-path": "s3://b/d.puffin",
        "file-format": "PUFFIN",
        "partition": {},
        "file-size-in-bytes": len(file.data),
        "record-count": 2,
        "content-offset": 4,
        "content-size-in-bytes": file.blobs[0].length,
        "referenced-data-file": "s3://b/one.parquet",
    }
    assert (two["spec-id"], two["partition"]) == (3, {"1000": "2026-01-01", "1001": 7})
    assert (two["record-count"], two["content-offset"]) == (1, file.blobs[1].offset)
