"""The contract's part about tables that change, are another one, or cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model.schema.types import Primitive
from frazil.sources.protocol import ChangeColumn
from frazil.testing.contract.replay import CaptureUnderTest
from frazil.testing.contract.suite import COLUMNS, ITEMS, ORDERS, begun, insert
from frazil.testing.in_memory_database import DeleteRow, InsertRow, UpdateRow

if TYPE_CHECKING:
    from frazil.model.source_table import SourceTable
    from frazil.testing.contract.under_test import AlterableSource, SpoilableSource


def discovered(capture: CaptureUnderTest, name: str) -> SourceTable:
    (found,) = [each for each in capture.source.discover() if each.name == name]
    return found


def number_of(table: SourceTable, column: str) -> int:
    (found,) = [each.number for each in table.columns if each.name == column]
    return found


class AlterContract:
    """For sources whose tables change; all of it inside one batch, where it is hardest."""

    def test_a_column_that_was_added_is_there_for_the_first_row_that_needs_it(
        self, subject: AlterableSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        subject.add_column(ORDERS, "amount", Primitive.LONG)
        subject.transact(InsertRow(ORDERS, {"id": 2, "amount": 12}))
        capture.catch_up()
        table = discovered(capture, ORDERS)
        amount = str(number_of(table, "amount"))
        assert table.highest_number == int(amount)
        assert [row.get(amount) for row in capture.received(ORDERS)] == [None, 12]
        capture.expect_the_truth()

    def test_rows_older_than_a_column_show_its_default(self, subject: AlterableSource) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        subject.transact(insert(ORDERS, 2), insert(ORDERS, 3))
        subject.transact(UpdateRow(ORDERS, (1,), {"name": "b"}), DeleteRow(ORDERS, (3,)))
        subject.add_column(ORDERS, "amount", Primitive.LONG, default=7)
        subject.transact(InsertRow(ORDERS, {"id": 4, "amount": None}))
        capture.catch_up()
        table = discovered(capture, ORDERS)
        assert table.column(number_of(table, "amount")).default == 7
        capture.expect_the_truth()

    def test_a_column_keeps_its_number_under_another_name(self, subject: AlterableSource) -> None:
        capture = begun(subject, ORDERS)
        before = number_of(discovered(capture, ORDERS), "name")
        subject.transact(insert(ORDERS, 1, "old"))
        subject.rename_column(ORDERS, "name", "title")
        subject.transact(InsertRow(ORDERS, {"id": 2, "title": "new"}))
        capture.catch_up()
        assert number_of(discovered(capture, ORDERS), "title") == before
        assert [row[str(before)] for row in capture.received(ORDERS)] == ["old", "new"]
        capture.expect_the_truth()

    def test_the_number_of_a_dropped_column_is_not_given_again(
        self, subject: AlterableSource
    ) -> None:
        capture = begun(subject, ORDERS)
        before = number_of(discovered(capture, ORDERS), "note")
        subject.transact(insert(ORDERS, 1, note="gone"))
        subject.drop_column(ORDERS, "note")
        subject.add_column(ORDERS, "note", Primitive.STRING)
        subject.transact(InsertRow(ORDERS, {"id": 2, "note": "new"}))
        capture.catch_up()
        after = number_of(discovered(capture, ORDERS), "note")
        assert after != before
        assert str(before) not in capture.received(ORDERS)[-1]
        assert [row.get(str(after)) for row in capture.received(ORDERS)] == [None, "new"]
        capture.expect_the_truth()

    def test_what_was_unchanged_in_a_dropped_column_is_not_reported(
        self, subject: AlterableSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        subject.transact(UpdateRow(ORDERS, (1,), {"name": "b"}, unsent=("note",)))
        subject.drop_column(ORDERS, "note")
        subject.transact(InsertRow(ORDERS, {"id": 2}))
        capture.catch_up()
        assert all(row[ChangeColumn.UNCHANGED] is None for row in capture.received(ORDERS))
        capture.expect_the_truth()

    def test_a_widened_column_has_all_rows_in_its_new_type(self, subject: AlterableSource) -> None:
        subject.add_table(ORDERS, {"id": Primitive.LONG, "amount": Primitive.INT}, ("id",))
        capture = CaptureUnderTest(subject)
        capture.begin(ORDERS)
        subject.transact(InsertRow(ORDERS, {"id": 1, "amount": 1}))
        subject.widen(ORDERS, "amount", Primitive.LONG)
        subject.transact(InsertRow(ORDERS, {"id": 2, "amount": 1 << 40}))
        capture.catch_up()
        assert capture.received(ORDERS)[-1]["2"] == 1 << 40
        capture.expect_the_truth()

    def test_a_shape_that_changed_between_batches_reads_on(self, subject: AlterableSource) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        before = capture.markers[ORDERS]
        subject.add_column(ORDERS, "amount", Primitive.LONG)
        subject.rename_column(ORDERS, "name", "title")
        subject.transact(InsertRow(ORDERS, {"id": 2, "title": "b", "amount": 3}))
        capture.restart()
        capture.catch_up()
        assert capture.markers[ORDERS].shape != before.shape
        assert capture.markers[ORDERS].identity == before.identity
        capture.expect_the_truth()

    def test_a_table_that_was_recreated_has_another_identity_and_is_not_taken_for_the_old_one(
        self, subject: AlterableSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        capture.catch_up()
        subject.drop_table(ORDERS)
        subject.add_table(ORDERS, COLUMNS, ("id",))
        subject.transact(insert(ORDERS, 2), insert(ITEMS, 2))
        capture.restart()
        capture.catch_up()
        assert capture.unknown_tables() == {ORDERS}
        assert len(capture.received(ORDERS)) == 1
        assert len(capture.received(ITEMS)) == 2
        capture.copy(ORDERS)
        capture.catch_up()
        capture.expect_the_truth()

    def test_a_table_that_is_gone_is_wanted_and_does_not_keep_others(
        self, subject: AlterableSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1))
        subject.drop_table(ORDERS)
        subject.transact(insert(ITEMS, 1))
        capture.restart()
        capture.catch_up()
        assert len(capture.received(ITEMS)) == 1
        assert capture.source.selects(ORDERS)
        assert {each.name for each in capture.source.discover()} == {ITEMS}


class TroubleContract:
    """For sources that may hold what cannot be read."""

    def test_an_error_while_reading_one_table_is_a_failure_of_that_table(
        self, subject: SpoilableSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        subject.spoil(ORDERS)
        subject.transact(insert(ORDERS, 2), insert(ITEMS, 2))
        capture.catch_up()
        assert set(capture.failures) == {ORDERS}
        assert isinstance(capture.failures[ORDERS], FrazilError)
        # Perhaps what came before, if that was in a batch of its own; never what came after.
        assert len(capture.received(ORDERS)) <= 1
        assert len(capture.received(ITEMS)) == 2
        capture.restart()
        subject.transact(insert(ITEMS, 3))
        capture.catch_up()
        assert len(capture.received(ITEMS)) == 3
