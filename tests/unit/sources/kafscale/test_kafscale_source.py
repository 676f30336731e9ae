"""What a worker plans, what it costs to look, and what it publishes; everything in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from frazil.errors import PositionLostError, SourceUnavailableError
from frazil.hooks import ManualClock
from frazil.sources.kafscale.segments.object_keys import TopicPartition
from frazil.sources.kafscale.segments.planning import MOST_SEGMENTS
from frazil.sources.protocol import Limit, PartitionFailure, Progress, TableProgress
from tests.support.kafscale.partitions_in_memory import TOPIC, PartitionsInMemory

if TYPE_CHECKING:
    from frazil.sources.kafscale.source import KafscaleSource
    from frazil.sources.protocol import Batch

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
ROOMY = Limit(rows=1_000_000, bytes=1 << 30)
OURS = "[]"


def at(
    *, stopped: dict[str, int] | None = None, shape: str = OURS, **offsets: dict[str, int]
) -> Progress:
    """Where the ledger and the table are: ``ledger`` and ``table``, each by partition."""
    table = TableProgress(offsets.get("table"), TOPIC if shape else "", shape)
    return Progress(
        acknowledged=offsets.get("ledger", {}), tables={TOPIC: table}, stopped=stopped or {}
    )


def plan(source: KafscaleSource, progress: Progress, limit: Limit = ROOMY) -> Batch:
    batch = source.plan(progress, limit)
    assert batch is not None
    return batch


def read(batch: Batch) -> list[tuple[str, int]]:
    """The partitions and base offsets of the segments that tasks read."""
    return [
        (split.payload.partition_name, each.base_offset)  # type: ignore[attr-defined]
        for split in batch.splits
        for each in split.payload.segments  # type: ignore[attr-defined]
    ]


@pytest.mark.fault("U2")
def test_a_partition_that_is_stopped_costs_nothing_and_is_not_waited_for() -> None:
    world = PartitionsInMemory()
    for base in range(40):
        world.add(FIRST, base)
    world.add(SECOND, 0)
    source, few = world.open(), replace(ROOMY, rows=10)
    known = at(ledger={"orders/0": 3, "orders/1": 0}, stopped={"orders/0": 3})
    assert read(plan(source, known, few)) == [("orders/1", 0)]
    assert not [key for key in (*world.bucket.listed, *world.bucket.ends) if "/0/" in key]
    # With 37 segments behind the one that stopped it, nothing more can be read now.
    assert not source.wait(0.0, few)


def test_a_gap_that_may_still_be_filled_is_waited_for_in_peace() -> None:
    world = PartitionsInMemory()
    for base in range(5, 45):
        world.add(FIRST, base)
    source, few = world.open(gap_seconds=600.0), replace(ROOMY, rows=10)
    known = at(ledger={"orders/0": 2})
    assert source.plan(known, few) is None
    assert not source.wait(0.0, few)
    world.add(FIRST, 2, count=3)
    assert read(plan(source, known, few))[:2] == [("orders/0", 2), ("orders/0", 5)]
    assert source.wait(600.0, few)


@pytest.mark.fault("U25")
def test_a_gap_that_is_filled_after_all_lets_its_partition_go_on() -> None:
    world, clock = PartitionsInMemory(), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    for base in range(5, 45):
        world.add(FIRST, base)
    source = world.open(gap_seconds=10.0, clock=clock)
    known, stopped = at(ledger={"orders/0": 2}), {"orders/0": 2}
    assert source.plan(known, ROOMY) is None
    clock.advance(11)
    (failure,) = plan(source, known).failures
    assert isinstance(failure, PartitionFailure)
    assert failure.offset == 2
    # It is looked at in intervals, and such a look lists one segment.
    for seconds, most in ((1, 0), (30, 4), (1, 0), (30, 4)):
        clock.advance(seconds)
        world.forget_requests()
        assert source.plan(at(ledger={"orders/0": 2}, stopped=stopped), ROOMY) is None
        listed = [each for each in world.bucket.listed if "/0/" in each]
        assert len(listed) <= most, seconds
        assert bool(listed) is bool(most), seconds
    world.add(FIRST, 2, count=3)
    clock.advance(31)
    batch = plan(source, at(ledger={"orders/0": 2}, stopped=stopped))
    assert batch.resumed == ("orders/0",)
    assert read(batch)[:2] == [("orders/0", 2), ("orders/0", 5)]
    assert source.has_reached({"orders/0": 45})
    assert not source.has_reached({"orders/0": 46})


@pytest.mark.fault("U25")
def test_gaps_that_are_recorded_are_waited_for_together_and_not_one_by_one() -> None:
    world = PartitionsInMemory(on_gap="record")
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    for base in (0, 5, 9):
        world.add(FIRST, base)
    source = world.open(gap_seconds=10.0, clock=clock)
    # A segment that appears after its successors is not passed by.
    assert read(plan(source, at(ledger={"orders/0": 0}))) == [("orders/0", 0)]
    known = at(ledger={"orders/0": 1})
    clock.advance(5)
    assert source.plan(known, ROOMY) is None
    assert not source.has_reached({"orders/0": 10})
    world.add(FIRST, 1, count=4)
    assert read(plan(source, known)) == [("orders/0", 1), ("orders/0", 5)]
    # The other gap was known all the time.
    clock.advance(6)
    batch = plan(source, known)
    assert read(batch) == [("orders/0", 1), ("orders/0", 5), ("orders/0", 9)]
    missing = [
        each.missing_from
        for split in batch.splits
        for each in split.payload.segments  # type: ignore[attr-defined]
    ]
    assert (missing, batch.failures) == ([None, None, 6], ())
    assert source.has_reached({"orders/0": 10})


def test_a_partition_that_stopped_for_another_reason_is_not_looked_at() -> None:
    world, clock = PartitionsInMemory(), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    world.add(FIRST, 3)
    source = world.open(clock=clock)
    clock.advance(1000)
    assert source.plan(at(ledger={"orders/0": 3}, stopped={"orders/0": 3}), ROOMY) is None
    assert not [key for key in world.bucket.listed if "/0/" in key]


def test_a_look_lists_no_more_than_a_batch_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.sources.kafscale.segments.planning.MOST_SEGMENTS", 20)
    world = PartitionsInMemory()
    for base in range(200):
        world.add(FIRST, base)
    source = world.open()
    assert len(read(plan(source, at(ledger={"orders/0": 7})))) == 20
    assert len(world.bucket.listed) < 60
    assert ROOMY.rows > MOST_SEGMENTS


@pytest.mark.fault("U9")
def test_a_look_at_what_is_captured_lists_nothing_of_it() -> None:
    world = PartitionsInMemory()
    for base in range(200):
        world.add(FIRST, base)
    source = world.open()
    done = at(ledger={"orders/0": 200}, table={"orders/0": 200})
    assert source.plan(done, ROOMY) is None
    world.forget_requests()
    assert source.plan(done, ROOMY) is None
    assert world.bucket.listed == []
    assert world.bucket.ends == []


def test_segments_that_share_offsets_stop_before_the_first_of_them() -> None:
    world = PartitionsInMemory()
    world.add(FIRST, 0, count=10)
    world.add(FIRST, 7, count=3)
    world.add(FIRST, 10)
    batch = plan(world.open(), at(ledger={"orders/0": 0}))
    found = [each for split in batch.splits for each in batch.reader.read(split)]
    assert isinstance(found[-1], PartitionFailure)
    assert (found[-1].partition, found[-1].offset) == ("orders/0", 0)
    assert isinstance(found[-1].error, PositionLostError)


def test_a_topic_restarts_while_others_are_captured() -> None:
    world = PartitionsInMemory(
        topics=[
            {"topic": TOPIC, "changelog": "lake.orders"},
            {"topic": "returns", "changelog": "lake.returns"},
        ]
    )
    world.add(FIRST, 4)
    world.add(SECOND, 6)
    world.add(TopicPartition("returns", 0), 0)
    source = world.open()
    returns = TableProgress({"returns/0": 1}, "returns", OURS)
    done = Progress(acknowledged={"returns/0": 1}, tables={"returns": returns})
    # The one that is to restart is not in the stream any more.
    assert source.plan(done, ROOMY) is None
    batch = source.plan_copy({TOPIC})
    assert batch is not None
    assert [each.goal for each in batch.parts] == [{"orders/0": 4, "orders/1": 6}]
    assert source.plan(done, ROOMY) is None
    batch.check()


@pytest.mark.fault("U18")
def test_a_topic_whose_registry_is_away_waits_and_the_others_go_on() -> None:
    world = PartitionsInMemory(
        # Nobody listens there.
        registry={"base_url": "http://127.0.0.1:9", "timeout": "1s"},
        topics=[
            {"topic": TOPIC, "table": "lake.orders", "columns_from": "registry"},
            {"topic": "returns", "table": "lake.returns", "columns_from": "none"},
        ],
    )
    returns = TopicPartition("returns", 0)
    for partition in (FIRST, returns):
        world.add(partition, 0, count=2)
    source = world.open()
    tables = {name: TableProgress(None, "", "") for name in (TOPIC, "returns")}
    ledger = {"orders/0": 0, "returns/0": 0}
    batch = plan(source, Progress(acknowledged=ledger, tables=tables))
    assert (read(batch), batch.end, batch.failures) == ([("returns/0", 0)], {"returns/0": 2}, ())
    # With nothing else to do, the run says what it waits for, and tries again.
    tables["returns"] = TableProgress({"returns/0": 2}, "returns", OURS)
    with pytest.raises(SourceUnavailableError):
        source.plan(Progress(acknowledged={**ledger, "returns/0": 2}, tables=tables), ROOMY)


# --- offsets for others to see ---


def published(world: PartitionsInMemory) -> dict[str, int]:
    return {str(each): offset for each, offset in world.leases.published.items()}


@pytest.mark.fault("U11")
def test_what_could_not_be_published_is_published_without_a_new_record() -> None:
    world = PartitionsInMemory()
    world.add(FIRST, 0)
    source = world.open()
    plan(source, at(ledger={"orders/0": 0}))
    world.leases.is_down = True
    with pytest.raises(SourceUnavailableError):
        source.acknowledge({"orders/0": 1})
    source.close()
    world.leases.is_down = False
    assert source.plan(at(ledger={"orders/0": 1}, table={"orders/0": 1}), ROOMY) is None
    assert published(world) == {"orders/0": 0}


def test_a_lease_that_was_lost_and_won_again_publishes_what_it_missed() -> None:
    world = PartitionsInMemory()
    world.add(FIRST, 0)
    source = world.open()
    plan(source, at(ledger={"orders/0": 0}))
    # As after a pause that was longer than the lease.
    world.leases.held_ones = set()
    source.acknowledge({"orders/0": 1})
    assert published(world) == {}
    world.leases.held_ones = {FIRST}
    assert source.plan(at(ledger={"orders/0": 1}, table={"orders/0": 1}), ROOMY) is None
    assert published(world) == {"orders/0": 0}


# --- tables that another writer filled ---


def test_partitions_that_nobody_serves_now_are_taken_over_with_the_others() -> None:
    world = PartitionsInMemory()
    world.add(FIRST, 0, count=5)
    rows = {"orders/0": 3, "orders/1": 9}
    world.leases.published = {SECOND: 10}
    begun = plan(world.open(), at(ledger={}, table=rows, shape=""))
    # By the time it is served again, rows of ours hide where those of the other writer ended.
    assert begun.end == {"orders/0": 3, "orders/1": 11}
