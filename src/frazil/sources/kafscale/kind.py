"""KafScale as a kind of source."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from frazil.clients.object_store import Bucket
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.errors import ConfigError
from frazil.hooks import SystemClock
from frazil.model.policy import OnWiden
from frazil.sources.kafscale.checks import check_readiness, check_source
from frazil.sources.kafscale.coordination.workers import Coordination, connect_etcd
from frazil.sources.kafscale.health import published_state, watch_health
from frazil.sources.kafscale.letter_replay import TopicReplayer
from frazil.sources.kafscale.plan_facts import KafscalePlanFacts
from frazil.sources.kafscale.record_counts import KafscaleRecords
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
from frazil.sources.kafscale.segments.discovery import SegmentListing
from frazil.sources.kafscale.source import KafscaleSource
from frazil.sources.kafscale.source_identity import source_identity
from frazil.sources.kafscale.topic_tables import TopicTables
from frazil.sources.kind import CapturePolicy, ListedTable, SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from frazil.config import Config
    from frazil.config.models.values import Secret
    from frazil.hooks import Clock
    from frazil.model.marker import Position
    from frazil.sources.findings import Findings
    from frazil.sources.kafscale.health import KafscaleHealth
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.kind import TableSettingsOf

# A look lists every partition: more often costs requests and shows nothing that people notice.
_LEAST_WATCH_SECONDS = 5.0


class KafscaleKind(SourceKind):
    """Topics of one cluster."""

    name = "kafscale"

    def __init__(self, config: Config, tables: TableSettingsOf) -> None:
        super().__init__(config, tables)
        if not isinstance(config.source, KafscaleSection):
            raise TypeError(config.source)
        self._section = config.source

    def validate(self) -> None:
        """A run without a topic has nothing to do."""
        if not self._section.topics:
            message = "no topic is mapped to a table."
            raise ConfigError(message, next_step="list topics under source.topics")

    @property
    def policy(self) -> CapturePolicy:
        """A topic that waits keeps its own partitions only; a column says when it is widened."""
        return CapturePolicy(held_bytes=0, on_widen=OnWiden.ACCEPT)

    @cached_property
    def bucket(self) -> Bucket:
        """The bucket of the segments."""
        store = self.config.storage.s3
        return Bucket(
            name=self._section.bucket,
            region=store.region,
            endpoint=store.endpoint,
            path_style=store.path_style,
            access_key_id=store.access_key_id,
            secret_access_key=_revealed(store.secret_access_key),
            session_token=_revealed(store.session_token),
        )

    @cached_property
    def _listing(self) -> SegmentListing:
        return SegmentListing(self.bucket, self._section.namespace)

    def _tables(self, clock: Clock) -> TopicTables:
        return TopicTables(self._section, SchemaRegistry(self._section.registry, clock))

    def _cluster(self, clock: Clock | None = None) -> ClusterPartitions:
        return ClusterPartitions(
            self._section, self._listing, lambda: connect_etcd(self._section), clock=clock
        )

    @cached_property
    def _watched_cluster(self) -> ClusterPartitions:
        return self._cluster()

    def _find_partitions(self) -> frozenset[TopicPartition]:
        return self._watched_cluster.find([each.topic for each in self._section.topics])

    @cached_property
    def _coordination(self) -> Coordination:
        return Coordination(self._section, self.config.pipeline)

    def open(
        self,
        *,
        clock: Clock | None = None,
        is_stopping: Callable[[], bool] = lambda: False,  # noqa: ARG002 - it never waits for long
    ) -> KafscaleSource:
        """The bucket, the registry and the other workers."""
        return KafscaleSource(
            self._section,
            self.bucket,
            listing=self._listing,
            cluster=self._cluster(clock),
            tables=self._tables(clock or SystemClock()),
            coordination=self._coordination,
            clock=clock,
        )

    def claim(self) -> Coordination:
        """Every worker has it; the first of them merges."""
        return self._coordination

    def watch(self) -> KafscaleHealth:
        """The ends of the partitions, who reads them, and how far."""
        seconds = max(_LEAST_WATCH_SECONDS, self.config.ingest.interval.total_seconds())
        return watch_health(
            self._section, self.bucket, seconds=seconds, discover=self._find_partitions
        )

    def check_readiness(self) -> Findings:
        """The bucket and etcd."""
        return check_readiness(self._section, self.bucket)

    def check(self) -> Findings:
        """The bucket, the topics, etcd, the registry and the columns."""
        return check_source(self._section, self.bucket, self.config.pipeline)

    def load_plan_facts(self) -> KafscalePlanFacts:
        """The partitions of the bucket; what waits in them is listed when a table is planned."""
        return KafscalePlanFacts(
            self._section,
            self.bucket,
            listing=self._listing,
            partitions=self._find_partitions(),
            tables=self._tables(SystemClock()),
            published=published_state(self._section),
        )

    def records(self) -> KafscaleRecords:
        """The offsets of records, by segments."""
        return KafscaleRecords(self._section, self.bucket, self._listing)

    def replayer(self) -> TopicReplayer:
        """Records of dead letters, from their segments."""
        return TopicReplayer(
            source_identity(self._section), self.bucket, self._listing, self._tables(SystemClock())
        )

    def listed_tables(self) -> tuple[ListedTable, ...]:
        """The tables that topics become."""
        return tuple(
            ListedTable(source=topic.topic, changelog=changelog, mirror=topic.mirror)
            for topic in self._section.topics
            # One of them, as the section's rules say.
            if (changelog := topic.changelog or topic.table) is not None
        )

    def position_problem(self, position: Position) -> str | None:
        """A position is an offset by partition."""
        if isinstance(position, str) or not position:
            return "a position in KafScale is a JSON object of offsets"
        mapped = {each.topic for each in self._section.topics}
        if not all(_names_partition(each, mapped) for each in position):
            return 'offsets are of partitions of mapped topics, as in {"orders/0": 12}'
        return None


def _names_partition(name: str, topics: Collection[str]) -> bool:
    topic, _, number = name.rpartition("/")
    return topic in topics and number.isascii() and number.isdecimal()


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
