"""Segments of the demo are a broker's, by our decoder and by that of a Kafka client."""

from __future__ import annotations

import json

import pytest
from aiokafka.record.memory_records import MemoryRecords

from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.kfs.index_file import parse_index
from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import FOOTER, HEADER, parse_segment
from frazil.demo.tour.segment_writer import ProducedRecord, write_segment
from frazil.demo.tour.topics import Customers

NOW = 1_700_000_000_000
RECORDS = [
    ProducedRecord(b"first", b"value " * 100, NOW),
    ProducedRecord(b"gone", None, NOW + 70_000),
    # Clocks of producers differ.
    ProducedRecord(b"", b"", NOW - 5),
]


@pytest.mark.parametrize("compression", BatchCompression)
def test_records_come_back_from_both_decoders(compression: BatchCompression) -> None:
    written = write_segment(1_000_000, RECORDS, compression)
    segment = parse_segment(written.segment)
    assert (segment.base_offset, segment.footer_offset) == (1_000_000, 1_000_002)
    assert segment.message_count == len(RECORDS)
    (decoded,) = decode_records(segment.batches)
    ours = zip(
        *(decoded.column(name).to_pylist() for name in ("offset", "key", "value", "timestamp_ms")),
        strict=True,
    )
    expected = [
        (1_000_000 + at, each.key, each.value, each.timestamp_ms) for at, each in enumerate(RECORDS)
    ]
    assert list(ours) == expected
    batch = MemoryRecords(written.segment[HEADER.size : -FOOTER.size]).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    theirs = [(each.offset, each.key, each.value, each.timestamp) for each in batch]
    assert theirs == expected


def test_the_index_names_the_first_batch() -> None:
    written = write_segment(42, RECORDS, BatchCompression.NONE)
    assert parse_index(written.index).entries == ((42, HEADER.size),)


def test_customers_are_what_their_change_events_come_to() -> None:
    customers = Customers(seed=7)
    events = [customers.read(NOW) for _ in range(50)]
    events += [each for _ in range(2_000) for each in customers.draw(NOW)]
    replayed: dict[int, tuple[str, str, int]] = {}
    letters = set()
    for number, record in events:
        assert json.loads(record.key) == {"id": number}
        if record.value is None:
            assert number not in replayed, "a tombstone follows its delete"
            continue
        event = json.loads(record.value)
        letters.add(event["op"])
        if event["op"] == "d":
            row = event["before"]
            assert replayed.pop(number) == (row["name"], row["city"], row["points"])
        else:
            row = event["after"]
            replayed[number] = row["name"], row["city"], row["points"]
        assert row["id"] == number
    assert letters == {"r", "c", "u", "d"}
    assert replayed == customers.rows
