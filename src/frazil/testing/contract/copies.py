"""The contract's part about copies of tables, while others write."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from frazil.model.change import Operation
from frazil.sources.protocol import ChangeColumn
from frazil.testing.contract.replay import TIGHT, row_position
from frazil.testing.contract.suite import ABSENT, ITEMS, ORDERS, begun, insert, operations
from frazil.testing.in_memory_database import DeleteRow, UpdateRow

if TYPE_CHECKING:
    from frazil.testing.contract.under_test import SourceUnderTest
    from frazil.testing.in_memory_database import Change

# Enough to be met by several copies, few enough for a database that connects for each.
_WRITES = 100


class WholeReadContract:
    """For sources that can read a table from its first row to its last."""

    def test_a_copy_replaces_everything(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        subject.transact(insert(ORDERS, 2))
        batch = capture.source.plan_copy([ORDERS])
        assert batch is not None
        assert batch.end is None
        (part,) = batch.parts
        assert part.restart is not None
        rows = capture.commit(batch).rows[ORDERS]
        assert {row_position(row) for row in rows} == {(part.restart.position, 1)}
        assert {row[ChangeColumn.ORIGIN] for row in rows} == {part.restart.origin}
        assert operations(rows) == [Operation.READ] * 2
        assert [row[ChangeColumn.UNCHANGED] for row in rows] == [None, None]
        capture.source.plan_copy(())
        capture.expect_the_truth()
        # What it has read does not come again in the stream.
        capture.catch_up()
        assert operations(capture.received(ORDERS)) == ["INSERT", "READ", "READ"]

    def test_an_empty_table_is_copied_as_well(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        assert ORDERS in capture.markers
        assert capture.received(ORDERS) == []
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        capture.expect_the_truth()

    def test_several_tables_are_read_as_of_one_moment(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        left = {ORDERS, ITEMS}
        while left:
            batch = capture.source.plan_copy(left)
            assert batch is not None
            number = 2 + len(left)
            subject.transact(insert(ORDERS, number), insert(ITEMS, number))
            assert all(len(rows) == 1 for rows in capture.commit(batch).rows.values())
            left -= {part.table.name for part in batch.parts}
        assert len({each.position for each in capture.markers.values()}) == 1
        capture.source.plan_copy(())
        capture.catch_up()
        capture.expect_the_truth()

    def test_a_copy_and_the_changes_after_it_meet_whenever_rows_are_written(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(*(insert(ORDERS, number) for number in range(10)))
        batch = capture.source.plan_copy([ORDERS])
        assert batch is not None
        subject.transact(insert(ORDERS, 10, "between plan and read"))
        for number, split in enumerate(batch.splits):
            list(batch.reader.read(split))
            subject.transact(insert(ORDERS, 20 + number, "between reads"))
        capture.commit(batch)
        capture.source.plan_copy(())
        subject.transact(insert(ORDERS, 11, "after the commit"))
        capture.catch_up(TIGHT)
        capture.expect_the_truth()

    def test_a_copy_and_the_changes_after_it_meet_while_writes_go_on(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        writer = Thread(target=lambda: write_for_a_while(subject), daemon=True)
        writer.start()
        while writer.is_alive():
            capture.copy(ITEMS)
            batch = capture.next_batch()
            if batch is not None:
                capture.commit(batch)
            capture.copy(ORDERS)
        capture.catch_up()
        capture.expect_the_truth()
        assert len(capture.replays[ORDERS].rows) == _WRITES

    def test_a_table_that_is_not_there_is_not_an_empty_one(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        batch = capture.source.plan_copy([ABSENT])
        assert batch is None or not batch.parts


def write_for_a_while(subject: SourceUnderTest) -> None:
    for number in range(_WRITES):
        changes: list[Change] = [insert(ORDERS, number), insert(ITEMS, number)]
        if number and subject.has_keys:
            changes += [
                UpdateRow(ORDERS, (number - 1,), {"name": "b"}),
                DeleteRow(ITEMS, (number - 1,)),
            ]
        subject.transact(*changes)
