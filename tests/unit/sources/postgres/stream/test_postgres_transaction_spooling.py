"""Messages become segments: each of them once, in order, and every segment can be read alone."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Truncate,
    TruncateOption,
)
from frazil.codec.pgoutput.replication_frames import Keepalive, LogData
from frazil.errors import MalformedChangeError
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.stream.segment import OpenTransaction
from frazil.sources.postgres.stream.transaction_spooling import TransactionSpooling
from tests.support.pgoutput.frames import encode_message
from tests.support.pgoutput.golden import golden
from tests.support.pgoutput.histories import SlowReplay, chance_of, decoded_history
from tests.support.postgres.spooled import (
    MOMENT,
    XID,
    MemoryFiles,
    WholeHistories,
    counted_oids,
    decoded,
    framed,
    insert,
    kept,
    messages_of,
    relation,
    rows_of,
    transaction,
)
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.messages import Message
    from frazil.sources.postgres.stream.segment import Segment

ROW_BYTES = len(encode_message(insert()))


class Spooled:
    """A spooling over files in memory, and all segments that it has finished."""

    def __init__(
        self, *, segment_bytes: int = 1 << 20, large_bytes: int = 1 << 20, write_bytes: int = 64
    ) -> None:
        self.files = MemoryFiles()
        self.spooling = TransactionSpooling(
            self.files,
            prefix="s",
            segment_bytes=segment_bytes,
            large_bytes=large_bytes,
            write_bytes=write_bytes,
        )
        self.segments: list[Segment] = []

    def take(self, *messages: Message) -> None:
        self.spooling.take_frames(framed(messages))

    def finish(self) -> list[Segment]:
        self.spooling.finish_segment()
        self.segments += self.spooling.take_finished()
        return self.segments

    def messages(self) -> list[Message]:
        return [
            decode_message(payload, in_stream=False)
            for segment in self.segments
            for payload in messages_of(self.files.files[segment.name])
        ]


def check_all(spooled: Spooled, payloads: Sequence[bytes]) -> None:
    """Everything that was sent is in the segments, and what they say about themselves is so."""
    check_messages(spooled, payloads)
    check_meaning(spooled, payloads)
    earlier: Counter[int] = Counter()
    for segment in spooled.segments:
        check_facts(spooled, segment)
        assert segment.begins_ordinals == (earlier if segment.opens else {})
        messages = messages_of(spooled.files.files[segment.name])
        counts = {oid: 2 * count for oid, count in Counter(counted_oids(messages)).items()}
        earlier = Counter() if segment.end_lsn is not None else earlier + Counter(counts)


def check_messages(spooled: Spooled, payloads: Sequence[bytes]) -> None:
    expected = iter(kept(payloads))
    following = next(expected, None)
    for segment in spooled.segments:
        for payload in messages_of(spooled.files.files[segment.name]):
            if payload == following:
                following = next(expected, None)
            else:
                assert payload[:1] == b"R", "only descriptions are put in between"
    assert following is None


def check_meaning(spooled: Spooled, payloads: Sequence[bytes]) -> None:
    """A task that knows one segment reads the same rows as one that knows the entire history."""
    described = [each for each in payloads if each[:1] == b"R"]
    all_rows = SlowReplay().replay(kept_with_relations(payloads)).rows if described else []
    alone = [
        row
        for segment in spooled.segments
        for row in rows_of(segment, spooled.files.files[segment.name])
    ]
    assert [(r.kind, r.relation, r.old_kind, r.old, r.new) for r in alone] == [
        (r.kind, r.relation, r.old_kind, r.old, r.new) for r in all_rows
    ]


def kept_with_relations(payloads: Sequence[bytes]) -> list[bytes]:
    return [each for each in payloads if each[:1] != b"M"]


def check_facts(spooled: Spooled, segment: Segment) -> None:
    data = spooled.files.files[segment.name]
    messages = messages_of(data)
    found_history = decoded_history(decoded(segment, data))
    assert segment.size == len(data)
    assert segment.messages == len(messages)
    assert segment.rows == len(found_history.rows) + len(found_history.truncations)
    assert segment.oids == set(counted_oids(messages))
    found = [decode_message(each, in_stream=False) for each in messages if each[:1] == b"R"]
    assert list(segment.relations) == found
    begun = [
        OpenTransaction(each.final_lsn, each.committed_at, each.xid)
        for _, each in found_history.begins
    ]
    if segment.opens is not None:
        begun.insert(0, segment.opens)
    assert segment.first_final_lsn == begun[0].final_lsn
    last = segment.last_final_lsn, segment.last_committed_at, segment.last_xid
    assert last == tuple(begun[-1])
    ends = [each.end_lsn for _, each in found_history.commits]
    assert segment.end_lsn == (None if found_history.ends_inside else ends[-1])
    if segment.opens is not None or segment.end_lsn is None:
        assert len(begun) == 1, "a large transaction shares its segments with no other"
    assert pickle.loads(pickle.dumps(segment)) == segment


@examples(120)
@given(
    seed=st.integers(0, 1 << 32),
    segment_bytes=st.sampled_from([1, 300, 2_000, 1 << 20]),
    large_bytes=st.sampled_from([60, 300, 2_000, 1 << 20]),
    write_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_every_message_is_in_one_segment_in_order_and_each_segment_can_be_read_alone(
    seed: int, segment_bytes: int, large_bytes: int, write_bytes: int
) -> None:
    chance = chance_of(seed)
    histories = WholeHistories(chance)
    frames = framed([each for _ in range(2) for each in histories.history()])
    spooled = Spooled(segment_bytes=segment_bytes, large_bytes=large_bytes, write_bytes=write_bytes)
    at = 0
    while at < len(frames):
        count = chance.randrange(1, 40)
        spooled.spooling.take_frames(frames[at : at + count])
        if chance.random() < 0.3:
            spooled.finish()
        at += count
    spooled.finish()
    check_all(spooled, [each.payload for each in frames])
    assert spooled.spooling.settled_rows == spooled.spooling.open_bytes == 0


@pytest.mark.parametrize("large_bytes", [50, 400, 1 << 20])
def test_what_a_server_sent_is_spooled_completely(large_bytes: int) -> None:
    payloads = golden().complete
    spooled = Spooled(large_bytes=large_bytes, segment_bytes=700)
    spooled.spooling.take_frames([LogData(9, 9, 0, each) for each in payloads])
    spooled.finish()
    check_all(spooled, payloads)
    last = [decode_message(each, in_stream=False) for each in payloads if each[:1] == b"C"][-1]
    assert isinstance(last, Commit)
    assert spooled.spooling.position == last.end_lsn


def test_each_segment_describes_the_tables_it_has_rows_of_and_no_others() -> None:
    spooled = Spooled()
    spooled.take(*transaction(10, relation(7), insert(7), relation(8), insert(8)))
    spooled.finish()
    spooled.take(*transaction(20, insert(8)), *transaction(30, insert(8)))
    first, second = spooled.finish()
    assert first.relations == (relation(7), relation(8))
    assert second.relations == (relation(8),)
    assert second.oids == {8}
    assert (second.first_final_lsn, second.last_final_lsn, second.end_lsn) == (20, 30, 35)


def test_a_table_that_changes_inside_a_transaction_is_described_twice() -> None:
    spooled = Spooled()
    wider = relation(7, columns=2)
    spooled.take(*transaction(10, relation(7), insert(7)))
    spooled.finish()
    spooled.take(*transaction(20, insert(7), wider, insert(7, columns=2)))
    spooled.take(*transaction(30, insert(7, columns=2)))
    _, second = spooled.finish()
    assert second.relations == (relation(7), wider)


def test_an_open_transaction_that_changed_a_table_keeps_both_shapes_when_it_moves_on() -> None:
    spooled = Spooled()
    wider = relation(7, columns=2)
    spooled.take(*transaction(10, relation(7), insert(7)))
    opened = transaction(20, insert(7), wider, insert(7, columns=2), insert(7, columns=2))
    spooled.take(*opened[:-2])
    spooled.finish()
    spooled.take(*opened[-2:])
    first, second = spooled.finish()
    assert first.relations == (relation(7),)
    assert first.rows == 1
    assert second.relations == (relation(7), wider)
    assert second.rows == 3


def test_a_description_that_came_without_rows_counts_for_the_rows_after_it() -> None:
    spooled = Spooled()
    wider = relation(7, columns=2)
    spooled.take(*transaction(10, relation(7), insert(7)))
    spooled.take(*transaction(20, wider))
    spooled.take(*transaction(30, insert(7, columns=2)))
    # Rows before and after a description are apart, because it may be equal and describe other
    # columns.
    first, second = spooled.finish()
    assert (first.relations, second.relations) == ((relation(7),), (wider,))
    assert (first.rows, second.rows) == (1, 1)
    assert [each.final_lsn for each in spooled.messages() if isinstance(each, Begin)] == [10, 30]


def test_a_table_that_comes_new_goes_into_the_segment_of_the_others() -> None:
    spooled = Spooled()
    spooled.take(*transaction(10, relation(7), insert(7)))
    spooled.take(*transaction(20, relation(8), insert(8)))
    (only,) = spooled.finish()
    assert only.relations == (relation(7), relation(8))


def test_a_segment_that_has_reached_its_size_is_finished() -> None:
    history = transaction(10, relation(7), insert(7))
    # Nothing is written, where messages take a few bytes more.
    measured = Spooled(write_bytes=1 << 20)
    measured.take(*history)
    full = measured.spooling.settled_bytes
    spooled = Spooled(segment_bytes=full)
    spooled.take(*history)
    (only,) = spooled.spooling.take_finished()
    assert only.end_lsn == 15
    larger = Spooled(segment_bytes=full + 1)
    larger.take(*history)
    assert larger.spooling.take_finished() == []


def test_a_large_transaction_has_segments_of_its_own() -> None:
    spooled = Spooled(large_bytes=10 * ROW_BYTES, segment_bytes=20 * ROW_BYTES)
    spooled.take(*transaction(10, relation(7), insert(7), relation(8), insert(8)))
    many = transaction(20, *[insert(7)] * 99, Truncate((7, 8), TruncateOption(0)))
    spooled.take(*many, *transaction(30, insert(7)))
    before, *parts, after = spooled.finish()
    assert len(parts) > 3
    assert (before.last_final_lsn, before.end_lsn, before.opens) == (10, 15, None)
    assert (after.first_final_lsn, after.end_lsn, after.opens) == (30, 35, None)
    opened = OpenTransaction(20, MOMENT + 20, XID)
    assert [each.opens for each in parts] == [None, *[opened] * (len(parts) - 1)]
    assert [each.end_lsn for each in parts] == [*[None] * (len(parts) - 1), 25]
    assert sum(each.rows for each in parts) == 100
    assert parts[1].begins_ordinals == {7: 2 * parts[0].rows}
    assert all(relation(7) in each.relations for each in parts if 7 in each.oids)
    assert parts[-1].oids >= {7, 8}
    check_all(
        spooled,
        [
            encode_message(each)
            for each in (
                *transaction(10, relation(7), insert(7), relation(8), insert(8)),
                *many,
                *transaction(30, insert(7)),
            )
        ],
    )


def test_a_large_transaction_never_waits_in_memory() -> None:
    spooled = Spooled(large_bytes=1_000, segment_bytes=20_000, write_bytes=500)
    spooled.take(Begin(10, 0, 1), relation(7))
    most = 0
    for _ in range(20_000):
        spooled.take(insert(7))
        most = max(most, spooled.spooling.open_bytes)
    assert max(spooled.files.written[:-1]) < 1_000 + 5 * ROW_BYTES + 4 * 20_000 // ROW_BYTES
    assert most < 20_000 + 1_000 + ROW_BYTES
    assert spooled.spooling.is_large
    assert spooled.spooling.settled_rows == spooled.spooling.settled_bytes == 0


def test_transactions_without_rows_leave_no_bytes_and_move_the_position() -> None:
    spooled = Spooled()
    emitted = LogicalMessage(19, "ours", b"x" * 5_000, is_transactional=True)
    spooled.take(*transaction(10), *transaction(20, emitted), *transaction(30, relation(7)))
    assert spooled.finish() == []
    assert spooled.files.written == []
    assert spooled.spooling.position == 35


def test_descriptions_alone_do_not_make_a_transaction_large() -> None:
    spooled = Spooled(large_bytes=100)
    spooled.take(*transaction(10, *[relation(7, columns=4)] * 20))
    assert spooled.finish() == []
    spooled.take(*transaction(20, insert(7, columns=4)))
    (only,) = spooled.finish()
    assert only.relations == (relation(7, columns=4),)


def test_messages_emitted_between_rows_are_left_out() -> None:
    spooled = Spooled(large_bytes=1_000)
    emitted = LogicalMessage(19, "ours", b"x" * 5_000, is_transactional=True)
    spooled.take(*transaction(20, relation(7), emitted, insert(7), emitted))
    assert not spooled.spooling.is_large
    (only,) = spooled.finish()
    assert only.messages == 4


def test_a_keepalive_moves_the_position_but_not_inside_a_transaction() -> None:
    spooled = Spooled()
    spooled.spooling.take_frames([Keepalive(100, 0, wants_reply=False)])
    assert spooled.spooling.position == 100
    spooled.take(Begin(150, 0, 1), relation(7), insert(7))
    spooled.spooling.take_frames([Keepalive(200, 0, wants_reply=True)])
    assert spooled.spooling.position == 100
    spooled.take(Commit(150, 155, 0))
    spooled.spooling.take_frames([Keepalive(140, 0, wants_reply=False)])
    assert spooled.spooling.position == 155


def test_the_position_never_falls() -> None:
    spooled = Spooled()
    assert spooled.spooling.position == 0
    spooled.spooling.take_frames([])
    begin = encode_message(Begin(150, 0, 1))
    spooled.spooling.take_frames([LogData(9, 300, 0, begin), LogData(9, 400, 0, b"M")])
    assert spooled.spooling.position == 0
    spooled.take(relation(7), insert(7))
    spooled.spooling.take_frames([Keepalive(350, 0, wants_reply=False)])
    spooled.take(Commit(150, 155, 0))
    assert spooled.spooling.position == 155
    spooled.spooling.take_frames([Keepalive(500, 0, wants_reply=False)])
    spooled.take(*transaction(200, insert(7)))
    assert spooled.spooling.position == 500


def test_each_description_tells_the_transaction_that_it_first_came_in() -> None:
    spooled = Spooled()
    spooled.take(relation(7), *transaction(10, insert(7), relation(8), insert(8)))
    spooled.finish()
    spooled.take(*transaction(20, insert(7), insert(8)))
    spooled.finish()
    spooled.take(relation(8), Begin(30, 30, XID + 1), relation(7), insert(7), insert(8))
    spooled.take(Commit(30, 35, 30))
    first, second, third = spooled.finish()
    assert (first.relations, first.xids) == ((relation(7), relation(8)), (0, XID))
    assert (second.relations, second.xids) == ((relation(7), relation(8)), (0, XID))
    assert (third.relations, third.xids) == ((relation(7), relation(8)), (XID + 1, 0))


def test_what_is_settled_is_counted_in_bytes_and_rows_whether_it_is_written_or_not() -> None:
    sizes = [len(encode_message(each)) for each in transaction(10, relation(7), insert(7))]
    waiting, written = Spooled(write_bytes=1 << 20), Spooled(write_bytes=1)
    for spooled in (waiting, written):
        spooled.take(*transaction(10, relation(7), insert(7)))
        spooled.take(Begin(20, 20, XID), insert(7))
        assert spooled.spooling.settled_rows == 1
        assert spooled.spooling.open_oids == {7}
        assert spooled.spooling.open_bytes == spooled.spooling.settled_bytes >= sum(sizes)
    assert waiting.spooling.settled_bytes == sum(sizes)
    assert (waiting.files.written, len(written.files.written)) == ([], 1)


def test_what_is_abandoned_leaves_no_file() -> None:
    spooled = Spooled(write_bytes=1)
    spooled.take(*transaction(10, relation(7), insert(7)))
    spooled.spooling.abandon()
    assert (spooled.files.files, spooled.files.abandoned) == ({}, ["s-00000001.segment"])


def test_a_transaction_that_moves_on_keeps_what_the_one_before_it_described() -> None:
    """What an earlier transaction changed is not undone with the open one."""
    spooled = Spooled()
    wider = relation(7, columns=2)
    spooled.take(*transaction(10, relation(7), insert(7)))
    spooled.take(*transaction(20, wider, insert(7, columns=2)))
    opened = transaction(30, insert(7, columns=2), insert(7, columns=2))
    spooled.take(*opened[:2])
    spooled.finish()
    spooled.take(*opened[2:])
    assert [each.relations for each in spooled.finish()] == [(relation(7),), (wider,), (wider,)]


def test_a_truncation_counts_once_and_touches_all_its_tables() -> None:
    spooled = Spooled()
    both = Truncate((7, 8), TruncateOption.CASCADE)
    spooled.take(*transaction(10, relation(7), relation(8), both))
    opened = transaction(20, both, insert(7))
    spooled.take(*opened[:2])
    first = spooled.finish()[0]
    assert (first.rows, first.oids) == (1, frozenset({7, 8}))
    spooled.take(*opened[2:])
    second = spooled.finish()[1]
    assert (second.rows, second.oids) == (2, frozenset({7, 8}))
    assert second.relations == (relation(7), relation(8))


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"S\0\0\0\1\1",
        b"E",
        b"c",
        b"A\0\0\0\1\0\0\0\1",
        b"P\0",
        b"b",
        b"?",
        b"B\0",
        b"C\0",
        b"R\0",
    ],
)
def test_what_may_not_come_is_refused_with_its_position(wrong: bytes) -> None:
    spooled = Spooled()
    with pytest.raises(MalformedChangeError) as caught:
        spooled.spooling.take_frames([LogData(0x1_0000_0002, 0x1_0000_0009, 0, wrong)])
    assert caught.value.position == format_lsn(0x1_0000_0002)


@pytest.mark.parametrize("wrong", [b"B\0", b"C\0", b"I", b"I\0\0\0\7", b"T\0", b"R\0", b"S\0"])
def test_what_is_cut_short_inside_a_transaction_is_refused(wrong: bytes) -> None:
    spooled = Spooled()
    spooled.take(Begin(1, 1, 1))
    with pytest.raises(MalformedChangeError):
        spooled.spooling.take_frames([LogData(9, 9, 0, wrong)])


@pytest.mark.parametrize(
    "messages",
    [
        [insert(7)],
        [relation(7), Truncate((7,), TruncateOption(0))],
        [Commit(1, 2, 3)],
        [Begin(1, 1, 1), Begin(2, 2, 2)],
        [Begin(1, 1, 1), insert(7)],
        [Begin(1, 1, 1), Truncate((7,), TruncateOption(0))],
        [Begin(1, 1, 1), Commit(2, 3, 1)],
        [Begin(1, 1, 1), Commit(1, 3, 2)],
        [*transaction(1, relation(7), insert(7)), insert(7)],
    ],
)
def test_messages_out_of_order_are_refused(messages: list[Message]) -> None:
    with pytest.raises(MalformedChangeError):
        Spooled().take(*messages)


def test_parts_of_streamed_transactions_are_refused() -> None:
    spooled = Spooled()
    with pytest.raises(MalformedChangeError, match="0x53"):
        spooled.spooling.take_frames([LogData(1, 1, 0, each) for each in golden().in_parts])


@pytest.mark.parametrize("cut", [b"T\0\0\0\1", b"R\0\0\0\7shop"])
def test_what_is_wrong_with_a_message_is_said(cut: bytes) -> None:
    spooled = Spooled()
    spooled.take(Begin(1, 1, 1))
    with pytest.raises(MalformedChangeError, match="at byte 5: expected"):
        spooled.spooling.take_frames([LogData(9, 9, 0, cut)])


def test_no_error_shows_a_row() -> None:
    secret = replace(insert(7), new=insert(7, value="secret").new)
    with pytest.raises(MalformedChangeError) as caught:
        Spooled().take(secret)
    assert "secret" not in repr(caught.value)
    assert "secret" not in str(caught.value)
