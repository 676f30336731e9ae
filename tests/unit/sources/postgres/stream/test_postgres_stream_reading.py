"""Segments are read completely or refused, and many changes become what they do one by one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.pgoutput.frames import SegmentAssembly
from frazil.codec.pgoutput.messages import (
    EPOCH_MICROSECONDS,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    StreamStart,
    StreamStop,
    Value,
    ValueKind,
)
from frazil.errors import MalformedChangeError, UnrepresentableValueError
from frazil.model.postgres.lsn import format_lsn
from frazil.model.postgres.types import PostgresType, plan_column
from frazil.model.schema.types import Primitive
from frazil.sources.postgres.stream.reader import MOST_ROWS, StreamReader
from frazil.sources.postgres.stream.segment import OpenTransaction, SegmentPart, ShapeReading
from frazil.sources.protocol import Split, TableRows
from tests.support.pgoutput.frames import text
from tests.support.pgoutput.golden import decode_all, golden
from tests.support.pgoutput.histories import chance_of
from tests.support.postgres.changes.change_histories import (
    BAD_SHAPE_READINGS,
    FOREIGN,
    NUMERIC,
    READINGS,
    ChangeHistories,
    ShapedColumn,
    reading,
    shape,
)
from tests.support.postgres.changes.change_model import SlowReading
from tests.support.postgres.stream import (
    COMMITTED,
    DEFAULT,
    ID,
    ITEM,
    LSN,
    OID,
    TIME,
    Read,
    Segments,
    failure,
    new,
    old_key_of,
    read,
    read_parts,
    segment,
    transaction,
)
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.postgres.changes.change_model import Outcome

SEEDS = st.integers(0, 2**32)


# --- values that are refused ---


def test_a_value_that_does_not_fit_stops_its_table_where_it_is() -> None:
    priced = shape(7, ID, ShapedColumn(4, "price", NUMERIC))
    table = reading("public.priced", priced, key=(1,))
    found = read(
        priced.relation,
        DEFAULT.relation,
        *transaction(Insert(7, (text("1"), text("1.50"))), Insert(OID, new("1", "a", "1"))),
        *transaction(Delete(7, old_key_of(priced, "1")), lsn=LSN + 1),
        *transaction(Insert(7, (text("2"), text("NaN"))), lsn=LSN + 2),
        *transaction(Insert(7, (text("3"), text("NaN"))), lsn=LSN + 3),
        tables=(table, ITEM),
    )
    error = found.failures["public.priced"]
    assert isinstance(error, UnrepresentableValueError)
    assert error.position == format_lsn(LSN + 2)
    assert "NaN" not in str(error).split(":")[0]
    assert found.rows.keys() == {"public.item"}


def test_text_that_postgres_does_not_print_stops_its_table_without_being_shown() -> None:
    error = failure(DEFAULT.relation, *transaction(Insert(OID, new("1", "a", "0xS3CRET"))))
    assert isinstance(error, MalformedChangeError)
    assert "S3CRET" not in str(error)


def test_text_that_is_no_utf8_stops_its_table_and_no_other() -> None:
    other = reading("public.other", FOREIGN, key=(1,))
    latin = Value(ValueKind.TEXT, b"caf\xe9")
    for column in range(3):
        values = tuple(latin if at == column else text("1") for at in range(3))
        found = read(
            DEFAULT.relation,
            FOREIGN.relation,
            *transaction(Insert(10, (text("1"), text("é"))), Insert(OID, values)),
            tables=(ITEM, other),
        )
        assert isinstance(found.failures["public.item"], MalformedChangeError)
        assert found.rows.keys() == {"public.other"}


def test_a_table_that_failed_has_no_rows_of_later_segments() -> None:
    bad = [DEFAULT.relation, *transaction(Insert(OID, new("1", "a", "?")))]
    good = [DEFAULT.relation, *transaction(Insert(OID, new("1", "a", "1")), lsn=LSN + 9)]
    contents = {"bad": segment(bad), "good": segment(good)}
    parts = (SegmentPart(name="bad"), SegmentPart(name="good"))
    assert read_parts(contents, *parts, tables=(ITEM,)).rows == {}
    assert len(read_parts(contents, parts[1], tables=(ITEM,)).rows["public.item"]) == 1


# --- segments that are refused ---


def test_bytes_that_do_not_decode_are_reported_with_segment_and_offset() -> None:
    content = segment([DEFAULT.relation, *transaction(Insert(OID, new("1", "s3cret", "1")))])
    damaged = content.replace(b"s3cret", b"s3cre7")
    with pytest.raises(MalformedChangeError, match=r"'one' of the spool, at byte \d+") as caught:
        read_parts({"one": damaged}, SegmentPart(name="one"), tables=(ITEM,))
    assert "s3cre" not in str(caught.value)


def test_parts_of_transactions_that_have_not_committed_are_refused() -> None:
    streamed = Insert(OID, new("1", "a", "1"), xid=5)
    described = replace(DEFAULT.relation, xid=5)
    with pytest.raises(MalformedChangeError, match="complete transactions"):
        read(StreamStart(5, is_first=True), described, streamed, StreamStop())


def test_another_transaction_than_the_open_one_is_refused() -> None:
    with pytest.raises(MalformedChangeError, match="the transaction that was open"):
        read(Commit(LSN, LSN + 48, 0), opens=OpenTransaction(LSN + 1, 0))


def test_a_split_of_another_source_is_refused() -> None:
    with pytest.raises(TypeError, match="SegmentPart"):
        list(StreamReader(Segments(), ()).read(Split(("a",), 1)))


# --- sizes and travel ---


def test_many_rows_come_in_slices_and_none_as_nothing() -> None:
    count = MOST_ROWS + 1
    rows = [Insert(OID, new("1", "a", "1"))] * count
    found = read(DEFAULT.relation, *transaction(*rows))
    assert [each.num_rows for each in found.batches] == [MOST_ROWS, 1]
    assert [each["ordinal"] for each in found.rows["public.item"]] == list(range(count))
    assert read() == read(DEFAULT.relation, *transaction()) == Read()


def test_a_reader_and_its_splits_travel_to_tasks() -> None:
    content = segment([DEFAULT.relation, *transaction(Insert(OID, new("1", "a", "1")))])
    part = SegmentPart(name="one", opens=OpenTransaction(1, 2), begins_ordinals={OID: 3})
    reader = StreamReader(Segments({"one": content}), (ITEM,))
    again, split = pickle.loads(pickle.dumps((reader, Split((part,), 1))))
    assert split == Split((part,), 1)
    assert again == reader
    (made,) = again.read(Split((SegmentPart(name="one"),), 1))
    assert isinstance(made, TableRows)
    assert made.rows.num_rows == 1


def test_a_shape_has_a_number_and_a_plan_for_every_column() -> None:
    with pytest.raises(ValueError, match="3 columns"):
        replace(DEFAULT, numbers=(1, 2))


def test_times_count_from_the_year_2000() -> None:
    assert int(TIME.timestamp()) * 1_000_000 + 5 == EPOCH_MICROSECONDS + COMMITTED


# --- many at once are as one by one ---


def check(found: Read, expected: Mapping[str, Outcome]) -> None:
    failed = {name for name, each in expected.items() if each.failures}
    assert found.failures.keys() == failed
    for name in failed:
        reasons = {(format_lsn(at), error) for at, error in expected[name].failures}
        error = found.failures[name]
        assert (error.position, type(error)) in reasons
    assert found.rows == {name: each.rows for name, each in expected.items() if not each.failures}


@given(SEEDS, st.booleans())
def test_many_changes_become_what_they_do_one_by_one(seed: int, is_honest: bool) -> None:  # noqa: FBT001
    chance = chance_of(seed)
    messages = ChangeHistories(chance, is_honest=is_honest).history()
    positions = [each.final_lsn for each in messages if isinstance(each, Begin)]
    tables = tuple(
        replace(each, after=chance.choice([0, 0, *positions]))
        for each in (READINGS if is_honest else BAD_SHAPE_READINGS)
    )
    expected = SlowReading(tables).read(messages)
    assert not is_honest or not any(each.failures for each in expected.values())
    check(read(*messages, tables=tables), expected)


@given(SEEDS)
@examples(50)
def test_a_transaction_cut_into_segments_has_the_same_rows(seed: int) -> None:
    chance = chance_of(seed)
    histories = ChangeHistories(chance, is_honest=True)
    described = histories.descriptions()
    messages = [*described, *histories.transaction(), *histories.transaction()]
    begin = messages[4]
    assert isinstance(begin, Begin)
    end = next(at for at, each in enumerate(messages) if isinstance(each, Commit))
    cut = chance.randrange(5, end + 1)
    first = SlowReading(READINGS)
    first.read(messages[:cut])
    known = {each.oid: each for each in messages[:cut] if isinstance(each, Relation)}
    contents = {
        "a": segment(messages[:cut]),
        "b": segment([*known.values(), *messages[cut:]]),
    }
    opens = OpenTransaction(begin.final_lsn, begin.committed_at)
    parts = (
        SegmentPart(name="a"),
        SegmentPart(name="b", opens=opens, begins_ordinals=first.counts),
    )
    check(read_parts(contents, *parts, tables=READINGS), SlowReading(READINGS).read(messages))


def test_what_a_real_server_sent_becomes_the_history_that_was_lived() -> None:
    captured = golden().complete
    relations = list(
        dict.fromkeys(each for each in decode_all(captured) if isinstance(each, Relation))
    )
    tables = tuple(
        reading(name, *(shape_of(each) for each in relations if each.name == name), key=key)
        for name, key in (("item", (1,)), ("part", ()))
    )
    made = SegmentAssembly()
    content = made.add(list(captured)) + made.finish()
    found = read_parts({"one": content}, SegmentPart(name="one"), tables=tables)
    assert not found.failures
    assert [
        (each["operation"], each["1"], each["unchanged"], each["previous_key"])
        for each in found.rows["item"]
    ] == [
        ("INSERT", "1", None, None),
        ("INSERT", "2", None, None),
        ("INSERT", "3", None, None),
        ("UPDATE", "3", [4], None),
        ("DELETE", "3", None, None),
        ("INSERT", "4", [4], {"1": "3"}),
        ("DELETE", "1", None, None),
        ("INSERT", "5", None, {"1": "1"}),
        ("DELETE", "2", None, None),
        ("TRUNCATE", None, None, None),
    ]
    assert [(each["operation"], each["1"], each["2"]) for each in found.rows["part"]] == [
        ("INSERT", "4", "1"),
        ("INSERT", None, "2"),
        ("UPDATE", "5", "1"),
        ("DELETE", None, "2"),
        ("DELETE", "5", "1"),
        ("INSERT", "5", "3"),
        ("TRUNCATE", None, None),
        ("TRUNCATE", None, None),
        ("INSERT", None, "9"),
    ]
    assert found.rows["part"][5]["3"] == "{1,NULL}"


def shape_of(relation: Relation) -> ShapeReading:
    """A shape whose columns are text and numbered as they come."""
    plans = (
        plan_column(each.name, PostgresType(each.type_oid, "any"), declared=Primitive.STRING)
        for each in relation.columns
    )
    numbers = range(1, len(relation.columns) + 1)
    return ShapeReading(relation=relation, numbers=tuple(numbers), plans=tuple(plans))
