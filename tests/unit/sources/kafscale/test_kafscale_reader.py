"""Segments read in tasks: every record becomes a row, and nothing that is wrong goes unseen."""

from __future__ import annotations

import pickle
import subprocess
import sys
from threading import Barrier
from typing import TYPE_CHECKING, ClassVar

import pytest

from frazil.clients.object_store import CONNECTIONS
from frazil.codec.kfs.compression import BatchCompression
from frazil.errors import (
    FrazilError,
    MalformedChangeError,
    MissingSegmentError,
    PositionLostError,
    StorageError,
)
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.reading import reader as reader_module
from frazil.sources.kafscale.reading.reader import SegmentReader, connections_for
from frazil.sources.kafscale.reading.segment_faults import MOST_PAYLOAD_BYTES
from frazil.sources.kafscale.segments.planned import SegmentRun
from frazil.sources.kafscale.segments.planning import join_splits
from frazil.sources.protocol import PartitionFailure, Split, TableRows
from tests.support.kafscale.segments import Message, client_batch, raw_batch, record, segment
from tests.support.kafscale.topics import (
    TOPIC,
    BucketInMemory,
    TopicReading,
    planned,
    read_topic,
    segment_key,
    topic_plan,
)

if TYPE_CHECKING:
    from frazil.sources.kafscale.segments.planned import PlannedSegment

NAME = "orders/3"
POLICIES = ("stop", "dead_letter")


def simple(base: int, *values: bytes, compression: int = 0) -> bytes:
    batch = client_batch(base, [Message(value) for value in values], compression=compression)
    return segment([batch], base=base)


def simple_run(count: int, *, size: int = 1) -> list[tuple[PlannedSegment, bytes | None]]:
    """Segments of one record each, which says its offset."""
    return [(planned(at, at + 1), simple(at, b"%d" % at * size)) for at in range(count)]


def undecodable(base: int) -> bytes:
    """A segment whose checksums are right, and whose record is not."""
    good = client_batch(base, [Message(b"good")])
    return segment([good, raw_batch(b"\x0e" + b"\xff" * 7, count=1, base=base + 1)], base=base)


def stopped(failure: object) -> tuple[str, str, int, type[FrazilError]]:
    assert isinstance(failure, PartitionFailure)
    error = failure.error
    assert isinstance(error, FrazilError)
    assert error.next_step
    assert error.table == TOPIC
    assert error.position == f"{NAME}@{failure.offset}"
    return failure.table, failure.partition, failure.offset, type(error)


@pytest.mark.parametrize("compression", [each.value for each in BatchCompression])
def test_every_codec_becomes_rows(compression: int) -> None:
    data = simple(7, b"a" * 300, b"b" * 300, compression=compression)
    found = read_topic(topic_plan(), [(planned(7, 9), data)])
    assert found.values == [b"a" * 300, b"b" * 300]
    assert [row["offset"] for row in found.rows] == [7, 8]
    assert found.failure is None


def test_many_small_segments_are_decoded_together_and_stay_in_order() -> None:
    found = read_topic(topic_plan(), simple_run(300))
    assert found.values == [b"%d" % at for at in range(300)]
    assert len(found.readings) == 1


def test_segments_are_joined_up_to_a_size() -> None:
    found = read_topic(topic_plan(), simple_run(12, size=500_000))
    assert [row["offset"] for row in found.rows] == list(range(12))
    assert 1 < len(found.readings) < 12


@pytest.mark.parametrize("policy", POLICIES)
def test_a_large_segment_comes_piece_by_piece(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # More than what is kept while it is checked, so that it is decoded again.
    monkeypatch.setattr(reader_module, "_MOST_KEPT", 1 << 20)
    batches = [
        client_batch(at, [Message(b"%d" % (at + more)) for more in range(10_000)])
        for at in range(0, 100_000, 10_000)
    ]
    plan = topic_plan(on_bad_segment=policy)
    found = read_topic(plan, [(planned(0, 100_000), segment(batches))])
    pieces = [each.rows for each in found.readings if isinstance(each, TableRows)]
    assert len(pieces) > 1
    positions = [at for rows in pieces for at in rows.column("position").to_pylist()]
    assert positions == list(range(100_000))


def test_only_records_from_the_wanted_offset_on_are_read() -> None:
    first = (planned(0, 3, from_offset=2), simple(0, b"a", b"b", b"c"))
    found = read_topic(topic_plan(), [first, (planned(3, 4), simple(3, b"d"))])
    assert found.values == [b"c", b"d"]
    assert found.failure is None


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("policy", ["stop", "record"])
def test_all_records_of_a_packed_payload_are_rows(others: int, policy: str) -> None:
    # As a broker was seen to store 2, 3 and 1 records: with bases 0, 0 and 99.
    batches = [
        client_batch(base, [Message(b"%d-%d" % (base, at)) for at in range(count)])
        for base, count in ((0, 2), (0, 3), (99, 1))
    ]
    run = [(planned(0, 2), segment(batches, last=1))]
    run += [(planned(2, 3), simple(2, b"next"))] * others
    found = read_topic(topic_plan(on_gap=policy), run)
    assert found.values == [b"0-0", b"0-1", b"0-0", b"0-1", b"0-2", b"99-0", *[b"next"] * others]
    assert found.failure is None
    assert found.rejected == []


@pytest.mark.parametrize("last", [-7, 3])
def test_a_footer_that_is_nonsense_does_not_count(last: int) -> None:
    batches = [client_batch(5, [Message(b"a")]), client_batch(9, [Message(b"b")])]
    data = segment(batches, base=5, last=last)
    found = read_topic(topic_plan(), [(planned(5, 6), data)])
    assert found.values == [b"a", b"b"]
    assert found.failure is None


def test_a_gap_after_a_segment_stops_the_partition_behind_it() -> None:
    run = [
        (planned(0, 1), simple(0, b"a")),
        (planned(1, 5), simple(1, b"b")),
        (planned(5, 6), simple(5, b"f")),
    ]
    found = read_topic(topic_plan(), run)
    assert found.values == [b"a", b"b"]
    assert stopped(found.failure) == (TOPIC, NAME, 2, PositionLostError)
    assert found.failure is not None
    assert "2 to 4" in found.failure.error.message
    next_step = found.failure.error.next_step
    assert next_step is not None
    assert "source.on_gap: record" in next_step


def test_a_gap_can_be_recorded() -> None:
    run = [(planned(1, 5), simple(1, b"b")), (planned(5, 6), simple(5, b"f"))]
    found = read_topic(topic_plan(on_gap="record"), run)
    assert found.values == [b"b", b"f"]
    (gap,) = found.rejected
    assert (gap.reason, gap.offset, gap.where, gap.payload) == (RejectReason.GAP, 2, NAME, b"")
    assert "2 to 4" in gap.message


@pytest.mark.parametrize("policy", ["stop", "record"])
def test_offsets_missing_before_a_segment_are_a_gap(policy: str) -> None:
    run = [(planned(5, 6, missing_from=2), simple(5, b"f"))]
    found = read_topic(topic_plan(on_gap=policy), run)
    if policy == "stop":
        assert found.values == []
        assert stopped(found.failure) == (TOPIC, NAME, 2, PositionLostError)
    else:
        assert found.values == [b"f"]
        assert [(each.offset, each.reason) for each in found.rejected] == [(2, RejectReason.GAP)]


def test_a_segment_that_reaches_into_the_next_one_stops_the_partition_before_it() -> None:
    run = [
        (planned(0, 1), simple(0, b"a")),
        (planned(1, 2), simple(1, b"b", b"c")),
        (planned(2, 3), simple(2, b"d")),
    ]
    assert stopped(read_topic(topic_plan(), run).failure) == (TOPIC, NAME, 1, PositionLostError)
    found = read_topic(topic_plan(on_gap="record"), run)
    assert found.values == [b"a", b"b", b"c", b"d"]
    assert found.rejected == []


def damaged(base: int) -> dict[str, bytes]:
    good = simple(base, b"x" * 100)
    return {
        "truncated": good[:60],
        "changed": good[:-30] + b"\0" + good[-29:],
        "of another base": simple(base + 1, b"x"),
        "undecodable": undecodable(base),
        "empty": b"",
    }


@pytest.mark.parametrize("kind", damaged(0))
def test_a_bad_segment_stops_its_partition(kind: str) -> None:
    run = simple_run(6)
    run[3] = (planned(3, 4), damaged(3)[kind])
    found = read_topic(topic_plan(), run)
    assert found.values[:3] == [b"0", b"1", b"2"]
    assert stopped(found.failure) == (TOPIC, NAME, 3, MalformedChangeError)
    assert found.failure is not None
    assert segment_key(3) in found.failure.error.message
    assert "at byte" in found.failure.error.message
    assert "frazil decode segment s3://bucket/default/" in (found.failure.error.next_step or "")


@pytest.mark.parametrize("kind", damaged(0))
@pytest.mark.fault("U10")
def test_a_bad_segment_can_become_a_dead_letter_and_none_of_it_a_row(kind: str) -> None:
    run = simple_run(6)
    run[3] = (planned(3, 4), damaged(3)[kind])
    found = read_topic(topic_plan(on_bad_segment="dead_letter", on_gap="record"), run)
    assert found.values == [b"0", b"1", b"2", b"4", b"5"]
    (letter,) = (each for each in found.rejected if each.reason is RejectReason.MALFORMED)
    assert (letter.offset, letter.payload) == (3, damaged(3)[kind])
    assert segment_key(3) in letter.message
    assert found.failure is None


def test_the_place_of_a_bad_batch_is_the_one_in_its_file() -> None:
    good = client_batch(0, [Message(b"good")])
    found = read_topic(topic_plan(), [(planned(0, 2), undecodable(0))])
    assert found.failure is not None
    assert f"at byte {32 + len(good)}:" in found.failure.error.message


def test_a_large_bad_segment_is_cut_in_its_dead_letter() -> None:
    size = 4 * MOST_PAYLOAD_BYTES
    batches = [
        client_batch(0, [Message(b"x" * size)]),
        raw_batch(record(b"y")[:-1] + b"\x09", count=1, base=1),
    ]
    data = segment(batches)
    plan = topic_plan(on_bad_segment="dead_letter")
    found = read_topic(plan, [(planned(0, 2), data), (planned(2, 3), simple(2, b"z"))])
    assert found.values == [b"z"]
    (letter,) = found.rejected
    assert letter.payload == data[:MOST_PAYLOAD_BYTES]
    assert str(len(data)) in letter.message


def test_transactions_are_not_joined_across_segments() -> None:
    open_ended = segment([raw_batch(record(b"a"), count=1, attributes=16, producer_id=1)])
    key = b"\0\0\0\x01"
    end = segment(
        [raw_batch(record(key=key), count=1, base=1, attributes=48, producer_id=1)], base=1
    )
    found = read_topic(topic_plan(), [(planned(0, 1), open_ended), (planned(1, 2), end)])
    assert stopped(found.failure) == (TOPIC, NAME, 0, MalformedChangeError)


def test_a_segment_that_is_gone_stops_its_partition_or_is_a_gap() -> None:
    run = simple_run(4)
    run[2] = (run[2][0], None)
    found = read_topic(topic_plan(on_bad_segment="dead_letter"), run)
    assert found.values == [b"0", b"1"]
    assert stopped(found.failure) == (TOPIC, NAME, 2, MissingSegmentError)
    found = read_topic(topic_plan(on_gap="record"), run)
    assert found.values == [b"0", b"1", b"3"]
    assert [(each.reason, each.offset) for each in found.rejected] == [(RejectReason.GAP, 2)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_that_does_not_answer_says_nothing_about_a_segment(policy: str) -> None:
    plan = topic_plan(on_bad_segment=policy, on_gap="record")
    with pytest.raises(StorageError):
        read_topic(plan, simple_run(3), fails=[segment_key(1)])


def test_an_empty_segment_has_no_rows() -> None:
    found = read_topic(topic_plan(), [(planned(0, 1), segment([], last=0))])
    assert found.readings == ()


def test_the_reader_travels_and_loads_no_data_frames() -> None:
    reader = SegmentReader(bucket=BucketInMemory(), topics={TOPIC: topic_plan()})
    assert pickle.loads(pickle.dumps(reader)) == reader
    code = (
        "import sys, frazil.sources.kafscale.reading.reader\n"
        "sys.exit(bool({'pandas', 'pyspark', 'pyiceberg'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_small_segments_are_fetched_by_number_and_large_ones_by_bytes() -> None:
    mebibyte = 1 << 20
    assert connections_for(0) == connections_for(mebibyte) == CONNECTIONS
    assert connections_for(4 * mebibyte) == 4
    # One is decoded while the next one comes.
    assert connections_for(500 * mebibyte) == 2


class BucketOfPairs(BucketInMemory):
    """Answers two requests at a time, and none that is alone."""

    both: ClassVar[Barrier] = Barrier(2)

    def read(self, key: str, *, at_most: int | None = None) -> bytes:
        self.both.wait(timeout=60)
        return super().read(key, at_most=at_most)


def joined(*runs: SegmentRun) -> Split:
    (found,) = join_splits(tuple(Split(each, 5) for each in runs))
    assert found.weight == 5 * len(runs)
    return found


@pytest.mark.fault("U7")
def test_segments_of_the_next_partition_are_on_their_way_while_one_is_read() -> None:
    runs = [SegmentRun(TOPIC, 1, (planned(1, 2),)), SegmentRun(TOPIC, 0, (planned(0, 1),))]
    stored = {segment_key(at): simple(at, b"%d" % at) for at in range(2)}
    reader = SegmentReader(bucket=BucketOfPairs(objects=stored), topics={TOPIC: topic_plan()})
    found = TopicReading(topic_plan(), tuple(reader.read(joined(*runs))))
    assert [(row["partition"], row["value"]) for row in found.rows] == [(0, b"0"), (1, b"1")]


def test_a_run_that_stops_leaves_the_other_runs_of_its_task_complete() -> None:
    first, second = (planned(0, 1), planned(1, 2), planned(2, 3)), (planned(3, 4), planned(4, 5))
    stored = {segment_key(at): simple(at, b"%d" % at) for at in (0, 2, 3, 4)}
    reader = SegmentReader(bucket=BucketInMemory(objects=stored), topics={TOPIC: topic_plan()})
    runs = [SegmentRun(TOPIC, 0, first), SegmentRun(TOPIC, 1, second)]
    rows, failure, *others = reader.read(joined(*runs))
    assert isinstance(failure, PartitionFailure)
    assert (failure.partition, failure.offset) == (f"{TOPIC}/0", 1)
    found = TopicReading(topic_plan(), (rows, *others))
    assert [(row["partition"], row["value"]) for row in found.rows] == [
        (0, b"0"),
        (1, b"3"),
        (1, b"4"),
    ]


def test_a_split_of_another_kind_is_refused() -> None:
    reader = SegmentReader(bucket=BucketInMemory(), topics={})
    with pytest.raises(TypeError):
        next(reader.read(Split("something", 1)))
