"""What every source must do, the same way on each: one class for each thing a source may have.

A test module of a source derives a class from those that fit it and gives it a fixture
``subject``, a ``SourceUnderTest``.
"""

from __future__ import annotations

import pickle
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from frazil.errors import PositionLostError
from frazil.model.schema.types import Primitive
from frazil.sources.protocol import ChangeColumn, Progress
from frazil.testing.contract.replay import ROOMY, TIGHT, CaptureUnderTest, read, row_position
from frazil.testing.in_memory_database import DeleteRow, InsertRow, TruncateTable, UpdateRow

if TYPE_CHECKING:
    from frazil.sources.protocol import Batch
    from frazil.testing.contract.replay import Row
    from frazil.testing.contract.under_test import SourceUnderTest

ORDERS = "shop.orders"
ITEMS = "shop.items"
QUIET = "shop.quiet"
ABSENT = "shop.absent"
UNWANTED = "other.audit"

COLUMNS = {"id": Primitive.LONG, "name": Primitive.STRING, "note": Primitive.STRING}
ID, NAME, NOTE = "1", "2", "3"

# Larger than what a database keeps next to the other values, and hard to compress.
LARGE = "".join(sha256(str(number).encode()).hexdigest() for number in range(200))


def insert(table: str, number: int, name: str = "a", note: str | None = None) -> InsertRow:
    return InsertRow(table, {"id": number, "name": name, "note": note})


def names(rows: list[Row]) -> list[object]:
    return [row[NAME] for row in rows]


def operations(rows: list[Row]) -> list[object]:
    return [row[ChangeColumn.OPERATION] for row in rows]


def begun(subject: SourceUnderTest, *tables: str) -> CaptureUnderTest:
    """A capture of these tables, which are made for it."""
    for table in tables:
        subject.add_table(table, COLUMNS, ("id",) if subject.has_keys else ())
    capture = CaptureUnderTest(subject)
    capture.begin(*tables)
    return capture


class SourceContract:
    """For all of them."""

    def test_discover_names_exactly_the_tables_wanted(self, subject: SourceUnderTest) -> None:
        for name in (ORDERS, ITEMS, UNWANTED):
            subject.add_table(name, COLUMNS, ("id",) if subject.has_keys else ())
        found = subject.open().discover()
        assert {each.name for each in found} == {ORDERS, ITEMS}
        for table in found:
            assert {each.name: each.type for each in table.columns} == COLUMNS
            assert len({each.number for each in table.columns}) == len(COLUMNS)
            keys = [table.column(number).name for number in table.key]
            assert keys == (["id"] if subject.has_keys else [])

    def test_wants_answers_for_tables_that_are_not_there(self, subject: SourceUnderTest) -> None:
        subject.add_table(ORDERS, COLUMNS, ("id",) if subject.has_keys else ())
        source = subject.open()
        assert source.selects(ORDERS)
        assert source.selects(ABSENT)
        assert not source.selects(UNWANTED)

    def test_the_identity_stays_for_another_process(self, subject: SourceUnderTest) -> None:
        source = subject.open()
        identity = source.identity
        source.close()
        assert subject.open().identity == identity

    def test_every_change_comes_once_and_in_order_in_whatever_batches(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        for number in range(12):
            subject.transact(insert(ORDERS, number, name=str(number)), insert(ITEMS, number))
        capture.catch_up(TIGHT)
        assert names(capture.received(ORDERS)) == [str(number) for number in range(12)]
        positions = [row_position(row) for row in capture.received(ORDERS)]
        assert positions == sorted(set(positions))
        capture.expect_the_truth()

    def test_a_split_read_twice_gives_the_same_rows(self, subject: SourceUnderTest) -> None:
        batch = self._some_batch(subject)
        assert read(batch) == read(batch)

    def test_a_reader_and_its_splits_survive_pickling(self, subject: SourceUnderTest) -> None:
        batch = self._some_batch(subject)
        reader = pickle.loads(pickle.dumps(batch.reader))
        for split in batch.splits:
            travelled = pickle.loads(pickle.dumps(split))
            pairs = zip(batch.reader.read(split), reader.read(travelled), strict=True)
            assert all(one.table == other.table for one, other in pairs)
        everything = [pickle.loads(pickle.dumps(split)) for split in batch.splits]
        assert read(batch, everything) == read(batch)

    def test_splits_may_be_read_in_any_order(self, subject: SourceUnderTest) -> None:
        batch = self._some_batch(subject)
        assert read(batch, reversed(batch.splits)) == read(batch)

    def test_planning_again_without_acknowledging_gives_the_same_changes(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        subject.transact(insert(ORDERS, 2))
        first = capture.preview()
        assert {name: len(rows) for name, rows in first.items()} == {ORDERS: 2, ITEMS: 1}
        assert capture.preview() == first
        capture.restart()
        assert capture.preview() == first
        capture.catch_up()
        assert {name: capture.received(name) for name in first} == first

    def test_a_part_leads_from_the_marker_on_and_only_where_there_are_changes(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, QUIET)
        before = capture.markers[ORDERS].position
        subject.transact(insert(ORDERS, 1))
        (part,) = self._planned(capture).parts
        assert part.table.name == ORDERS
        assert part.start == before
        assert part.goal != before
        assert part.restart is None

    def test_a_table_skips_what_its_marker_covers(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1, "covered"), insert(ITEMS, 1, "new"))
        # Orders commits, and the process ends before items does.
        capture.commit(self._planned(capture), only={ORDERS})
        subject.transact(insert(ORDERS, 2, "later"))
        capture.restart()
        capture.catch_up()
        assert names(capture.received(ORDERS)) == ["covered", "later"]
        assert names(capture.received(ITEMS)) == ["new"]

    def test_a_table_that_is_not_requested_is_left_out_and_loses_nothing(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        for number in range(5):
            subject.transact(insert(ORDERS, number), insert(ITEMS, number, str(number)))
            capture.catch_up(TIGHT)
        assert len(capture.received(ORDERS)) == 5
        assert ITEMS not in capture.replays or not capture.received(ITEMS)
        capture.paused = set()
        capture.catch_up()
        assert names(capture.received(ITEMS)) == ["0", "1", "2", "3", "4"]
        assert len(capture.received(ORDERS)) == 5

    def test_nothing_to_do_is_none_and_never_an_empty_loop(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.add_table(UNWANTED, COLUMNS, ("id",) if subject.has_keys else ())
        subject.transact(insert(ORDERS, 1))
        subject.transact(insert(UNWANTED, 1))
        capture.catch_up()
        # What no one requested may move the acknowledgement, then there is nothing.
        for _ in range(5):
            batch = capture.next_batch()
            if batch is None:
                break
            assert not batch.parts
            capture.commit(batch)
        assert batch is None

    def test_nothing_is_planned_for_no_table(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        for position in (None, capture.acknowledged):
            batch = capture.next_batch(progress=Progress(acknowledged=position))
            assert batch is None or not (batch.parts or batch.splits)
        assert capture.source.plan_copy(()) is None

    def test_the_source_keeps_changes_from_the_given_position(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        assert capture.source.prepare([ORDERS], capture.ledger) == capture.acknowledged
        assert capture.next_batch() is None or capture.received(ORDERS)

    def test_the_newest_position_is_reached_once_its_changes_were_planned(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        subject.transact(insert(ORDERS, 2))
        newest = capture.source.newest()
        assert not capture.source.has_reached(newest)
        capture.catch_up()
        assert capture.source.has_reached(newest)
        assert len(capture.received(ORDERS)) == 2

    def test_waiting_ends_when_there_is_enough_or_time_is_up(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        assert not capture.source.wait(0.05, ROOMY)
        subject.transact(insert(ORDERS, 2))
        assert any(capture.source.wait(1.0, TIGHT) for _ in range(120))
        capture.catch_up()
        assert not capture.source.wait(0.05, TIGHT)

    def test_waiting_ends_when_it_is_woken(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        capture.catch_up()
        # From another thread, or before the wait has begun.
        for wake in (threading.Timer(0.2, capture.source.wake).start, capture.source.wake):
            wake()
            assert not capture.source.wait(600.0, ROOMY)
        assert not capture.source.wait(0.05, ROOMY)

    def test_the_further_a_position_the_less_is_kept_for_it(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note=LARGE))
        early = capture.acknowledged
        batch = self._planned(capture)
        capture.commit(batch)
        assert early is not None
        assert batch.end is not None
        late_kept, early_kept = (capture.source.kept_since(each) for each in (batch.end, early))
        assert 0 <= late_kept < early_kept

    def _some_batch(self, subject: SourceUnderTest) -> Batch:
        capture = begun(subject, ORDERS, ITEMS)
        for number in range(9):
            subject.transact(insert(ORDERS, number), insert(ITEMS, number, note=LARGE))
        return self._planned(capture)

    @staticmethod
    def _planned(capture: CaptureUnderTest) -> Batch:
        batch = capture.next_batch()
        while batch is not None and not batch.parts:
            # Partitions that begin are acknowledged first.
            capture.commit(batch)
            batch = capture.next_batch()
        assert batch is not None
        assert batch.parts
        return batch


class LogContract:
    """For sources with transactions in one log, which they keep until acknowledged."""

    def test_a_batch_never_splits_a_transaction(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        for number in range(0, 40, 4):
            changes = [insert(ORDERS, number + step) for step in range(4)]
            subject.transact(*changes, insert(ITEMS, number), insert(ITEMS, number + 1))
        seen: set[object] = set()
        while (batch := capture.next_batch(TIGHT)) is not None:
            rows = capture.commit(batch).rows
            for name, count in ((ORDERS, 4), (ITEMS, 2)):
                positions = [row[ChangeColumn.POSITION] for row in rows.get(name, [])]
                assert all(positions.count(each) == count for each in positions)
            assert {part.goal for part in batch.parts} <= {batch.end}
            found = {row[ChangeColumn.POSITION] for each in rows.values() for row in each}
            assert not found & seen
            seen |= found
        assert len(seen) == 10

    def test_a_table_takes_what_begins_exactly_at_its_marker(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        for name in ("before", "at", "after"):
            subject.transact(insert(ORDERS, len(name), name), insert(ITEMS, len(name), name))
        origin = capture.preview()[ORDERS][1][ChangeColumn.ORIGIN]
        assert isinstance(origin, str)
        rows = capture.preview(capture.progress_at(origin, ORDERS))
        assert names(rows[ORDERS]) == ["at", "after"]
        assert names(rows[ITEMS]) == ["before", "at", "after"]

    def test_the_rows_of_a_transaction_have_one_time_and_one_origin(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1), insert(ORDERS, 2))
        capture.catch_up()
        rows = [*capture.received(ORDERS), *capture.received(ITEMS)]
        for column in (ChangeColumn.POSITION, ChangeColumn.COMMITTED_AT, ChangeColumn.ORIGIN):
            assert len({row[column] for row in rows}) == 1
            assert rows[0][column] is not None

    def test_acknowledging_lets_the_source_forget(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        old = capture.ledger
        subject.transact(insert(ORDERS, 2, note=LARGE))
        capture.catch_up()
        assert capture.acknowledged is not None
        kept = capture.source.kept_since
        assert kept(capture.acknowledged) < kept(old.position)
        # What is requested again is lost, which is an error and never a silent gap.
        capture.restart()
        with pytest.raises(PositionLostError):
            capture.source.prepare([ORDERS], old)

    def test_a_ledger_ahead_of_the_source_is_believed(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "first"))
        while (batch := capture.next_batch()) is not None:
            capture.commit(batch, acknowledge=False)
        capture.restart()
        subject.transact(insert(ORDERS, 2, "second"))
        capture.catch_up()
        assert names(capture.received(ORDERS)) == ["first", "second"]

    def test_acknowledging_again_or_less_changes_nothing(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        early = capture.acknowledged
        subject.transact(insert(ORDERS, 2))
        capture.catch_up()
        for position in (capture.acknowledged, early):
            assert position is not None
            capture.source.acknowledge(position)
        subject.transact(insert(ORDERS, 3))
        capture.catch_up()
        assert len(capture.received(ORDERS)) == 3


class KeyContract:
    """For sources whose tables have keys, and rows that change and go."""

    def test_updates_and_deletes_come_with_their_keys(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1), insert(ORDERS, 2))
        subject.transact(UpdateRow(ORDERS, (1,), {"name": "b"}), DeleteRow(ORDERS, (2,)))
        capture.catch_up()
        rows = capture.received(ORDERS)
        assert operations(rows) == ["INSERT", "INSERT", "UPDATE", "DELETE"]
        assert [row[ID] for row in rows] == [1, 2, 1, 2]
        assert all(row[ChangeColumn.PREVIOUS_KEY] is None for row in rows)
        capture.expect_the_truth()

    def test_a_key_change_is_a_delete_and_an_insert_with_the_previous_key(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        subject.transact(UpdateRow(ORDERS, (1,), {"id": 7}))
        capture.catch_up()
        old, new = capture.received(ORDERS)[1:]
        assert operations([old, new]) == ["DELETE", "INSERT"]
        assert (old[ID], new[ID]) == (1, 7)
        assert new[ChangeColumn.PREVIOUS_KEY] == {ID: 1}
        assert old[ChangeColumn.PREVIOUS_KEY] is None
        assert row_position(old) < row_position(new)
        capture.expect_the_truth()

    def test_keys_exchanged_through_a_third_value(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "one"), insert(ORDERS, 2, "two"))
        steps = ((1, 3), (2, 1), (3, 2))
        subject.transact(*(UpdateRow(ORDERS, (old,), {"id": new}) for old, new in steps))
        capture.catch_up()
        capture.expect_the_truth()

    @pytest.mark.parametrize("new_key", [1, 7])
    def test_unchanged_columns_are_named_and_null(
        self, subject: SourceUnderTest, new_key: int
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note=LARGE))
        values = {"id": new_key, "name": "b"}
        subject.transact(UpdateRow(ORDERS, (1,), values, unsent=("note",)))
        capture.catch_up()
        row = capture.received(ORDERS)[-1]
        assert row[ChangeColumn.UNCHANGED] == [int(NOTE)]
        assert row[NOTE] is None
        assert all(each[ChangeColumn.UNCHANGED] is None for each in capture.received(ORDERS)[:-1])
        capture.expect_the_truth()

    def test_a_null_is_no_unchanged_value(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note=LARGE))
        subject.transact(UpdateRow(ORDERS, (1,), {"note": None}))
        capture.catch_up()
        assert capture.received(ORDERS)[-1][ChangeColumn.UNCHANGED] is None
        capture.expect_the_truth()

    def test_a_truncation_is_in_order(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        subject.transact(
            insert(ORDERS, 2), TruncateTable((ORDERS, ITEMS)), insert(ORDERS, 3), insert(ITEMS, 1)
        )
        capture.catch_up()
        assert operations(capture.received(ORDERS)) == ["INSERT", "INSERT", "TRUNCATE", "INSERT"]
        assert operations(capture.received(ITEMS)) == ["INSERT", "TRUNCATE", "INSERT"]
        capture.expect_the_truth()

    def test_a_table_without_a_key_has_no_previous_keys(self, subject: SourceUnderTest) -> None:
        subject.add_table(ORDERS, COLUMNS)
        capture = CaptureUnderTest(subject)
        capture.begin(ORDERS)
        subject.transact(insert(ORDERS, 1), insert(ORDERS, 1))
        capture.catch_up()
        (table,) = capture.source.discover()
        assert table.key == ()
        assert all(ChangeColumn.PREVIOUS_KEY not in row for row in capture.received(ORDERS))
        assert len(capture.received(ORDERS)) == 2
        capture.expect_the_truth()
