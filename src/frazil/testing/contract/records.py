"""The contract's part about records that are no rows, and about layouts that a source gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.marker import moved_from
from frazil.sources.protocol import ChangeColumn
from frazil.testing.contract.replay import ROOMY, TIGHT, CaptureUnderTest, read
from frazil.testing.contract.suite import COLUMNS, ITEMS, ORDERS, begun, insert, names

if TYPE_CHECKING:
    from frazil.sources.protocol import Batch, Limit
    from frazil.testing.contract.under_test import LayoutSource, RejectingSource

CANARY = b"canary-of-a-row"


def planned(capture: CaptureUnderTest, limit: Limit = ROOMY) -> Batch:
    """The next batch with rows; those before it only move the acknowledgement."""
    while (batch := capture.next_batch(limit)) is not None and not batch.parts:
        capture.commit(batch)
    assert batch is not None
    return batch


class RejectContract:
    """For sources that may hold records which are no rows."""

    def test_a_rejected_record_comes_next_to_the_rows_of_its_table(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1, "before"), insert(ITEMS, 1))
        subject.reject(ORDERS, CANARY)
        subject.transact(insert(ORDERS, 2, "after"))
        readings = capture.commit(planned(capture))
        assert names(readings.rows[ORDERS]) == ["before", "after"]
        (record,) = readings.rejected
        assert (record.table, record.payload) == (ORDERS, CANARY)
        assert record.message
        assert "canary" not in repr(record)
        assert not readings.failures

    def test_a_rejected_record_is_the_same_however_often_it_is_read(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        for payload in (b"one", b"\0", b"one"):
            subject.reject(ORDERS, payload)
        batch = planned(capture)
        first = read(batch).rejected
        assert sorted(each.payload for each in first) == [b"\0", b"one", b"one"]
        assert read(batch, reversed(batch.splits)).rejected == first
        capture.restart()
        assert read(planned(capture)).rejected == first

    def test_offsets_of_rejected_records_rise_from_batch_to_batch(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        for number in range(6):
            subject.reject((ORDERS, ITEMS)[number % 2], b"%d" % number)
            subject.transact(insert(ORDERS, number), insert(ITEMS, number))
        reached: dict[str, int] = {}
        count = 0
        while (batch := capture.next_batch(TIGHT)) is not None:
            records = capture.commit(batch).rejected
            assert all(each.offset > reached.get(each.where, -1) for each in records)
            reached |= {each.where: each.offset for each in records}
            count += len(records)
        assert count == 6
        assert len(capture.received(ORDERS)) == 6

    def test_what_a_table_rejects_is_left_out_with_its_rows(self, subject: RejectingSource) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        subject.reject(ITEMS, b"later")
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        assert not capture.commit(planned(capture)).rejected
        capture.paused = set()
        assert [each.payload for each in capture.commit(planned(capture)).rejected] == [b"later"]

    def test_a_table_with_nothing_but_rejected_records_has_a_part(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.reject(ORDERS, CANARY)
        batch = planned(capture)
        assert [part.table.name for part in batch.parts] == [ORDERS]
        readings = capture.commit(batch)
        assert len(readings.rejected) == 1
        assert not readings.rows.get(ORDERS)
        assert batch.end is not None
        assert moved_from(capture.acknowledged, batch.end) == batch.end


class LayoutContract:
    """For sources that say what a table has next to their columns."""

    def test_a_table_of_records_needs_none_of_our_columns(self, subject: LayoutSource) -> None:
        subject.add_records_table(ORDERS, COLUMNS)
        capture = CaptureUnderTest(subject)
        capture.begin(ORDERS)
        (table,) = capture.source.discover()
        assert table.layout.columns == ()
        assert not table.key
        assert all(each.required for each in table.columns)
        subject.transact(insert(ORDERS, 1, note="x"), insert(ORDERS, 1, note="x"))
        batch = planned(capture)
        assert [part.table.layout for part in batch.parts] == [table.layout]
        capture.commit(batch)
        rows = capture.received(ORDERS)
        assert [row["1"] for row in rows] == [1, 1]
        # Reports count rows by it, whatever a table shows.
        assert {row[ChangeColumn.OPERATION] for row in rows} == {"INSERT"}
