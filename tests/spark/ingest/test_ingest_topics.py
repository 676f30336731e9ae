"""Tables that begin live, partitions, and several processes on one table and one ledger."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from frazil.errors import (
    CommitConflictError,
    MalformedChangeError,
    UnrepresentableValueError,
)
from frazil.hooks import InjectedFault, armed
from frazil.ledger.table_state import Paused, Streaming
from frazil.model.source_table import TableBegin
from frazil.testing.in_memory_database import InMemoryDatabase
from frazil.testing.in_memory_topics import InMemoryTopics
from tests.support.ingest import world as worlds
from tests.support.ingest.topics_world import (
    O0,
    O1,
    ORDERS,
    U0,
    U1,
    USERS,
    TopicsWorld,
    Worker,
    topics_world,
)
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.lake.catalogs import LakeCase

__all__ = ["topics_world"]

pytestmark = [pytest.mark.spark, pytest.mark.services]


def two(world: TopicsWorld) -> tuple[Worker, Worker]:
    """Two processes that have begun both topics, each with one partition of each."""
    workers = world.start("a", U0, O0), world.start("b", U1, O1)
    world.produce(U0, U1, O0, O1)
    for each in workers:
        each.run()
    return workers


def test_a_live_table_appears_with_its_first_commit(topics_world: TopicsWorld) -> None:
    worker = topics_world.start("a")
    worker.run()
    assert not topics_world.has_changelog(USERS)
    topics_world.produce(U0)
    worker.run()
    assert topics_world.has_changelog(USERS)
    assert not topics_world.has_changelog(ORDERS)
    topics_world.produce(U1, O1, O1)
    worker.run()
    topics_world.check(USERS, ORDERS)
    states = {each.table: each for each in topics_world.ledger().table_states()}
    assert {each.state for each in states.values()} == {Streaming()}
    assert all(each.identity for each in states.values())


def test_a_live_table_of_one_log_appears_with_its_first_commit(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> None:
    database = InMemoryDatabase(begins=TableBegin.STREAM)
    world = worlds.World(spark, lake_of(Kind.SQLITE_FILE), database)
    ingester = world.run()
    assert ingester.table_states[worlds.USERS].identity == ""
    world.add(worlds.USERS, 1, 2)
    world.run(ingester)
    world.add(worlds.USERS, 3)
    world.add(worlds.ORDERS, 1)
    # Also with a process that knows nothing of it.
    world.run()
    world.check(worlds.USERS, worlds.ORDERS)
    assert [row[1] for row in world.rows(worlds.USERS)] == ["INSERT"] * 3


@pytest.mark.parametrize("point", ["commit.landed", "ingest.committed", "ingest.recorded"])
def test_what_a_process_left_half_done_is_continued_by_another(
    topics_world: TopicsWorld, point: str
) -> None:
    first, second = two(topics_world)
    topics_world.produce(U0, U0, U1, O0)
    with armed(f"{point}=error@1"), pytest.raises(InjectedFault):
        first.ingester.step()
    topics_world.produce(U0, U1)
    # Its own partitions do not wait for those of the one that died.
    second.run()
    assert topics_world.acknowledged()[U1] == 3
    topics_world.topics.end_lease(U0, O0)
    second.source.most_partitions = None
    second.run()
    topics_world.check(USERS, ORDERS)
    # The first one comes back, and takes over all of it.
    topics_world.topics.end_lease(*topics_world.topics.partitions)
    topics_world.produce(U0, U1, O0, O1)
    topics_world.start("a").run()
    topics_world.check(USERS, ORDERS)


def test_a_process_that_lost_a_lease_is_refused_and_goes_on_with_the_rest(
    topics_world: TopicsWorld,
) -> None:
    first, second = two(topics_world)
    topics_world.produce(U0, O0)
    plan = first.source.plan

    def plan_late(progress: object, limit: object) -> object:
        first.source.plan = plan  # type: ignore[method-assign]
        batch = plan(progress, limit)  # type: ignore[arg-type]
        assert batch is not None
        # The other one reads it and commits first; the lease check passes before that.
        batch.check()
        topics_world.topics.end_lease(U0)
        topics_world.topics.lease(U0, "b")
        second.source.most_partitions = 3
        second.run()
        object.__setattr__(batch, "check", lambda: None)
        return batch

    first.source.plan = plan_late  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitConflictError):
        first.ingester.step()
    first.run()
    topics_world.check(USERS, ORDERS)


def test_processes_that_commit_at_the_same_time_lose_and_double_nothing(
    topics_world: TopicsWorld,
) -> None:
    workers = two(topics_world)
    failures: list[BaseException] = []

    def work(worker: Worker, *partitions: str) -> None:
        try:
            for _ in range(4):
                topics_world.produce(*partitions)
                worker.run()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=(worker, *partitions))
        for worker, partitions in zip(workers, ((U0, O0), (U1, O1)), strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    topics_world.check(USERS, ORDERS)


def test_a_paused_table_holds_its_own_partitions_only(topics_world: TopicsWorld) -> None:
    first, second = two(topics_world)
    spoilt = UnrepresentableValueError("does not fit")
    topics_world.topics.produce(U0, {}, error=spoilt)
    topics_world.produce(O0)
    first.run()
    assert isinstance(first.ingester.table_states[USERS].state, Paused)
    topics_world.produce(U0, U1, O0, O1)
    for each in (first, second):
        each.run()
    topics_world.check(ORDERS)
    assert topics_world.acknowledged() == {U0: 1, U1: 1, O0: 3, O1: 2}
    assert topics_world.offsets() == topics_world.acknowledged()


def test_a_record_that_does_not_decode_stops_its_partition_there(
    topics_world: TopicsWorld,
) -> None:
    first, second = two(topics_world)
    topics_world.produce(U0)
    topics_world.topics.produce(U0, {}, error=MalformedChangeError("cut short"))
    topics_world.produce(U0, U1, O0)
    for each in (first, second):
        each.run()
    topics_world.check(ORDERS)
    assert topics_world.acknowledged() == {U0: 2, U1: 2, O0: 2, O1: 1}
    assert topics_world.rows(USERS) == [f"{U0}@0", f"{U0}@1", f"{U1}@0", f"{U1}@1"]
    assert set(first.ingester.stopped_partitions) == {U0}
    assert {each.state for each in topics_world.ledger().table_states()} == {Streaming()}


def test_a_resync_restarts_the_table_for_every_process(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> None:
    world = TopicsWorld(spark, lake_of(Kind.SQLITE_FILE), InMemoryTopics(forgets=False))
    first, second = two(world)
    world.resync(USERS)
    world.produce(U0, U1)
    for each in (second, first, second):
        each.run()
    assert world.rows(USERS, epoch=1) == [f"{U0}@0", f"{U0}@1", f"{U1}@0", f"{U1}@1"]
    assert {each.state for each in world.ledger().table_states()} == {Streaming()}
    assert world.offsets() == {U0: 2, U1: 2, O0: 1, O1: 1}
