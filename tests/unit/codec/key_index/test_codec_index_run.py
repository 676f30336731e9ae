from __future__ import annotations

import io
import zlib
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.run import (
    BLOB_TYPE,
    CHECKSUMS,
    ROW_GROUP_ROWS,
    RunBlobReader,
    decode_run,
    encode_run,
    run_part,
    write_run_part,
)
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import read_footer
from frazil.model.key_index import TOMBSTONE, RunBlob
from tests.support.sampling import examples
from tests.unit.codec.key_index.index_rows import entries_of, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def random_entries(count: int, *, lower: bool = False, sequence: bool = False) -> Entries:
    numbers = np.random.default_rng(count)
    return Entries(
        numbers.integers(0, 2**64, count, np.uint64),
        numbers.integers(0, 2**64, count, np.uint64) if lower else None,
        numbers.integers(TOMBSTONE if sequence else 0, 5, count, np.int32),
        numbers.integers(0, 4_000_000, count),
        pa.array([f"{at:016x}" for at in range(count)]) if sequence else None,
    ).sorted()


def blob_of(data: bytes, entries: Entries, *, bucket: int = 0) -> RunBlob:
    return RunBlob(bucket, 0, len(data), len(entries), zlib.crc32(data))


class Storage:
    """A blob as a store gives it: ranges only, and what was requested is remembered."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requested: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.requested.append((offset, length))
        return self.data[offset : offset + length]


def load(data: bytes, blob: RunBlob, hi: NDArray[np.uint64]) -> Entries:
    return RunBlobReader(Storage(data).read, blob).load(hi)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("count", [0, 1, ROW_GROUP_ROWS, ROW_GROUP_ROWS + 1, 40_000])
def test_what_is_encoded_is_decoded(count: int, *, lower: bool, sequence: bool) -> None:
    entries = random_entries(count, lower=lower, sequence=sequence)
    data = encode_run(entries)
    found = decode_run(data, entries=count, checksum=zlib.crc32(data))
    assert rows_of(found) == rows_of(entries)
    assert (found.lo is None) == (not lower)
    assert rows_of(decode_run(data)) == rows_of(entries)
    assert encode_run(found) == data


@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**64 - 1)] * 2, st.integers(0, 2**31 - 1), st.integers(0)),
        max_size=20,
    )
)
@examples(40)
def test_any_entries_survive(rows: list[tuple[int, int, int, int]]) -> None:
    fitting = [(hi, lo, file, position % 2**63) for hi, lo, file, position in rows]
    assert rows_of(decode_run(encode_run(entries_of(fitting).sorted()))) == sorted(fitting)


@pytest.mark.parametrize(
    "sequence",
    [
        pa.array([5, None, 2**62]),
        pa.array(["b", None, "ä"]),
        pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(30, 2)),
        pa.array([1, None, 2**50], pa.timestamp("us")),
        pa.array([1, None, 2**50], pa.timestamp("us", "UTC")),
    ],
    ids=["long", "text", "decimal", "timestamp", "timestamptz"],
)
def test_sequences_keep_their_type_and_may_be_missing(sequence: Any) -> None:
    column = np.arange(3)
    entries = Entries(
        column.astype(np.uint64), None, np.full(3, TOMBSTONE, np.int32), -column, sequence, column
    )
    found = decode_run(encode_run(entries), entries=3)
    assert found.sequence == sequence
    assert found.recorded is not None
    assert found.recorded.tolist() == [0, 1, 2]


def test_a_key_takes_less_than_the_promised_bytes() -> None:
    assert len(encode_run(random_entries(200_000))) / 200_000 < 10
    assert len(encode_run(random_entries(200_000, lower=True))) / 200_000 < 18


def test_readers_of_parquet_see_plain_columns_with_statistics() -> None:
    entries = random_entries(40_000, lower=True)
    file = pq.ParquetFile(pa.BufferReader(encode_run(entries)))
    assert file.schema_arrow.names == ["hi", "lo", "file", "pos"]
    assert [str(kind) for kind in file.schema_arrow.types] == ["uint64", "uint64", "int32", "int64"]
    bounds = file.metadata.row_group(1).column(0).statistics
    inside = entries.hi[ROW_GROUP_ROWS : 2 * ROW_GROUP_ROWS]
    assert (bounds.min, bounds.max) == (int(inside[0]), int(inside[-1]))


def test_entries_out_of_order_are_not_encoded() -> None:
    with pytest.raises(ValueError, match="sorted by hash"):
        encode_run(entries_of([(2, 0, 0, 0), (1, 0, 0, 0)]))
    with pytest.raises(ValueError, match="sorted by hash"):
        encode_run(entries_of([(2, 1, 0, 0), (2, 0, 0, 0)]))


def test_a_part_has_a_blob_for_each_bucket_and_says_what_is_in_it() -> None:
    entries = random_entries(1000)
    buckets = {bucket: entries.take(at) for bucket, at in entries.bucket_slices(2)}
    file = write_run_part({**buckets, 7: Entries.empty()}, bits=2)
    part = run_part("s3://b/x.puffin", file)
    assert (part.location, part.size) == ("s3://b/x.puffin", len(file.data))
    assert [blob.bucket for blob in part.blobs] == [0, 1, 2, 3]
    footer = read_footer(file.data, file_size=len(file.data))
    assert {blob.type for blob in footer.blobs} == {BLOB_TYPE}
    for blob, stored in zip(part.blobs, footer.blobs, strict=True):
        data = file.data[blob.offset : blob.offset + blob.length]
        assert stored.properties == {
            "bucket": str(blob.bucket),
            "entries": str(blob.entries),
            "crc32": str(zlib.crc32(data)),
        }
        found = decode_run(
            data, entries=blob.entries, checksum=blob.checksum, bits=2, bucket=blob.bucket
        )
        assert rows_of(found) == rows_of(buckets[blob.bucket])
    with pytest.raises(ValueError, match="lie in that bucket"):
        write_run_part({1: buckets[0]}, bits=2)
    assert len(write_run_part({1: buckets[0]}).blobs) == 1


# Damage.


def test_every_cut_and_every_flipped_byte_is_refused_in_full_and_in_part() -> None:
    entries = random_entries(60, lower=True, sequence=True)
    data = encode_run(entries)
    blob = blob_of(data, entries)
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        with pytest.raises(MalformedFileError):
            decode_run(flipped, entries=60, checksum=blob.checksum)
        # The leading magic is of no use to anyone.
        if at >= 4:
            with pytest.raises(MalformedFileError):
                load(flipped, blob, entries.hi)
    for end in range(0, len(data), 7):
        with pytest.raises(MalformedFileError):
            decode_run(data[:end], entries=60, checksum=blob.checksum)
        with pytest.raises(MalformedFileError):
            load(data[:end], blob, entries.hi)


def test_without_a_checksum_cuts_and_damaged_pages_are_refused() -> None:
    data = encode_run(random_entries(60))
    page = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(2).data_page_offset
    for bad in (b"", data[:-1], data[: len(data) // 2], b"x" * 100):
        with pytest.raises(MalformedFileError):
            decode_run(bad)
    damaged = bytearray(data)
    damaged[page + 60] ^= 1
    with pytest.raises(MalformedFileError):
        decode_run(bytes(damaged))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"entries": 59}, "expected 59 entries, found 60"),
        ({"checksum": 1}, "CRC-32"),
        ({"bits": 1, "bucket": 0}, "bucket 0 of 2"),
        ({"bits": 1, "bucket": 1}, "bucket 1 of 2"),
    ],
)
def test_a_blob_that_is_not_the_requested_one_is_refused(
    change: dict[str, int], match: str
) -> None:
    with pytest.raises(MalformedFileError, match=match):
        decode_run(encode_run(random_entries(60)), **change)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


HASH = pa.array([1, 2], pa.uint64())
FILE = pa.array([0, 0], pa.int32())
POSITION = pa.array([0, 1])


@pytest.mark.parametrize(
    "columns",
    [
        {"hi": HASH, "file": FILE},
        {"file": FILE, "pos": POSITION},
        {"hi": HASH, "file": FILE, "pos": POSITION, "more": POSITION},
        {"hi": HASH, "file": FILE, "pos": POSITION, "recorded": POSITION},
        {"hi": POSITION, "file": FILE, "pos": POSITION},
        {"hi": HASH, "file": POSITION, "pos": POSITION},
        {"hi": HASH, "file": FILE, "pos": pa.array([1, None])},
        {"hi": pa.array([2, 1], pa.uint64()), "file": FILE, "pos": POSITION},
        {"hi": HASH, "file": pa.array([0, -1], pa.int32()), "pos": POSITION},
        {"hi": HASH, "file": FILE, "pos": pa.array([0, -1])},
        {
            "hi": HASH,
            "file": pa.array([0, -2], pa.int32()),
            "pos": POSITION,
            "sequence": POSITION,
            "recorded": POSITION,
        },
    ],
)
def test_complete_files_that_are_no_run_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(MalformedFileError):
        decode_run(parquet(**columns))


# A few keys.


def test_only_the_row_groups_of_the_keys_are_read() -> None:
    entries = random_entries(20 * ROW_GROUP_ROWS)
    data = encode_run(entries)
    storage = Storage(data)
    wanted = entries.hi[[5, 7 * ROW_GROUP_ROWS, 8 * ROW_GROUP_ROWS]]
    found = RunBlobReader(storage.read, blob_of(data, entries)).load(wanted)
    groups = [0, 7, 8]
    expected = [
        entries.take(slice(at * ROW_GROUP_ROWS, (at + 1) * ROW_GROUP_ROWS)) for at in groups
    ]
    assert rows_of(found) == rows_of(Entries.concatenate(expected))
    # The footer, the first row group, and two neighbours at once.
    assert len(storage.requested) == 3
    assert sum(length for _, length in storage.requested) < len(data) / 5


@pytest.mark.parametrize("lower", [False, True])
def test_a_key_that_is_not_there_may_cost_nothing_but_the_footer(*, lower: bool) -> None:
    entries = random_entries(100, lower=lower)
    data = encode_run(entries)
    storage = Storage(data)
    beyond = np.array([int(entries.hi[-1]) + 1], np.uint64)
    found = RunBlobReader(storage.read, blob_of(data, entries)).load(beyond)
    assert rows_of(found) == []
    assert len(storage.requested) == 1


def run_of_single_rows(entries: Entries, *, damaged: int | None = None) -> bytes:
    """A run as another writer may make it: a row group for each entry.

    ``damaged`` is a byte that was wrong before the checksums were taken.
    """
    table = pq.read_table(pa.BufferReader(encode_run(entries)))
    sink = io.BytesIO()
    ends = []
    with pq.ParquetWriter(sink, table.schema, use_dictionary=False) as writer:
        for at in range(len(entries)):
            writer.write_table(table.slice(at, 1))
            ends.append(sink.tell())
        if damaged is not None:
            sink.getbuffer()[damaged] ^= 0xFF
        body = sink.getvalue()
        groups = [zlib.crc32(body[start:end]) for start, end in pairwise([4, *ends])]
        digits = np.array([zlib.crc32(body), *groups], "<u4").tobytes().hex()
        writer.add_key_value_metadata({CHECKSUMS: digits})
    return sink.getvalue()


def test_a_footer_longer_than_expected_is_read_again() -> None:
    entries = random_entries(100)
    data = run_of_single_rows(entries)
    storage = Storage(data)
    found = RunBlobReader(storage.read, blob_of(data, entries)).load(entries.hi[[3, 50]])
    assert rows_of(found) == rows_of(entries.take(np.array([3, 50])))
    assert len(storage.requested) == 4


def test_a_run_that_was_damaged_before_it_was_sealed_is_refused() -> None:
    entries = random_entries(3)
    data = run_of_single_rows(entries, damaged=4)
    blob = blob_of(data, entries)
    with pytest.raises(MalformedFileError, match="entries of a run"):
        load(data, blob, entries.hi)
    with pytest.raises(MalformedFileError, match="found a damaged one"):
        decode_run(data, entries=3, checksum=blob.checksum)


def test_a_run_with_another_number_of_entries_is_refused_in_part_too() -> None:
    entries = random_entries(100)
    data = encode_run(entries)
    with pytest.raises(MalformedFileError, match="expected 99 entries"):
        load(data, replace(blob_of(data, entries), entries=99), entries.hi)


def test_part_of_a_run_in_the_wrong_bucket_is_refused() -> None:
    entries = random_entries(100)
    data = encode_run(entries)
    with pytest.raises(MalformedFileError, match="bucket 1 of 2"):
        RunBlobReader(Storage(data).read, blob_of(data, entries, bucket=1), bits=1).load(entries.hi)


def test_another_run_at_the_location_of_this_one_is_refused() -> None:
    ours, theirs = random_entries(100), random_entries(101).take(slice(0, 100))
    blob = blob_of(encode_run(ours), ours)
    other = encode_run(theirs)
    with pytest.raises(MalformedFileError, match="footer of the run"):
        load(other[-blob.length :].rjust(blob.length, b"x"), blob, ours.hi)


def test_foreign_parquet_is_refused_in_part_too() -> None:
    data = parquet(hi=HASH, file=FILE, pos=POSITION)
    blob = RunBlob(0, 0, len(data), 2, zlib.crc32(data))
    with pytest.raises(MalformedFileError, match="footer of a run"):
        load(data, blob, np.array([1], np.uint64))
