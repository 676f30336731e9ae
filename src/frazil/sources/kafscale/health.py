"""The health of a KafScale source: how far its partitions are, and who works on them.

A store is asked for what is new since the last time, and not more often than a run looks for new
segments: requests cost money.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from frazil.clients.etcd.transactions import Range
from frazil.config.models.kafscale_source import OffsetsBackend
from frazil.hooks import SystemClock
from frazil.sources.health import HealthFacts, PartitionHealth, SourceHealth
from frazil.sources.kafscale.coordination.holders import load_holders
from frazil.sources.kafscale.coordination.keys import CoordinationKeys, parse_offset
from frazil.sources.kafscale.coordination.workers import connect_etcd
from frazil.sources.kafscale.segments.discovery import SegmentListing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from frazil.clients.etcd.client import Etcd
    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import KafscaleSection
    from frazil.hooks import Clock
    from frazil.sources.kafscale.coordination.holders import Holder
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

_CLOCK: Final = SystemClock()


class PublishedState(Protocol):
    """What workers publish about partitions."""

    def offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last one that was processed, of those that have one."""

    def holders(self) -> Mapping[TopicPartition, Holder]:
        """The holders of partitions that are claimed."""


class NothingPublished:
    """A worker without etcd publishes nothing."""

    def offsets(self, _partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """None."""
        return {}

    def holders(self) -> dict[TopicPartition, Holder]:
        """None."""
        return {}


class PublishedInEtcd:
    """Offsets and leases as KafScale's own processor would show them."""

    def __init__(self, etcd: Etcd, keys: CoordinationKeys) -> None:
        self._etcd = etcd
        self._keys = keys

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """From the keys of offsets."""
        found = self._etcd.read_each([Range(self._keys.offset(each)) for each in partitions])
        return {
            partition: parse_offset(keys[0].key, keys[0].value) + 1
            for partition, keys in zip(partitions, found, strict=True)
            if keys
        }

    def holders(self) -> dict[TopicPartition, Holder]:
        """From the keys of leases."""
        return load_holders(self._etcd, self._keys)


class NewestOffsets:
    """The offset after the newest segment of each partition; every segment is listed once."""

    def __init__(self, listing: SegmentListing) -> None:
        self._listing = listing
        # Where to list from, which is after the newest base, and what was found there.
        self._known: dict[TopicPartition, tuple[int, int]] = {}

    def load(
        self, partitions: Collection[TopicPartition], processed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Of these; what is ``processed`` already is not listed."""
        # One that went away may come again with other offsets.
        self._known = {each: self._known[each] for each in partitions if each in self._known}
        return {each: self._load(each, processed.get(each, 0)) for each in partitions}

    def _load(self, partition: TopicPartition, processed: int) -> int:
        begins, newest = self._known.get(partition, (processed, processed))
        found = self._listing.list_new(partition, begins).segments
        if found:
            base = found[-1].base_offset
            end = self._listing.read_ends(found[-1:]).get(found[-1].key)
            last = base if end is None or end.last_offset is None else end.last_offset
            # The footer that a broker filled with nonsense says less than the key.
            newest = max(last, base) + 1
            begins = base + 1
        self._known[partition] = begins, newest
        return newest


class KafscaleHealth:
    """Asks the bucket and etcd; ``seconds`` is how old an answer may be."""

    def __init__(
        self,
        newest: NewestOffsets,
        discover: Callable[[], Collection[TopicPartition]],
        published: PublishedState,
        *,
        seconds: float,
        clock: Clock = _CLOCK,
    ) -> None:
        self._newest = newest
        self._discover = discover
        self._published = published
        self._seconds = seconds
        self._clock = clock
        self._answer: tuple[float, SourceHealth] | None = None

    def load(self) -> SourceHealth:
        """The health now, or as it was a short while ago."""
        now = self._clock.monotonic()
        if self._answer is None or now - self._answer[0] >= self._seconds:
            self._answer = now, self._load()
        asked, health = self._answer
        return replace(health, age_seconds=now - asked)

    def close(self) -> None:
        """Nothing is kept open."""

    def _load(self) -> SourceHealth:
        partitions = sorted(self._discover())
        offsets = self._published.offsets(partitions)
        holders = self._published.holders()
        newest = self._newest.load(partitions, offsets)
        facts = HealthFacts(
            partitions=tuple(
                PartitionHealth(
                    partition=str(each),
                    newest=newest[each],
                    offset=offsets.get(each),
                    holder=holders[each].name if each in holders else None,
                )
                for each in partitions
            )
        )
        return SourceHealth(newest={str(each): at for each, at in newest.items()}, facts=facts)


def published_state(section: KafscaleSection) -> PublishedState:
    """What the workers of this section publish, wherever they do; nothing is claimed."""
    if section.offsets.backend is not OffsetsBackend.ETCD:
        return NothingPublished()
    return PublishedInEtcd(connect_etcd(section), CoordinationKeys(section.offsets.key_prefix))


def watch_health(
    section: KafscaleSection,
    bucket: Bucket,
    *,
    seconds: float,
    discover: Callable[[], Collection[TopicPartition]] | None = None,
    clock: Clock = _CLOCK,
) -> KafscaleHealth:
    """The health of what the section describes; without ``discover``, of what the bucket has."""
    listing = SegmentListing(bucket, section.namespace)
    topics = [each.topic for each in section.topics]
    return KafscaleHealth(
        NewestOffsets(listing),
        discover or (lambda: listing.list_partitions(topics)),
        published_state(section),
        seconds=seconds,
        clock=clock,
    )
