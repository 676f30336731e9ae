"""Segments in memory, and a worker of which a test decides what it holds; requests are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frazil.clients.object_store import StoredObject
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.errors import LeaseLostError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import NOTHING_PROCESSED
from frazil.sources.kafscale.coordination.workers import Coordination
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.source import KafscaleSource
from frazil.sources.kafscale.topic_tables import TopicTables
from tests.support.kafscale.segments import Message, client_batch, index_of, segment
from tests.support.kafscale.topics import BucketInMemory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from frazil.clients.etcd.client import Etcd
    from frazil.hooks import Clock
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

NAMESPACE = "default"
TOPIC = "orders"


@dataclass(frozen=True, kw_only=True)
class ListedBucket(BucketInMemory):
    """Also lists; ``listed`` and ``ends`` are the keys that were asked for."""

    listed: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    def list_after(self, prefix: str, after: str) -> Iterator[StoredObject]:
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > after:
                self.listed.append(key)
                yield StoredObject(key, len(self.objects[key]))

    def list_folders(self, prefix: str) -> tuple[str, ...]:
        below = (key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
        return tuple(sorted({each.partition("/")[0] for each in below if "/" in each}))

    def read_end(self, key: str, length: int) -> bytes:
        self.ends.append(key)
        return self.read(key)[-length:]


@dataclass
class DecidedLeases:
    """Leases and offsets of one worker."""

    held_ones: set[TopicPartition] | None = None
    published: dict[TopicPartition, int] = field(default_factory=dict)
    is_down: bool = False
    _known: frozenset[TopicPartition] = frozenset()
    is_first: bool = True

    def rebalance(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        self._known = frozenset(partitions)
        return self.held()

    def held(self) -> frozenset[TopicPartition]:
        return self._known if self.held_ones is None else frozenset(self.held_ones)

    def require_held(self, partitions: Collection[TopicPartition]) -> None:
        if set(partitions) - self.held():
            raise LeaseLostError("a lease was lost.")

    def load(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.published.get(each, NOTHING_PROCESSED) for each in partitions}

    def write(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self.is_down:
            raise SourceUnavailableError("etcd does not answer.")
        self.require_held(offsets)
        self.published |= offsets
        return {}


class DecidedCoordination(Coordination):
    """Among others as the test decides."""

    def __init__(self, section: KafscaleSection, decided: DecidedLeases) -> None:
        super().__init__(section)
        self._decided = decided

    @property
    def leases(self) -> DecidedLeases:
        return self._decided

    @property
    def offsets(self) -> DecidedLeases:
        return self._decided


class PartitionsInMemory:
    """One topic, its segments, and a source that reads them."""

    def __init__(self, **source: Any) -> None:
        self.bucket = ListedBucket()
        self.leases = DecidedLeases()
        self.section = KafscaleSection.model_validate(
            {
                "kind": "kafscale",
                "bucket": "bucket",
                "namespace": NAMESPACE,
                "offsets": {"backend": "none"},
                "topics": [{"topic": TOPIC, "table": "lake.orders"}],
                **source,
            }
        )

    def open(self, *, gap_seconds: float = 0.0, clock: Clock | None = None) -> KafscaleSource:
        """As a new process has it."""
        clock, listing = clock or SystemClock(), SegmentListing(self.bucket, NAMESPACE)
        return KafscaleSource(
            self.section,
            self.bucket,
            listing=listing,
            cluster=ClusterPartitions(self.section, listing, _no_etcd, clock=clock),
            tables=TopicTables(self.section, SchemaRegistry(self.section.registry, clock)),
            coordination=DecidedCoordination(self.section, self.leases),
            clock=clock,
            gap_seconds=gap_seconds,
        )

    def add(self, partition: TopicPartition, base: int, count: int = 1) -> str:
        """A segment with so many records from an offset on; its key."""
        name = f"{NAMESPACE}/{partition}/segment-{base:020d}"
        batch = client_batch(base, [Message(b"%d" % (base + at)) for at in range(count)])
        self.bucket.objects[f"{name}.index"] = index_of(base)
        self.bucket.objects[f"{name}.kfs"] = segment([batch], base=base)
        return f"{name}.kfs"

    def forget_requests(self) -> None:
        """Count from here."""
        self.bucket.listed.clear()
        self.bucket.ends.clear()


def _no_etcd() -> Etcd:
    raise AssertionError("nobody asks etcd here")
