"""Many messages at once say what they say one by one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.bulk_decoder import DecodedFrames, decode_frames
from frazil.codec.pgoutput.frames import Frames
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamStart,
    StreamStop,
    Truncate,
    TruncateOption,
    Update,
    Value,
    ValueKind,
)
from tests.support.codec.fuzz import bent
from tests.support.pgoutput.frames import NULL, UNCHANGED, encode_message, text
from tests.support.pgoutput.golden import golden
from tests.support.pgoutput.histories import (
    DecodedHistory,
    Histories,
    SlowReplay,
    chance_of,
    decoded_history,
)
from tests.support.sampling import examples

SEEDS = st.integers(0, 2**32)
ITEM = Relation(
    16_500,
    "public",
    "item",
    ReplicaIdentity.DEFAULT,
    (
        RelationColumn("id", 23, -1, is_key=True),
        RelationColumn("word", 25, -1, is_key=False),
    ),
)
KEY = OldImage(ImageKind.OLD_KEY, (text("1"), NULL))
BEGIN = Begin(100, 5, 7)
COMMIT = Commit(100, 150, 5)


def decoded(*messages: Message, inside_transaction: bool = False) -> DecodedFrames:
    frames = Frames.of([encode_message(each) for each in messages])
    return decode_frames(frames, inside_transaction=inside_transaction)


def fast(messages: list[bytes]) -> DecodedHistory | None:
    try:
        return decoded_history(decode_frames(Frames.of(messages)))
    except MalformedFileError:
        return None


def slow(messages: list[bytes]) -> DecodedHistory | None:
    try:
        return SlowReplay().replay(messages)
    except MalformedFileError:
        return None


@given(SEEDS)
@examples(150)
def test_a_history_decodes_as_it_does_one_by_one(seed: int) -> None:
    messages = [encode_message(each) for each in Histories(chance_of(seed)).history()]
    found_history = fast(messages)
    assert found_history is not None
    assert found_history == slow(messages)


@given(SEEDS)
@examples(250)
def test_a_bent_history_is_refused_when_it_is_refused_one_by_one(seed: int) -> None:
    chance = chance_of(seed)
    messages = [encode_message(each) for each in Histories(chance).history()]
    chosen = chance.randrange(len(messages))
    messages[chosen] = bent(messages[chosen], chance)
    if chance.random() < 0.2:
        del messages[chance.randrange(len(messages))]
    assert fast(messages) == slow(messages)


@given(SEEDS)
@settings(max_examples=20)
def test_a_row_cut_or_prolonged_is_refused(seed: int) -> None:
    row = Update(ITEM.oid, KEY, (text("2"), text("x" * (seed % 20))))
    before = [encode_message(each) for each in (ITEM, BEGIN)]
    encoded = encode_message(row)
    for length in range(len(encoded)):
        with pytest.raises(MalformedFileError):
            decode_frames(Frames.of([*before, encoded[:length]]))
    with pytest.raises(MalformedFileError, match="expected the end of the message"):
        decode_frames(Frames.of([*before, encoded + b"n"]))
    assert decode_frames(Frames.of([*before, encoded])).ends_inside_transaction


@pytest.mark.parametrize("part", ["complete", "in_parts"])
def test_what_a_server_sent_decodes_as_it_does_one_by_one(part: str) -> None:
    messages = list(getattr(golden(), part))
    found_history = fast(messages)
    assert found_history is not None
    assert found_history == slow(messages)


def test_columns_are_arrow_texts_and_unchanged_is_not_null() -> None:
    found = decoded(
        ITEM,
        BEGIN,
        Insert(ITEM.oid, (text("1"), text("ice ❄"))),
        Insert(ITEM.oid, (text("2"), NULL)),
        Update(ITEM.oid, None, (text("1"), UNCHANGED)),
        Delete(ITEM.oid, OldImage(ImageKind.OLD_KEY, (text("2"), NULL))),
        COMMIT,
    )
    (changes,) = found.changes
    assert changes.relation == ITEM
    assert len(changes) == 4
    assert bytes(changes.kinds) == b"IIUD"
    identity, word = changes.new.columns
    assert changes.new.changes.tolist() == [0, 1, 2]
    assert identity.values.equals(pa.array(["1", "2", "1"]))
    assert word.values.equals(pa.array(["ice ❄", None, None]))
    assert word.is_unchanged.tolist() == [False, False, True]
    assert changes.old.changes.tolist() == [3]
    assert changes.old.columns[0].values.equals(pa.array(["2"]))
    assert changes.old_kinds.tolist() == [ImageKind.OLD_KEY]
    identity.values.validate(full=True)
    word.values.validate(full=True)


def test_changes_and_truncations_are_counted_in_each_transaction_and_nothing_else() -> None:
    row = Insert(ITEM.oid, (text("1"), NULL))
    emptied = Truncate((ITEM.oid,), TruncateOption(0))
    note = LogicalMessage(1, "p", b"", is_transactional=True)
    found = decoded(
        *(ITEM, Begin(100, 5, 7), row, note, ITEM, row, emptied, Commit(100, 150, 5)),
        *(Begin(200, 6, 8), row, emptied, row),
    )
    counted = [2, 5, 6, 9, 10, 11]
    assert found.ordinals[counted].tolist() == [0, 1, 2, 0, 1, 2]
    assert found.transactions[counted].tolist() == [0, 0, 0, 1, 1, 1]
    assert found.transactions[0] == -1
    assert found.begins.final_lsns.tolist() == [100, 200]
    assert found.commits.end_lsns.tolist() == [150]
    assert found.others[6] == emptied
    assert found.ends_inside_transaction


def test_a_transaction_goes_on_in_the_next_frames() -> None:
    row = Insert(ITEM.oid, (text("1"), NULL))
    found = decoded(ITEM, row, row, COMMIT, Begin(200, 6, 8), row, inside_transaction=True)
    assert found.transactions[[1, 2, 5]].tolist() == [-1, -1, 0]
    assert found.ordinals[[1, 2, 5]].tolist() == [0, 1, 0]
    with pytest.raises(MalformedFileError, match="allowed here"):
        decoded(ITEM, row, row, COMMIT)


def test_a_table_that_changes_its_shape_has_changes_of_both_shapes() -> None:
    narrow = Relation(ITEM.oid, "public", "item", ReplicaIdentity.DEFAULT, ITEM.columns[:1])
    found = decoded(
        *(ITEM, BEGIN, Insert(ITEM.oid, (text("1"), NULL))),
        *(narrow, Insert(ITEM.oid, (text("2"),))),
        *(ITEM, Insert(ITEM.oid, (text("3"), NULL)), COMMIT),
    )
    wide, thin = found.changes
    assert (wide.relation, thin.relation) == (ITEM, narrow)
    assert wide.numbers.tolist() == [2, 6]
    assert thin.numbers.tolist() == [4]


def test_a_streamed_row_names_its_transaction_and_its_subtransaction() -> None:
    found = decoded(
        StreamStart(900, is_first=True),
        replace(ITEM, xid=900),
        Insert(ITEM.oid, (text("1"), NULL), xid=901),
        StreamStop(),
        StreamAbort(900, 901),
        BEGIN,
        Insert(ITEM.oid, (text("2"), NULL)),
        COMMIT,
    )
    (changes,) = found.changes
    assert changes.relation == ITEM
    assert changes.xids.tolist() == [901, 0]
    assert found.stream_xids[changes.numbers].tolist() == [900, 0]
    assert found.transactions[changes.numbers].tolist() == [-1, 0]
    assert found.others[4] == StreamAbort(900, 901)


def test_a_table_without_columns_has_rows() -> None:
    bare = Relation(9, "public", "bare", ReplicaIdentity.NOTHING, ())
    (changes,) = decoded(bare, BEGIN, Insert(9, ()), Insert(9, ()), COMMIT).changes
    assert len(changes) == 2
    assert changes.new.columns == ()


def test_no_messages_say_nothing() -> None:
    assert decoded_history(decode_frames(Frames.of([]))) == DecodedHistory()


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([BEGIN, Insert(1, ())], "a relation described before"),
        ([ITEM, BEGIN, Insert(ITEM.oid, (NULL,))], "2 columns as the relation has, found 1"),
        ([BEGIN, BEGIN], "allowed here"),
        ([COMMIT], "allowed here"),
        ([ITEM, Insert(ITEM.oid, (NULL, NULL))], "allowed here"),
        ([Truncate((1,), TruncateOption(0))], "allowed here"),
        ([BEGIN, StreamStart(1, is_first=True)], "allowed here"),
        ([StreamStop()], "allowed here"),
        ([StreamStart(1, is_first=True), BEGIN], "allowed here"),
        ([StreamStart(1, is_first=True)], "the end of a part"),
        ([BEGIN, Commit(101, 150, 5)], "the transaction that began, found another"),
        ([BEGIN, Commit(100, 150, 6)], "the transaction that began, found another"),
        (
            [ITEM, BEGIN, Insert(ITEM.oid, (NULL, Value(ValueKind.BINARY, b"secret")))],
            "column 1 to be of kind n, u or t",
        ),
    ],
)
def test_what_cannot_be_is_refused_without_showing_a_value(
    messages: list[Message], complaint: str
) -> None:
    with pytest.raises(MalformedFileError, match=complaint) as refused:
        decoded(*messages)
    assert "secret" not in repr(refused.value)
    # A cause would be printed with it.
    assert refused.value.__cause__ is None


def test_a_refusal_names_its_offset_in_the_frames() -> None:
    first = encode_message(ITEM)
    with pytest.raises(MalformedFileError, match="found the kind 0x7a") as unknown:
        decode_frames(Frames.of([first, b"z"]))
    assert unknown.value.offset == len(first)
    with pytest.raises(MalformedFileError, match="expected a message, found no bytes"):
        decode_frames(Frames.of([first, b""]))
    with pytest.raises(MalformedFileError, match="expected 0 or 1") as rare:
        decode_frames(Frames.of([first, b"M\2"]))
    assert rare.value.offset == len(first) + 1
    row = encode_message(Insert(ITEM.oid, (text("1"), Value(ValueKind.BINARY, b"?"))))
    begin = encode_message(BEGIN)
    with pytest.raises(MalformedFileError, match="n, u or t") as binary:
        decode_frames(Frames.of([first, begin, row, row]))
    assert binary.value.offset == len(first + begin + row) - 6
    flags = bytearray(encode_message(COMMIT))
    flags[1] = 1
    with pytest.raises(MalformedFileError, match="0 for the flags") as flagged:
        decode_frames(Frames.of([begin, bytes(flags)]))
    assert flagged.value.offset == len(begin) + 1


def test_text_is_handed_on_whatever_its_encoding() -> None:
    row = Insert(ITEM.oid, (text("1"), Value(ValueKind.TEXT, b"caf\xe9")))
    (changes,) = decoded(ITEM, BEGIN, row, COMMIT).changes
    assert changes.new.columns[1].values.view(pa.binary()).to_pylist() == [b"caf\xe9"]


def test_many_rows_of_many_tables_are_each_where_they_belong() -> None:
    tables = [
        Relation(oid, "s", f"t{oid}", ReplicaIdentity.DEFAULT, ITEM.columns)
        for oid in range(1, 301)
    ]
    rows = [Insert(1 + n * 7 % 300, (text(str(n)), text("x" * (n % 40)))) for n in range(3000)]
    found = decoded(*tables, BEGIN, *rows, COMMIT)
    assert [changes.relation for changes in found.changes] == tables
    for changes in found.changes:
        expected = [n for n in range(3000) if 1 + n * 7 % 300 == changes.relation.oid]
        assert changes.new.columns[0].values.to_pylist() == list(map(str, expected))
        assert (changes.numbers - 301).tolist() == expected


def test_frames_lie_inside_their_data() -> None:
    good = Frames.of([b"ab", b"c"])
    assert (len(good), good.message(0), good.message(1)) == (2, b"ab", b"c")
    with pytest.raises(ValueError, match="before its margin"):
        Frames(b"abc", good.offsets)
