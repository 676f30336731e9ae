"""The contract's part about tables that begin live, partitions, and several processes on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pytest

from frazil.errors import LeaseLostError, PositionLostError
from frazil.model.source_table import TableBegin
from frazil.sources.protocol import ChangeColumn, PartitionFailure
from frazil.testing.contract.replay import ROOMY, TIGHT, CaptureUnderTest, read, row_position
from frazil.testing.contract.suite import COLUMNS, ITEMS, ORDERS, begun, insert, names
from frazil.testing.contract.under_test import SourceUnderTest

if TYPE_CHECKING:
    from frazil.sources.protocol import Batch, Source


class PartitionedSource(SourceUnderTest, Protocol):
    """One whose positions are offsets by partition; ``transact`` takes partitions in turn."""

    def open(self, worker: str = "one", *, most_partitions: int | None = None) -> Source:
        """The source of a process; others may have one at the same time."""

    def partitions_of(self, table: str) -> list[str]:
        """The names of a table's partitions."""

    def add_partition(self, table: str) -> None:
        """Give a table one more."""

    def damage(self, table: str) -> None:
        """Add a record whose bytes do not decode."""

    def expire(self, partition: str) -> None:
        """Drop all records that a partition has by now."""

    def end_lease(self, *partitions: str) -> None:
        """Let the leases of partitions expire."""

    def acknowledged(self, partition: str) -> int:
        """The offset that the source keeps for a partition."""


def offsets(position: object) -> Mapping[str, int]:
    assert isinstance(position, Mapping)
    return position


class LiveContract:
    """For sources whose tables begin live."""

    def test_a_table_says_that_it_begins_live(self, subject: SourceUnderTest) -> None:
        begun(subject, ORDERS)
        assert [each.begins for each in subject.open().discover()] == [TableBegin.STREAM]

    def test_a_table_without_a_position_gets_all_that_is_kept(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "a"), insert(ORDERS, 2, "b"))
        batches = capture.catch_up()
        assert [part.start for part in batches[0].parts] == [None]
        assert names(capture.received(ORDERS)) == ["a", "b"]

    def test_a_table_that_joins_later_leaves_the_others_where_they_are(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "a"))
        capture.catch_up()
        subject.add_table(ITEMS, COLUMNS)
        capture.begin(ITEMS)
        subject.transact(insert(ITEMS, 1, "b"), insert(ORDERS, 2, "c"))
        capture.catch_up()
        assert names(capture.received(ORDERS)) == ["a", "c"]
        assert names(capture.received(ITEMS)) == ["b"]

    def test_a_restart_brings_no_rows_and_then_all_that_is_kept(
        self, subject: SourceUnderTest
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "a"))
        capture.catch_up()
        subject.transact(insert(ORDERS, 2, "b"))
        batch = capture.source.plan_copy([ORDERS])
        assert batch is not None
        (part,) = batch.parts
        assert (batch.splits, batch.end) == ((), None)
        assert part.restart is not None
        capture.replays.pop(ORDERS)
        capture.commit(batch)
        capture.source.plan_copy(())
        capture.catch_up()
        # The first was acknowledged, and may be forgotten.
        assert names(capture.received(ORDERS))[-1] == "b"
        assert all(
            row_position(row)[0] >= part.restart.position for row in capture.received(ORDERS)
        )


class PartitionContract:
    """For sources with positions by partition; tables have three partitions."""

    def test_a_batch_names_the_partitions_that_it_moves(self, subject: PartitionedSource) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.catch_up()
        subject.transact(insert(ORDERS, 1))
        (batch,) = capture.catch_up()
        (part,) = batch.parts
        first = subject.partitions_of(ORDERS)[0]
        assert (part.goal, batch.end) == ({first: 1}, {first: 1})

    def test_records_are_in_order_in_each_partition_and_none_is_like_another(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        for number in range(20):
            subject.transact(insert(ORDERS, number))
        capture.catch_up(TIGHT)
        rows = capture.received(ORDERS)
        places = {(row[ChangeColumn.POSITION], row[ChangeColumn.ORDINAL]) for row in rows}
        assert len(places) == len(rows) == 20
        assert 0 not in {ordinal for _, ordinal in places}, "a TRUNCATE goes before"

    def test_a_table_that_fails_keeps_its_own_partitions_only(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        capture.catch_up()
        capture.paused = {ITEMS}
        for number in range(2, 8):
            subject.transact(insert(ORDERS, number), insert(ITEMS, number))
        capture.catch_up()
        orders = sum(map(subject.acknowledged, subject.partitions_of(ORDERS)))
        items = sum(map(subject.acknowledged, subject.partitions_of(ITEMS)))
        assert (orders, items) == (7, 1)
        capture.paused = set()
        capture.restart()
        capture.catch_up()
        assert sum(map(subject.acknowledged, subject.partitions_of(ITEMS))) == 7
        capture.expect_the_truth()

    def test_a_new_partition_is_acknowledged_to_its_oldest_record_before_one_is_read(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        subject.add_partition(ORDERS)
        *_, new = subject.partitions_of(ORDERS)
        subject.transact(*(insert(ORDERS, number) for number in range(2, 6)))
        batch = capture.next_batch()
        assert batch is not None
        assert batch.parts == ()
        assert offsets(batch.end)[new] == 0
        capture.commit(batch)
        capture.restart()
        capture.catch_up()
        assert offsets(capture.acknowledged)[new] == 1
        capture.expect_the_truth()

    def test_records_that_expired_are_a_gap_of_their_partition_alone(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "lost"), insert(ORDERS, 2, "kept"))
        first = capture.next_batch()
        assert first is not None
        # The partitions are known by then, and nothing of them was captured.
        capture.commit(first)
        expired, *_ = subject.partitions_of(ORDERS)
        subject.expire(expired)
        # It takes a later record to show that something is missing before it.
        subject.transact(insert(ORDERS, 3, "kept"), insert(ORDERS, 4, "behind"))
        batch = capture.next_batch()
        assert batch is not None
        (failure,) = batch.failures
        assert isinstance(failure, PartitionFailure)
        assert isinstance(failure.error, PositionLostError)
        assert (failure.table, failure.partition, failure.offset) == (ORDERS, expired, 0)
        assert names(read(batch).rows[ORDERS]) == ["kept", "kept"]
        # Once it is known, it is not reported again.
        known = replace(capture.progress, stopped={expired: 0})
        again = capture.source.plan(known, ROOMY)
        assert again is not None
        assert (again.failures, again.end) == ((), batch.end)

    def test_a_record_that_does_not_decode_stops_its_partition_there(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(*(insert(ORDERS, number, str(number)) for number in range(3)))
        subject.damage(ORDERS)
        subject.transact(*(insert(ORDERS, number, str(number)) for number in range(3, 7)))
        stopped, *_ = subject.partitions_of(ORDERS)
        first = capture.next_batch()
        assert first is not None
        capture.commit(first)
        batch = capture.next_batch()
        assert batch is not None
        found = [
            each
            for split in batch.splits
            for each in batch.reader.read(split)
            if isinstance(each, PartitionFailure)
        ]
        assert [(each.table, each.partition, each.offset) for each in found] == [
            (ORDERS, stopped, 1)
        ]
        capture.source.close()
        newest = capture.source.newest()
        known = replace(capture.progress, stopped={stopped: 1})
        batch = capture.source.plan(known, ROOMY)
        assert batch is not None
        assert offsets(batch.end)[stopped] == 1
        # The fifth is behind it.
        assert sorted(map(str, names(read(batch).rows[ORDERS]))) == list("012346")
        assert capture.source.has_reached(newest), "it is not waited for"

    def test_what_was_committed_and_not_recorded_is_acknowledged_without_rows(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        capture.catch_up()
        subject.transact(insert(ORDERS, 1))
        batch = capture.next_batch()
        assert batch is not None
        capture.commit(batch, only={ORDERS})
        capture.restart()
        again = capture.next_batch()
        assert again is not None
        assert (again.parts, again.end) == ((), batch.end)

    def test_what_was_recorded_and_not_acknowledged_is_acknowledged_by_the_next_process(
        self, subject: PartitionedSource
    ) -> None:
        capture = begun(subject, ORDERS)
        capture.catch_up()
        subject.transact(insert(ORDERS, 1))
        batch = capture.next_batch()
        assert batch is not None
        capture.commit(batch, acknowledge=False)
        first = subject.partitions_of(ORDERS)[0]
        assert subject.acknowledged(first) == 0
        subject.end_lease(first)
        capture.restart()
        assert capture.next_batch() is None
        assert subject.acknowledged(first) == 1


class SharedContract:
    """For sources of which several processes have one at a time."""

    def test_no_partition_is_planned_by_two(self, subject: PartitionedSource) -> None:
        capture, other = self._two(subject)
        subject.transact(*(insert(ORDERS, number) for number in range(6)))
        mine, others = capture.next_batch(), other.plan(capture.progress, TIGHT)
        assert mine is not None
        assert others is not None
        assert not offsets(mine.end).keys() & offsets(others.end).keys()

    def test_a_batch_whose_lease_ended_must_not_be_committed(
        self, subject: PartitionedSource
    ) -> None:
        capture, other = self._two(subject)
        subject.transact(*(insert(ORDERS, number) for number in range(3)))
        mine = capture.next_batch()
        assert mine is not None
        mine.check()
        moved = list(offsets(mine.end))
        subject.end_lease(*moved)
        with pytest.raises(LeaseLostError):
            mine.check()
        # Not even if nobody else has it, or this process has it again.
        capture.source.close()
        assert capture.next_batch() is not None
        with pytest.raises(LeaseLostError):
            mine.check()
        other.close()

    def test_a_partition_continues_where_its_table_is_with_whoever_has_it(
        self, subject: PartitionedSource
    ) -> None:
        capture, other = self._two(subject)
        subject.transact(*(insert(ORDERS, number, str(number)) for number in range(3)))
        self._step(capture)
        subject.end_lease(*subject.partitions_of(ORDERS))
        capture.source = other
        other.most_partitions = None  # type: ignore[attr-defined]
        subject.transact(*(insert(ORDERS, number, str(number)) for number in range(3, 6)))
        capture.catch_up()
        assert sorted(map(str, names(capture.received(ORDERS)))) == list("012345")
        capture.expect_the_truth()

    def test_a_partition_of_another_is_not_acknowledged(self, subject: PartitionedSource) -> None:
        capture, other = self._two(subject)
        subject.transact(*(insert(ORDERS, number) for number in range(3)))
        mine = capture.next_batch()
        assert mine is not None
        capture.commit(mine, acknowledge=False)
        (partition,) = offsets(mine.end)
        other.acknowledge({partition: 1})
        assert subject.acknowledged(partition) == 0
        capture.source.acknowledge({partition: 1})
        assert subject.acknowledged(partition) == 1

    def test_a_restart_is_planned_by_one_of_them(self, subject: PartitionedSource) -> None:
        capture, other = self._two(subject)
        planned = [each.plan_copy([ORDERS]) for each in (capture.source, other)]
        assert [each is not None for each in planned] == [True, False]

    @staticmethod
    def _two(subject: PartitionedSource) -> tuple[CaptureUnderTest, Source]:
        """A process with the first partition, and one with the other two."""
        capture = begun(subject, ORDERS)
        capture.source = subject.open("one", most_partitions=1)
        other = subject.open("two")
        for source in (capture.source, other):
            batch = source.plan(capture.progress, TIGHT)
            assert batch is not None
            capture.commit(batch)
        return capture, other

    @staticmethod
    def _step(capture: CaptureUnderTest) -> Batch:
        batch = capture.next_batch()
        assert batch is not None
        read(batch)
        capture.commit(batch)
        return batch
