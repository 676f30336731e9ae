"""The offsets in etcd, which follow the markers of the tables for other tools to see.

An offset is the last one that was processed. It is written only by whoever holds the partition, in
a transaction that compares the claim, and never moves back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.clients.etcd.transactions import Equals, Fact, Put, Range, Txn, UnchangedSince
from frazil.errors import SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import (
    NOTHING_PROCESSED,
    offset_value,
    parse_offset,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.clients.etcd.client import Etcd
    from frazil.hooks import Clock
    from frazil.sources.kafscale.coordination.keys import CoordinationKeys
    from frazil.sources.kafscale.coordination.leases import PartitionLeases
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

# Nobody but the holder of a partition writes its offset; a tool may do so once.
_ATTEMPTS: Final = 3
_CLOCK: Final = SystemClock()


class PartitionOffsets:
    """The offsets and watermarks below one prefix."""

    def __init__(
        self,
        etcd: Etcd,
        keys: CoordinationKeys,
        leases: PartitionLeases,
        *,
        clock: Clock = _CLOCK,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._leases = leases
        self._clock = clock

    def load(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The last processed offset of each, NOTHING_PROCESSED where there is none."""
        return {partition: offset for partition, (offset, _) in self._load(partitions).items()}

    def write(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move offsets forward, and watermarks with them.

        Returns those that are further in etcd already, which are left as they are. LeaseLostError
        when a partition is not ours any more; the others are written.
        """
        remaining = dict(offsets)
        further: dict[TopicPartition, int] = {}
        for _ in range(_ATTEMPTS):
            stored = self._load(remaining)
            further |= {each: at for each, (at, _) in stored.items() if at > remaining[each]}
            behind = {each: rev for each, (at, rev) in stored.items() if at < remaining[each]}
            refused = self._put({each: (remaining[each], rev) for each, rev in behind.items()})
            if not refused:
                self._write_topic_watermarks({each.topic for each in offsets})
                return further
            self._leases.require_held(refused)
            remaining = {each: remaining[each] for each in refused}
        names = ", ".join(map(str, sorted(remaining)))
        message = f"the offsets of {names} in etcd are being changed by someone else."
        raise SourceUnavailableError(message)

    def _load(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and revision of each."""
        found = self._etcd.read_each([Range(self._keys.offset(each)) for each in partitions])
        return {
            partition: (parse_offset(keys[0].key, keys[0].value), keys[0].mod_revision)
            if keys
            else (NOTHING_PROCESSED, 0)
            for partition, keys in zip(partitions, found, strict=True)
        }

    def _put(self, moves: Mapping[TopicPartition, tuple[int, int]]) -> list[TopicPartition]:
        """Write each offset over the revision that was read; returns those that were refused."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        writes = {}
        for partition, (offset, revision) in moves.items():
            if fence := self._leases.fence(partition):
                key, value = self._keys.offset(partition), offset_value(offset, now_ms=now_ms)
                writes[partition] = Txn(
                    given=[*fence, Equals(key, Fact.MOD_REVISION, revision)],
                    then=[Put(key, value), Put(self._keys.watermark(partition), value)],
                )
        outcomes = self._etcd.commit_each(list(writes.values()))
        written = {
            each for each, outcome in zip(writes, outcomes, strict=True) if outcome.succeeded
        }
        return [partition for partition in moves if partition not in written]

    def _write_topic_watermarks(self, topics: Collection[str]) -> None:
        """Copy the smallest watermark of each topic's partitions.

        Whoever writes a watermark does this afterwards: if one was written since they were read
        here, the other worker copies the smallest of all.
        """
        ranges = [Range(self._keys.watermarks(topic), is_prefix=True) for topic in topics]
        copies = [Range(self._keys.topic_watermark(topic)) for topic in topics]
        found = self._etcd.read_each([*ranges, *copies])
        writes = []
        for topic, marks, copy in zip(topics, found, found[len(ranges) :], strict=False):
            if not marks:
                continue
            smallest = min(marks, key=lambda each: parse_offset(each.key, each.value)).value
            newest = max(each.mod_revision for each in marks)
            if [each.value for each in copy] != [smallest]:
                writes.append(
                    Txn(
                        given=[UnchangedSince(self._keys.watermarks(topic), newest)],
                        then=[Put(self._keys.topic_watermark(topic), smallest)],
                    )
                )
        self._etcd.commit_each(writes)
