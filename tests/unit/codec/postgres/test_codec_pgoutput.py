"""One message of the server's output plugin at a time."""

from __future__ import annotations

import pickle
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import (
    EPOCH_MICROSECONDS,
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    LogicalMessage,
    Message,
    MessageKind,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TruncateOption,
    TypeName,
    Update,
    Value,
    ValueKind,
    moment,
)
from tests.support.codec.fuzz import bent
from tests.support.pgoutput.frames import NULL, UNCHANGED, encode_message, text
from tests.support.pgoutput.golden import decode_all, golden, without_chance, without_empty_parts
from tests.support.pgoutput.histories import chance_of
from tests.support.sampling import examples

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
XIDS = st.none() | UINT32
VALUES = st.lists(
    st.sampled_from([NULL, UNCHANGED])
    | st.builds(Value, st.sampled_from([ValueKind.TEXT, ValueKind.BINARY]), st.binary(max_size=9)),
    max_size=4,
).map(tuple)
OLD = st.builds(OldImage, st.sampled_from([ImageKind.OLD_KEY, ImageKind.OLD_ROW]), VALUES)
COLUMNS = st.lists(
    st.builds(
        RelationColumn, NAMES, UINT32, st.integers(-(2**31), 2**31 - 1), is_key=st.booleans()
    ),
    max_size=3,
).map(tuple)
# The server's own schema has no name in a message; it gets its name here.
SCHEMAS = NAMES.map(lambda name: name or "pg_catalog")
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, UINT64, TIMES, UINT32),
    st.builds(Commit, UINT64, UINT64, TIMES),
    st.builds(Origin, UINT64, NAMES),
    st.builds(
        LogicalMessage,
        UINT64,
        NAMES,
        st.binary(max_size=9),
        is_transactional=st.booleans(),
        xid=XIDS,
    ),
    st.builds(
        Relation, UINT32, SCHEMAS, NAMES, st.sampled_from(ReplicaIdentity), COLUMNS, xid=XIDS
    ),
    st.builds(TypeName, UINT32, SCHEMAS, NAMES, xid=XIDS),
    st.builds(Insert, UINT32, VALUES, xid=XIDS),
    st.builds(Update, UINT32, st.none() | OLD, VALUES, xid=XIDS),
    st.builds(Delete, UINT32, OLD, xid=XIDS),
    st.builds(
        Truncate,
        st.lists(UINT32, max_size=3).map(tuple),
        st.integers(0, 3).map(TruncateOption),
        xid=XIDS,
    ),
    st.builds(StreamStart, UINT32, is_first=st.booleans()),
    st.just(StreamStop()),
    st.builds(StreamCommit, UINT32, UINT64, UINT64, TIMES),
    st.builds(StreamAbort, UINT32, UINT32),
)


def is_streamed(message: Message) -> bool:
    kinds = (StreamStart, StreamCommit, StreamAbort, Begin)
    return not isinstance(message, kinds) and getattr(message, "xid", None) is not None


@given(MESSAGES)
@examples(100)
def test_a_message_is_read_as_the_server_writes_it(message: Message) -> None:
    data = encode_message(message)
    assert decode_message(data, in_stream=is_streamed(message)) == message
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.fault("P12")
@given(MESSAGES)
@examples(60)
def test_a_message_cut_at_any_byte_or_with_one_too_many_is_refused(message: Message) -> None:
    data = encode_message(message)
    in_stream = is_streamed(message)
    for length in range(len(data)):
        with pytest.raises(MalformedFileError) as refused:
            decode_message(data[:length], in_stream=in_stream)
        assert 0 <= refused.value.offset <= length
    with pytest.raises(MalformedFileError, match="expected the end of the message, found 1 more"):
        decode_message(data + b"\0", in_stream=in_stream)


@pytest.mark.fault("P12")
@given(MESSAGES, st.integers(0, 2**32))
@examples(150)
def test_a_bent_message_is_refused_or_is_exactly_another_one(message: Message, seed: int) -> None:
    data = bent(encode_message(message), chance_of(seed))
    for in_stream in (False, True):
        with suppress(MalformedFileError):
            found = decode_message(data, in_stream=in_stream)
            # The schema of the server itself may also be spelt out, which no server does.
            assert encode_message(found) == data.replace(b"pg_catalog\0", b"\0")


def test_every_kind_of_message_is_known_and_no_other() -> None:
    known = {int(kind) for kind in MessageKind}
    assert len(known) == 14
    for kind in set(range(256)) - known:
        with pytest.raises(MalformedFileError, match=f"0x{kind:02x}") as refused:
            decode_message(bytes([kind]) + bytes(40), in_stream=False)
        assert refused.value.offset == 0
    with pytest.raises(MalformedFileError, match="a kind of message"):
        decode_message(b"", in_stream=False)


@pytest.mark.parametrize(
    ("data", "complaint", "offset"),
    [
        (b"C\1" + bytes(24), "0 for the flags of a commit, found 1", 1),
        (b"M\2" + bytes(13), "0 or 1 for the flags of a message, found 2", 1),
        (b"S" + bytes(4) + b"\7", "0 or 1 for the first part", 5),
        (b"R" + bytes(4) + b"s\0t\0x\0\0", "d, n, f or i", 9),
        (b"R" + bytes(4) + b"s\0t\0d\0\1\2", "0 or 1 for the flags of a column", 12),
        (b"R" + bytes(4) + b"s\xff\0", "a schema in UTF-8", 6),
        (b"O" + bytes(8) + b"name", "an origin to end in a zero byte", 9),
        (b"I" + bytes(4) + b"K\0\0", "row image N, found 0x4b", 5),
        (b"U" + bytes(4) + b"x\0\0", "row image N or K or O, found 0x78", 5),
        (b"U" + bytes(4) + b"K\0\0K", "row image N, found 0x4b", 8),
        (b"D" + bytes(4) + b"N\0\0", "row image K or O, found 0x4e", 5),
        (b"I" + bytes(4) + b"N\0\1z", "kind n, u, t or b, found 0x7a", 8),
        (b"I" + bytes(4) + b"N\0\1t\0\0\0\5abcd", "5 bytes of a value, found 4", 13),
        (b"I" + bytes(4) + b"N\0\1t\xff\xff\xff\xff", "4294967295 bytes of a value, found 0", 13),
        (b"T\0\0\0\1\4" + bytes(4), "options from 0 to 3, found 4", 5),
        (b"T\xff\xff\xff\xff\0" + bytes(4), "bytes of relations, found 4", 6),
    ],
)
def test_what_the_protocol_does_not_know_is_refused_with_its_offset(
    data: bytes, complaint: str, offset: int
) -> None:
    with pytest.raises(MalformedFileError, match=complaint) as refused:
        decode_message(data, in_stream=False)
    assert refused.value.offset == offset


def test_no_value_is_shown() -> None:
    secret = text("secret")
    shown = [
        repr(Update(1, OldImage(ImageKind.OLD_ROW, (secret,)), (secret,))),
        repr(LogicalMessage(1, "p", b"secret", is_transactional=True)),
    ]
    for data in (
        b"I\0\0\0\1N\0\1t\0\0\0\x09secret",
        b"I\0\0\0\1N\0\0secret",
        b"O" + b"secret\xff" * 3,
    ):
        with pytest.raises(MalformedFileError) as refused:
            decode_message(data, in_stream=False)
        shown += [str(refused.value), repr(refused.value)]
    assert not [each for each in shown if "secret" in each]


def test_times_count_from_the_year_2000() -> None:
    assert moment(0) == datetime(2000, 1, 1, tzinfo=UTC)
    assert moment(-1) == datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert datetime.fromtimestamp(EPOCH_MICROSECONDS / 1e6, UTC) == moment(0)
    with pytest.raises(OverflowError):
        moment(2**63 - 1)


@pytest.mark.parametrize("part", ["complete", "in_parts"])
def test_what_a_server_sent_is_understood_to_the_byte(part: str) -> None:
    messages = getattr(golden(), part)
    assert [encode_message(each) for each in decode_all(messages)] == list(messages)


def test_a_server_sent_every_kind_of_message() -> None:
    captured = golden()
    kinds = {each[0] for each in (*captured.complete, *captured.in_parts)}
    assert kinds == {int(kind) for kind in MessageKind}


def test_the_history_that_a_server_sent_is_returned() -> None:
    messages = without_chance(decode_all(golden().complete))
    (item, *_), (part, *_) = (
        [each for each in messages if isinstance(each, Relation) and each.name == name]
        for name in ("item", "part")
    )
    assert [(each.name, each.type_modifier, each.is_key) for each in item.columns] == [
        ("id", -1, True),
        ("word", 24, False),
        ("mood", -1, False),
        ("note", -1, False),
        ("price", (10 << 16) + 2 + 4, False),
    ]
    assert (item.namespace, item.replica_identity) == ("public", ReplicaIdentity.DEFAULT)
    assert part.replica_identity is ReplicaIdentity.FULL
    assert all(column.is_key for column in part.columns)
    of_item = [
        each
        for each in messages
        if isinstance(each, Insert | Update | Delete) and each.relation_oid == item.oid
    ]
    key = (NULL,) * 4
    assert of_item == [
        Insert(item.oid, (text("1"), text("frazil ❄"), text("calm"), NULL, text("1.50"))),
        Insert(item.oid, (text("2"), text(""), text("wild"), text(""), text("-0.01"))),
        Insert(item.oid, (text("3"), text("toasted"), NULL, text("ice " * 600), NULL)),
        Update(item.oid, None, (text("3"), text("still toasted"), NULL, UNCHANGED, NULL)),
        Update(
            item.oid,
            OldImage(ImageKind.OLD_KEY, (text("3"), *key)),
            (text("4"), text("still toasted"), NULL, UNCHANGED, NULL),
        ),
        Update(
            item.oid,
            OldImage(ImageKind.OLD_KEY, (text("1"), *key)),
            (text("5"), text("frazil ❄"), text("calm"), NULL, text("1.50")),
        ),
        Delete(item.oid, OldImage(ImageKind.OLD_KEY, (text("2"), *key))),
    ]
    assert [each for each in messages if isinstance(each, Truncate)] == [
        Truncate((part.oid,), TruncateOption(0)),
        Truncate((item.oid, part.oid), TruncateOption.CASCADE | TruncateOption.RESTART_IDENTITY),
    ]
    assert [each for each in messages if isinstance(each, LogicalMessage)] == [
        LogicalMessage(0, "ours", b"inside", is_transactional=True),
        LogicalMessage(0, "ours", b"\0\xff", is_transactional=False),
    ]
    assert [each for each in messages if isinstance(each, Origin)] == [Origin(0, "elsewhere")]


def test_the_transactions_that_a_server_sent_in_parts_are_decoded() -> None:
    messages = without_empty_parts(without_chance(decode_all(golden().in_parts)))
    ends = [each for each in messages if isinstance(each, StreamAbort | StreamCommit)]
    lost, kept, gone = ends
    assert isinstance(lost, StreamAbort)
    assert lost.subxid != lost.xid
    assert isinstance(kept, StreamCommit)
    assert kept.xid == lost.xid
    assert isinstance(gone, StreamAbort)
    assert gone.xid == gone.subxid != kept.xid
    firsts = [each.xid for each in messages if isinstance(each, StreamStart) and each.is_first]
    assert firsts == [kept.xid, gone.xid]
    of_lost = [each for each in messages if getattr(each, "xid", None) == lost.subxid]
    assert [type(each) for each in of_lost] == [Insert]
