"""How workers of one source get along: by leases and offsets in etcd, or by being alone."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Protocol

from frazil.clients.etcd.client import TIMEOUT_SECONDS, Etcd
from frazil.config.models.kafscale_source import OffsetsBackend
from frazil.hooks import SystemRandomness
from frazil.sources.kafscale.coordination.keys import NOTHING_PROCESSED, CoordinationKeys
from frazil.sources.kafscale.coordination.leases import RENEWALS, PartitionLeases
from frazil.sources.kafscale.coordination.offsets import PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

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

    @property
    def is_first(self) -> bool:
        """Whether this worker is the first of all, as far as is known."""


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

    @property
    def is_first(self) -> bool:
        """There is no other."""
        return True

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


class Coordination:
    """This process among the workers of a source, as ``source.offsets.backend`` says.

    It takes part when it is first asked, and until it is closed. It is the claim of the source as
    well: leases say who reads a partition, and the first of the workers merges.
    """

    def __init__(
        self,
        section: KafscaleSection,
        pipeline: str = "",
        *,
        randomness: Randomness | None = None,
    ) -> None:
        self._section = section
        self._pipeline = pipeline
        self._randomness = randomness or SystemRandomness()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._parts: tuple[Leases, PublishedOffsets] | None = None
        self._may_merge = False
        self.turns = 0
        self.on_turn: Callable[[], None] = _nobody_waits

    @property
    def leases(self) -> Leases:
        """The partitions that this worker may work on."""
        return self._open()[0]

    @property
    def offsets(self) -> PublishedOffsets:
        """The offsets that other tools see."""
        return self._open()[1]

    def rebalance(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Take our share of these, between two batches, and return what is held."""
        held = self.leases.rebalance(partitions)
        was_first, self._may_merge = self._may_merge, self.leases.is_first
        if self._may_merge and not was_first:
            self.turns += 1
            self.on_turn()
        return held

    @property
    def may_merge(self) -> bool:
        """Whether this is the first of the workers; a merge by two would be refused to one."""
        return self._may_merge

    def turn(self) -> AbstractContextManager[None]:
        """Every worker has the claim."""
        return nullcontext()

    def release(self) -> None:
        """Leave: others may take the partitions, and the merges."""
        with self._lock:
            self._parts = None
            self._may_merge = False
            self._stack.close()

    def _open(self) -> tuple[Leases, PublishedOffsets]:
        with self._lock:
            if self._parts is None:
                self._parts = self._join()
            return self._parts

    def _join(self) -> tuple[Leases, PublishedOffsets]:
        section = self._section
        if section.offsets.backend is OffsetsBackend.NONE:
            alone = SoleWorker()
            return alone, alone
        etcd, keys = connect_etcd(section), CoordinationKeys(section.offsets.key_prefix)
        leases = self._stack.enter_context(
            PartitionLeases(
                etcd,
                keys,
                owner=new_owner(self._randomness),
                topics=[topic.topic for topic in section.topics],
                ttl=section.offsets.lease_ttl,
                pipeline=self._pipeline,
            )
        )
        return leases, PartitionOffsets(etcd, keys, leases)


def _nobody_waits() -> None:
    """Of a process that does not merge."""


def new_owner(randomness: Randomness) -> str:
    """The host, as the processor calls itself, and what tells two workers on it apart."""
    return f"{socket.gethostname() or 'worker'}-{randomness.token(4).hex()}"
