"""Which worker should hold which partition: the decision, without etcd.

Every worker decides for itself, and all that see the same come to the same result. What a worker
has it keeps, unless another one has fewer by two or more: then giving one away makes things even,
and nobody has a reason to give it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.sources.kafscale.segments.object_keys import TopicPartition

# A difference of one may be left over when partitions do not divide evenly.
_LEAST_UNEVENNESS = 2


@dataclass(frozen=True, slots=True)
class Moves:
    """What one worker does about its partitions."""

    claim: frozenset[TopicPartition]
    release: frozenset[TopicPartition]


def plan_moves(
    worker: str,
    *,
    topics: Mapping[str, frozenset[str]],
    holders: Mapping[TopicPartition, str | None],
) -> Moves:
    """What this worker claims and releases, so that partitions are shared fairly in the end.

    ``topics`` has those of every worker. ``holders`` has the partitions to share, each with the
    worker that holds it now; those of others than these workers are not among them.
    """
    shares = share_partitions(topics, holders)
    return Moves(
        claim=frozenset(
            partition
            for partition, holder in holders.items()
            if holder is None and shares.get(partition) == worker
        ),
        release=frozenset(
            partition
            for partition, holder in holders.items()
            if holder == worker and shares.get(partition) != worker
        ),
    )


def share_partitions(
    topics: Mapping[str, frozenset[str]], holders: Mapping[TopicPartition, str | None]
) -> dict[TopicPartition, str]:
    """The worker of each partition, in the end; a partition that no worker wants has none."""
    shares = _Shares(topics)
    free = []
    for partition in sorted(holders):
        holder = holders[partition]
        if holder is not None and partition.topic in topics.get(holder, ()):
            shares.give(partition, holder)
        else:
            free.append(partition)
    # Those that few workers want come first: the others can then even out what these cannot.
    for partition in sorted(free, key=lambda each: (len(shares.wanting(each.topic)), each)):
        if wanting := shares.wanting(partition.topic):
            shares.give(partition, min(wanting, key=shares.rank))
    while shares.move_one():
        pass
    return shares.by_partition()


class _Shares:
    """Who has what while it is being shared."""

    def __init__(self, topics: Mapping[str, frozenset[str]]) -> None:
        self._topics = topics
        self._wanting: dict[str, list[str]] = {}
        for worker, wanted in topics.items():
            for topic in wanted:
                self._wanting.setdefault(topic, []).append(worker)
        # By worker and topic. The last one is given away first: what a worker does not hold yet is
        # at the end, and costs nothing.
        self._given: dict[str, dict[str, list[TopicPartition]]] = {each: {} for each in topics}
        self._counts = dict.fromkeys(topics, 0)

    def wanting(self, topic: str) -> list[str]:
        return self._wanting.get(topic, [])

    def rank(self, worker: str) -> tuple[int, str]:
        """Who has least comes first."""
        return self._counts[worker], worker

    def give(self, partition: TopicPartition, worker: str) -> None:
        self._given[worker].setdefault(partition.topic, []).append(partition)
        self._counts[worker] += 1

    def move_one(self) -> bool:
        """Move a partition from one that has most to one that has least, if that evens them."""
        ranked = sorted(self._counts, key=self.rank)
        for giver in reversed(ranked):
            for taker in ranked:
                if self._counts[giver] - self._counts[taker] < _LEAST_UNEVENNESS:
                    break
                for topic in sorted(self._given[giver].keys() & self._topics[taker]):
                    if given := self._given[giver][topic]:
                        self._counts[giver] -= 1
                        self.give(given.pop(), taker)
                        return True
        return False

    def by_partition(self) -> dict[TopicPartition, str]:
        return {
            partition: worker
            for worker, by_topic in self._given.items()
            for given in by_topic.values()
            for partition in given
        }
