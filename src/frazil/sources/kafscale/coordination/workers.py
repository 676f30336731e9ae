"""How workers of one source get along: by leases and offsets in etcd, or by being alone."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from frazil.clients.etcd.client import TIMEOUT_SECONDS, Etcd
from frazil.config.models.kafscale_source import OffsetsBackend
from frazil.hooks import SystemRandomness
from frazil.sources.kafscale.coordination.keys import NOTHING_PROCESSED, CoordinationKeys
from frazil.sources.kafscale.coordination.leases import RENEWALS, PartitionLeases
from frazil.sources.kafscale.coordination.offsets import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from frazil.config.models.kafscale_source import KafscaleSection
    from frazil.hooks import Randomness
    from frazil.sources.kafscale.segments.object_keys import TopicPartition


class Leases(Protocol):
    """The partitions that this worker may work on."""

    def rebalance(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Take our share of these, between two batches, and return what is held."""

    def held(self) -> frozenset[TopicPartition]:
        """The partitions that work may begin on."""

    def require_held(self, partitions: Collection[TopicPartition]) -> None:
        """Raise LeaseLostError unless all are still ours."""


class PublishedOffsets(Protocol):
    """The last processed offsets, as other tools see them."""

    def load(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of each, NOTHING_PROCESSED where there is none."""

    def write(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Move them forward; returns those that are further already."""


class SoleWorker:
    """Leases and offsets of a worker that has all partitions, and the tables' markers alone."""

    def __init__(self) -> None:
        self._held: frozenset[TopicPartition] = frozenset()

    def rebalance(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """All of them."""
        self._held = frozenset(partitions)
        return self._held

    def held(self) -> frozenset[TopicPartition]:
        """All that there are."""
        return self._held

    def require_held(self, partitions: Collection[TopicPartition]) -> None:
        """Nobody takes them; should a second worker run, the markers refuse one of the two."""

    def load(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """None: only the markers know."""
        return dict.fromkeys(partitions, NOTHING_PROCESSED)

    def write(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:  # noqa: ARG002 - as PublishedOffsets
        """Nowhere."""
        return {}


def connect_etcd(section: KafscaleSection) -> Etcd:
    """The brokers' etcd; all endpoints are tried before it is time for the next renewal."""
    settings, ttl = section.etcd, section.offsets.lease_ttl.total_seconds()
    return Etcd(
        settings.endpoints,
        username=settings.username,
        password=settings.password,
        ca=settings.ca,
        timeout_seconds=min(TIMEOUT_SECONDS, ttl / RENEWALS / max(1, len(settings.endpoints))),
    )


@contextmanager
def coordinate(
    section: KafscaleSection, *, randomness: Randomness | None = None
) -> Iterator[tuple[Leases, PublishedOffsets]]:
    """Take part for the time of the block, as ``source.offsets.backend`` says."""
    if section.offsets.backend is OffsetsBackend.NONE:
        alone = SoleWorker()
        yield alone, alone
        return
    etcd, keys = connect_etcd(section), CoordinationKeys(section.offsets.key_prefix)
    with PartitionLeases(
        etcd,
        keys,
        owner=new_owner(randomness or SystemRandomness()),
        topics=[topic.topic for topic in section.topics],
        ttl=section.offsets.lease_ttl,
    ) as leases:
        yield leases, PartitionOffsets(etcd, keys, leases)


def new_owner(randomness: Randomness) -> str:
    """The host, as the processor calls itself, and what tells two workers on it apart."""
    return f"{socket.gethostname() or 'worker'}-{randomness.token(4).hex()}"
