"""Which partitions topics have: what is in the bucket and, by setting, what brokers serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.clients.etcd.transactions import Range
from frazil.config.models.kafscale_source import Discovery
from frazil.errors import FrazilError, SourceUnavailableError
from frazil.hooks import SystemClock
from frazil.sources.kafscale.segments.cluster_snapshot import SNAPSHOT_KEY, parse_cluster_snapshot
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from frazil.clients.etcd.client import Etcd
    from frazil.config.models.kafscale_source import KafscaleSection
    from frazil.hooks import Clock
    from frazil.sources.kafscale.segments.discovery import SegmentListing
    from frazil.sources.kafscale.segments.object_keys import TopicPartition

# Partitions are added by people.
_KEPT_SECONDS: Final = 5.0

_log = get_logger(__name__)


class ClusterPartitions:
    """The partitions of topics, as ``source.discovery`` says; asked again after some seconds.

    ``connect`` gives the brokers' etcd, and is not called where none is configured.
    """

    def __init__(
        self,
        section: KafscaleSection,
        listing: SegmentListing,
        connect: Callable[[], Etcd],
        *,
        clock: Clock | None = None,
    ) -> None:
        self._section = section
        self._listing = listing
        self._connect = connect
        self._clock = clock or SystemClock()
        self._kept: dict[frozenset[str], tuple[float, frozenset[TopicPartition]]] = {}
        self._warned = False

    def find(self, topics: Collection[str]) -> frozenset[TopicPartition]:
        """The partitions of these topics."""
        wanted, now = frozenset(topics), self._clock.monotonic()
        kept = self._kept.get(wanted)
        if kept is not None and now - kept[0] < _KEPT_SECONDS:
            return kept[1]
        found = self._find(wanted)
        self._kept[wanted] = now, found
        return found

    def _find(self, topics: frozenset[str]) -> frozenset[TopicPartition]:
        listed = self._listing.list_partitions(topics)
        if self._section.discovery is Discovery.S3:
            return listed
        if self._section.discovery is Discovery.ETCD:
            return listed & self._served()
        if not self._section.etcd.endpoints:
            return listed
        try:
            served = self._served()
        except FrazilError as error:
            if not self._warned:
                _log.warning("partitions are those of the bucket alone", error=error.reason)
            self._warned = True
            return listed
        self._warned = False
        return listed & served

    def _served(self) -> frozenset[TopicPartition]:
        (found,) = self._connect().read_each([Range(SNAPSHOT_KEY)])
        if not found:
            message = f"etcd has no key {SNAPSHOT_KEY}: no broker has described its topics yet."
            raise SourceUnavailableError(message)
        return parse_cluster_snapshot(found[0].value)
