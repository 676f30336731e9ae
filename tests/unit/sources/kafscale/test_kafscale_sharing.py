"""Partitions are shared fairly, by as few moves as possible, whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.sources.kafscale.coordination.sharing import plan_moves, share_partitions
from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from random import Random

WORKERS = "abcdef"
PARTITIONS = [TopicPartition(topic, number) for topic in ("x", "y") for number in range(8)]
EVERY_TOPIC = frozenset({"x", "y"})


@dataclass
class Cluster:
    """Workers that act one after the other, each on what it sees."""

    topics: dict[str, frozenset[str]]
    holders: dict[TopicPartition, str | None]
    released: Counter[TopicPartition] = field(default_factory=Counter)

    def act(self, worker: str) -> bool:
        moves = plan_moves(worker, topics=self.topics, holders=self.holders)
        for partition in moves.release:
            assert self.holders[partition] == worker
            self.holders[partition] = None
        for partition in moves.claim:
            assert self.holders[partition] is None
            self.holders[partition] = worker
        self.released.update(moves.release)
        return bool(moves.release or moves.claim)

    def settle(self, random: Random) -> None:
        for _ in range(1000):
            turns = sorted(self.topics)
            random.shuffle(turns)
            acted = [self.act(worker) for worker in turns]
            if not any(acted):
                return
        raise AssertionError("partitions are passed around without end")

    def counts(self) -> list[int]:
        held = Counter(self.holders.values())
        return sorted(held[worker] for worker in self.topics)


@st.composite
def clusters(draw: st.DrawFn, *, alike: bool) -> Cluster:
    workers = draw(st.lists(st.sampled_from(WORKERS), min_size=1, unique=True))
    wanted = st.just(EVERY_TOPIC) if alike else st.frozensets(st.sampled_from(["x", "y"]))
    partitions = draw(st.lists(st.sampled_from(PARTITIONS), unique=True))
    holder = st.sampled_from([*workers, None])
    return Cluster(
        {worker: draw(wanted) for worker in workers},
        {partition: draw(holder) for partition in partitions},
    )


@given(clusters(alike=True), st.randoms(use_true_random=False))
@pytest.mark.fault("U8")
def test_in_the_end_all_partitions_are_held_and_evenly(cluster: Cluster, random: Random) -> None:
    cluster.settle(random)
    assert None not in cluster.holders.values()
    counts = cluster.counts()
    assert counts[-1] - counts[0] <= 1


@given(clusters(alike=True), st.randoms(use_true_random=False))
def test_no_more_partitions_are_released_than_must_be(cluster: Cluster, random: Random) -> None:
    before = cluster.counts()[::-1]
    share, more = divmod(len(cluster.holders), len(before))
    # Those that have most keep one more, where it does not divide evenly.
    least = sum(max(0, count - share - (at < more)) for at, count in enumerate(before))
    cluster.settle(random)
    assert cluster.released.total() == least


@given(clusters(alike=False), st.randoms(use_true_random=False))
def test_workers_of_other_topics_take_only_what_is_theirs(cluster: Cluster, random: Random) -> None:
    cluster.settle(random)
    for partition, holder in cluster.holders.items():
        wanting = {each for each, topics in cluster.topics.items() if partition.topic in topics}
        assert holder in wanting if wanting else holder is None
    assert max(cluster.released.values(), default=0) <= 1, "a partition is moved twice"


@given(clusters(alike=False), st.randoms(use_true_random=False), st.data())
def test_partitions_are_held_again_after_workers_came_and_went(
    cluster: Cluster, random: Random, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 5))):
        worker = data.draw(st.sampled_from(WORKERS))
        if cluster.topics.pop(worker, None) is None:
            cluster.topics[worker] = EVERY_TOPIC
        else:
            cluster.holders = {
                partition: None if holder == worker else holder
                for partition, holder in cluster.holders.items()
            }
        for turn in data.draw(st.lists(st.sampled_from(WORKERS), max_size=3)):
            if turn in cluster.topics:
                cluster.act(turn)
    cluster.topics["a"] = EVERY_TOPIC
    cluster.settle(random)
    assert None not in cluster.holders.values()


def test_a_joining_worker_gets_its_share_and_nobody_else_anything() -> None:
    holders = {each: "ab"[index % 2] for index, each in enumerate(PARTITIONS[:12])}
    shares = share_partitions(dict.fromkeys("abc", EVERY_TOPIC), dict(holders))
    assert Counter(shares.values()) == {"a": 4, "b": 4, "c": 4}
    moved = [each for each in holders if shares[each] != holders[each]]
    assert {shares[each] for each in moved} == {"c"}


def test_a_worker_waits_for_what_another_one_has_yet_to_release() -> None:
    holders: dict[TopicPartition, str | None] = dict.fromkeys(PARTITIONS[:2], "a")
    topics = dict.fromkeys("ab", EVERY_TOPIC)
    assert plan_moves("b", topics=topics, holders=holders).claim == frozenset()
    assert len(plan_moves("a", topics=topics, holders=holders).release) == 1


def test_ten_thousand_partitions_are_shared_in_a_moment() -> None:
    partitions = [
        TopicPartition(f"t{topic}", number) for topic in range(100) for number in range(100)
    ]
    topics = {f"w{each:03}": frozenset(f"t{topic}" for topic in range(100)) for each in range(50)}
    shares = share_partitions(topics, dict.fromkeys(partitions, "w000"))
    assert set(Counter(shares.values()).values()) == {200}
