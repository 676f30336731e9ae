"""KafScale's segments: what clients wrote is what is read, and damage is never fewer records."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.kfs.index_file import SegmentIndex, parse_index
from frazil.codec.kfs.records import MOST_BATCH_BYTES, RECORD_SCHEMA, decode_records, parse_headers
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from tests.support.kafscale.segments import (
    CREATED,
    TIMESTAMP,
    Message,
    client_batch,
    index_of,
    raw_batch,
    record,
    segment,
    varint,
)
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

# A segment of KafScale 1.6 and its index, with checksums that another parser confirmed.
GOLDEN = bytes.fromhex(
    "4b41465300010000000000000000002a000000030000018bcfe5687b00000000000000000000002a00000053ffffffff"
    "02c150231b0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff000000022c0000"
    "00046b311c7b226f726465725f6964223a317d0014000a0201010202680276000000000000002c0000003affffffff02"
    "24eb35000000000000000000018bcfe5680a0000018bcfe5680affffffffffffffffffffffffffff0000000110000000"
    "046b3300005bfdd4f9000000000000002c454e4421"
)
GOLDEN_INDEX = bytes.fromhex("49445800000100000001000000640000000000000000002a00000020")
GOLDEN_ROWS = [
    (42, TIMESTAMP, b"k1", b'{"order_id":1}', ()),
    (43, TIMESTAMP + 5, None, None, ((b"h", b"v"),)),
    (44, TIMESTAMP + 10, b"k3", b"", ()),
]
COMPRESSIONS = [each.value for each in BatchCompression]
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]

MESSAGES = st.lists(
    st.builds(
        Message,
        value=st.none() | st.binary(max_size=200),
        key=st.none() | st.binary(max_size=70),
        timestamp=st.integers(0, 2**62),
        headers=st.lists(
            st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
        ).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def rows_of(data: bytes, *, most_batch_bytes: int = MOST_BATCH_BYTES) -> list[Row]:
    batches = parse_segment(data).batches
    pieces = decode_records(batches, most_batch_bytes=most_batch_bytes)
    table = pa.Table.from_batches(pieces, RECORD_SCHEMA)
    return [
        (*row, () if headers is None else parse_headers(headers))
        for *row, headers in zip(*(table.column(at).to_pylist() for at in range(5)), strict=True)
    ]


def sent(base: int, messages: Sequence[Message]) -> list[Row]:
    return [
        (
            base + at,
            each.timestamp,
            each.key,
            each.value,
            tuple((name.encode(), value) for name, value in each.headers),
        )
        for at, each in enumerate(messages)
    ]


def test_the_golden_segment_and_its_index_are_read() -> None:
    found = parse_segment(GOLDEN)
    assert rows_of(GOLDEN) == GOLDEN_ROWS
    assert (found.base_offset, found.last_offset, found.message_count) == (42, 44, 3)
    assert (found.created_ms, found.footer_offset) == (CREATED, 44)
    assert parse_index(GOLDEN_INDEX) == SegmentIndex(100, ((42, 32),))
    assert index_of(42) == GOLDEN_INDEX


@given(st.data())
@examples(150)
@pytest.mark.fault("U4")
def test_what_a_client_encoded_is_what_is_decoded(data: st.DataObject) -> None:
    base = data.draw(st.integers(0, 2**40))
    parts, expected = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        messages = data.draw(MESSAGES)
        compression = data.draw(st.sampled_from(COMPRESSIONS))
        parts.append(client_batch(base, messages, compression=compression))
        expected += sent(base, messages)
        # Offsets may have gaps.
        base += len(messages) + data.draw(st.integers(0, 3))
    assert rows_of(segment(parts)) == expected


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_many_records_come_in_pieces_and_none_is_missing(compression: int) -> None:
    messages = [Message(b"%06d" % at, key=b"k" * (at % 3)) for at in range(100_000)]
    parts = [
        client_batch(at, messages[at : at + 40_000], compression=compression)
        for at in range(0, len(messages), 40_000)
    ]
    pieces = list(decode_records(parse_segment(segment(parts)).batches))
    assert len(pieces) > 1
    table = pa.Table.from_batches(pieces)
    assert table.column("value").to_pylist() == [each.value for each in messages]
    assert table.column("offset").to_pylist() == list(range(100_000))


@pytest.mark.fault("U5")
def test_a_truncated_segment_is_refused() -> None:
    for cut in range(len(GOLDEN)):
        with pytest.raises(MalformedFileError):
            rows_of(GOLDEN[:cut])


@pytest.mark.fault("U5")
def test_a_changed_bit_is_refused_or_changes_no_record() -> None:
    refused = 0
    for at in range(len(GOLDEN) * 8):
        damaged = bytearray(GOLDEN)
        damaged[at // 8] ^= 1 << at % 8
        try:
            assert rows_of(bytes(damaged)) == GOLDEN_ROWS
        except MalformedFileError:
            refused += 1
    # Base offset, number of messages, date and reserved bytes, and the last offset of the footer.
    assert refused == 8 * (len(GOLDEN) - 8 - 4 - 8 - 4 - 8)


@given(st.binary(max_size=60), st.integers(0, 5), st.sampled_from(COMPRESSIONS))
@examples(300)
def test_records_that_no_client_wrote_are_refused_by_name(
    records: bytes, count: int, attributes: int
) -> None:
    data = segment([raw_batch(records, count=count, attributes=attributes)])
    # Whatever else came of it would be an error that no caller knows.
    with suppress(MalformedFileError):
        assert len(rows_of(data)) == count


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (record(b"v") + b"\0", 1),
        (record(b"v"), 2),
        (record(b"v") * 2, 1),
        (record(b"v", offset=1), 1),
        (record(b"v", offset=-1), 1),
        (record(b"v", headers=varint(1)), 1),
        (record(b"v", headers=varint(-1)), 1),
        (record(b"v", headers=varint(1) + varint(-1) + varint(-1)), 1),
        (record(b"v", headers=varint(0) + b"x"), 1),
        (varint(-7) + bytes(6), 1),
        (varint(6) + b"\0\0\0" + varint(-2) + varint(-1) + b"\0", 1),
        (varint(15) + b"\0\0\0" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0\0", 1),
        (b"\xff" * 20, 1),
    ],
)
@pytest.mark.fault("U5")
def test_what_does_not_add_up_is_refused(records: bytes, count: int) -> None:
    with pytest.raises(MalformedFileError):
        rows_of(segment([raw_batch(records, count=count)]))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_older_message_sets_are_refused_by_their_version(magic: int) -> None:
    with pytest.raises(MalformedFileError, match=f"version 2, found {magic}"):
        parse_segment(segment([raw_batch(record(b"v"), count=1, magic=magic)]))


def test_control_batches_and_aborted_transactions_have_no_records_but_offsets() -> None:
    def ends(base: int, producer: int, kind: int) -> bytes:
        records = record(b"\0" * 6, key=struct.pack(">hh", 0, kind))
        return raw_batch(records, count=1, base=base, attributes=0x30, producer_id=producer)

    def part_of(base: int, producer: int, value: bytes) -> bytes:
        records = record(value)
        return raw_batch(records, count=1, base=base, attributes=0x10, producer_id=producer)

    abort, commit = 0, 1
    data = segment(
        [
            part_of(0, 7, b"aborted"),
            part_of(1, 8, b"kept"),
            ends(2, 7, abort),
            client_batch(3, [Message(b"plain")]),
            part_of(4, 7, b"kept later"),
            ends(5, 8, commit),
            ends(6, 7, commit),
        ]
    )
    assert [(row[0], row[3]) for row in rows_of(data)] == [
        (1, b"kept"),
        (3, b"plain"),
        (4, b"kept later"),
    ]
    assert parse_segment(data).last_offset == 6
    with pytest.raises(MalformedFileError, match="end of a transaction"):
        rows_of(segment([part_of(0, 7, b"open")]))


def test_a_batch_that_compaction_emptied_only_moves_the_offset() -> None:
    for compression in COMPRESSIONS:
        empty = raw_batch(b"", count=0, base=5, last_offset_delta=3, attributes=compression)
        assert rows_of(segment([empty])) == []
        assert parse_segment(segment([empty])).last_offset == 8
    assert parse_segment(segment([], base=9)).last_offset == 8


def test_the_end_of_a_transaction_that_compaction_emptied_says_nothing() -> None:
    """What follows it in the file is not its record."""
    control = raw_batch(b"", count=0, base=1, attributes=0x30, producer_id=7)
    kept = client_batch(2, [Message(b"kept")])
    assert [row[3] for row in rows_of(segment([control, kept]))] == [b"kept"]
    within = raw_batch(record(b"open"), count=1, attributes=0x10, producer_id=7)
    with pytest.raises(MalformedFileError, match="end of a transaction in its segment"):
        rows_of(segment([within, control, kept]))


def test_the_brokers_time_counts_where_the_batch_says_so() -> None:
    batch = raw_batch(record(b"v"), count=1, attributes=0x08, newest=TIMESTAMP + 99)
    assert rows_of(segment([batch]))[0][1] == TIMESTAMP + 99


def test_offsets_come_from_the_records() -> None:
    # A client that packs several batches into one request gets them stored like this.
    parts = [client_batch(0, [Message(b"a"), Message(b"b")]), client_batch(0, [Message(b"c")])]
    assert [row[0] for row in rows_of(segment(parts, last=-1))] == [0, 1, 0]
    gap = raw_batch(record(b"a") + record(b"b", offset=4), count=2, last_offset_delta=9)
    assert [row[0] for row in rows_of(segment([gap]))] == [0, 4]
    assert parse_segment(segment([gap])).last_offset == 9


@pytest.mark.fault("U4")
def test_snappy_is_read_with_and_without_xerial_blocks() -> None:
    records = b"".join(record(b"v" * 50, offset=at) for at in range(20))
    half = len(records) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(each)) for each in (records[:half], records[half:])]
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(each)) + each for each in blocks)
    raw = bytes(cramjam.snappy.compress_raw(records))
    for stored in (framed, raw):
        assert len(rows_of(segment([raw_batch(stored, count=20, attributes=2)]))) == 20
        with pytest.raises(MalformedFileError):
            rows_of(segment([raw_batch(stored[:-1], count=20, attributes=2)]))


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_damaged_compression_is_refused(compression: int) -> None:
    batch = client_batch(0, [Message(b"v" * 500)] * 9, compression=compression)
    stored = batch[61:]
    for cut in range(len(stored)):
        with pytest.raises(MalformedFileError):
            rows_of(segment([raw_batch(stored[:cut], count=9, attributes=compression)]))
    for extra in (b"\0", b"garbage"):
        with pytest.raises(MalformedFileError):
            rows_of(segment([raw_batch(stored + extra, count=9, attributes=compression)]))


def bomb(compression: int, size: int) -> bytes:
    zeros = bytes(size)
    match BatchCompression(compression):
        case BatchCompression.GZIP:
            return gzip.compress(zeros)
        case BatchCompression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(zeros))
        case BatchCompression.LZ4:
            return bytes(cramjam.lz4.compress(zeros))
        case _:
            return bytes(cramjam.zstd.compress(zeros))


# In a process of its own, whose highest memory use nothing else has raised.
DECODE = """
import resource, sys
from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
batches = parse_segment(sys.stdin.buffer.read()).batches
before, rows = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
try:
    for piece in decode_records(batches):
        rows += piece.num_rows
except MalformedFileError:
    rows = -1
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def decoded_alone(data: bytes) -> tuple[int, int]:
    """The records, -1 if they are refused, and the KiB by which memory grew."""
    done = subprocess.run(
        [sys.executable, "-c", DECODE], input=data, capture_output=True, check=True
    )
    rows, kibibytes = map(int, done.stdout.split())
    return rows, kibibytes


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
@pytest.mark.fault("U6")
def test_a_bomb_is_refused_before_it_takes_memory(compression: int) -> None:
    stored = bomb(compression, 100 << 20)
    rows, grown = decoded_alone(segment([raw_batch(stored, count=1, attributes=compression)]))
    assert rows == -1
    assert grown < 64 << 10


def test_millions_of_tiny_records_need_little_memory_at_a_time() -> None:
    count = 2_000_000
    stored = bytes(cramjam.zstd.compress(record() * count))
    assert len(stored) < 1 << 20
    rows, grown = decoded_alone(segment([raw_batch(stored, count=count, attributes=4)]))
    assert rows == count
    # All records at once take 466 MB.
    assert grown < 96 << 10


def test_a_truncated_index_is_refused() -> None:
    for cut in range(len(GOLDEN_INDEX)):
        with pytest.raises(MalformedFileError):
            parse_index(GOLDEN_INDEX[:cut])


def test_an_index_of_another_kind_is_refused() -> None:
    for wrong in (b"IDX\n" + GOLDEN_INDEX[4:], GOLDEN_INDEX[:5] + b"\2" + GOLDEN_INDEX[6:]):
        with pytest.raises(MalformedFileError, match="version 1"):
            parse_index(wrong)
    with pytest.raises(MalformedFileError, match="entries"):
        parse_index(GOLDEN_INDEX + b"\0")
