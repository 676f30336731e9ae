"""A KafScale source, checked before anything is started; nothing is written.

What is not configured is not asked: etcd only with an address and a use, the registry only for
topics that need a schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.clients.etcd.transactions import Equals, Fact, Put, Range, Txn
from frazil.config.models.kafscale_source import (
    ColumnsFrom,
    Discovery,
    OffsetsBackend,
    Validation,
)
from frazil.config.models.values import suggestion
from frazil.errors import ConfigError, FrazilError, SourceUnavailableError, StorageError
from frazil.hooks import SystemClock
from frazil.model import humanize
from frazil.sources.findings import (
    CheckedItem,
    CheckOutcome,
    Findings,
    FoundTable,
    problem_of,
    stops,
    warns,
)
from frazil.sources.kafscale.coordination.holders import load_holders
from frazil.sources.kafscale.coordination.keys import CoordinationKeys, refuse_other_pipelines
from frazil.sources.kafscale.coordination.workers import connect_etcd
from frazil.sources.kafscale.reading.record_rows import BASE_COLUMNS, LFS_COLUMNS
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry
from frazil.sources.kafscale.segments.cluster_snapshot import SNAPSHOT_KEY, parse_cluster_snapshot
from frazil.sources.kafscale.segments.discovery import SegmentBound, SegmentListing
from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from frazil.clients.etcd.client import Etcd
    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import KafscaleSection, Topic, TopicColumn
    from frazil.hooks import Clock
    from frazil.sources.findings import Problem
    from frazil.sources.kafscale.segments.discovery import SegmentObject

# What brokers are given unless someone sets KAFSCALE_S3_NAMESPACE.
_BROKERS_NAMESPACE: Final = "default"
# A bucket with more is not looked through for where the topics are.
_MOST_NAMESPACES: Final = 50
_NO_BUCKET: Final = (
    "Check source.bucket, and endpoint, region, path_style and keys under storage.s3; they must "
    "allow s3:ListBucket."
)
_NO_OBJECT: Final = "The keys under storage.s3 must allow s3:GetObject on it."
_NO_REGISTRY: Final = "Check source.registry.base_url, and whether the registry runs."
_NO_VERSION: Final = -1
_ONE: Final = SegmentBound(bytes=1, segments=1)
_CLOCK: Final = SystemClock()


def check_readiness(section: KafscaleSection, bucket: Bucket) -> Findings:
    """What keeps a run from capturing anything; raises what prevents the check."""
    SegmentListing(bucket, section.namespace).list_topics()
    if uses_etcd(section):
        try:
            _ask_etcd(section)
        except SourceUnavailableError:
            if _requires_etcd(section):
                raise
    return Findings()


def check_source(
    section: KafscaleSection, bucket: Bucket, pipeline: str = "", *, clock: Clock = _CLOCK
) -> Findings:
    """Everything about the source; what prevents the check is a problem too."""
    return _Check(section, bucket, clock, pipeline).run()


def uses_etcd(section: KafscaleSection) -> bool:
    """Whether anything is read from etcd or written there."""
    return bool(section.etcd.endpoints) and (
        section.offsets.backend is OffsetsBackend.ETCD or section.discovery is not Discovery.S3
    )


def _requires_etcd(section: KafscaleSection) -> bool:
    """Otherwise topics are found in the bucket while it is away."""
    return section.offsets.backend is OffsetsBackend.ETCD or section.discovery is Discovery.ETCD


def _ask_etcd(section: KafscaleSection) -> tuple[Etcd, bytes | None]:
    """The cluster, and the brokers' description where topics are looked up in it.

    A user who may claim partitions need not be allowed to read that description.
    """
    etcd = connect_etcd(section)
    if section.discovery is Discovery.S3:
        load_holders(etcd, CoordinationKeys(section.offsets.key_prefix))
        return etcd, None
    (found,) = etcd.read_each([Range(SNAPSHOT_KEY)])
    return etcd, found[0].value if found else None


class _Check:
    """One check, and what it has found so far."""

    def __init__(
        self, section: KafscaleSection, bucket: Bucket, clock: Clock, pipeline: str
    ) -> None:
        self._section = section
        self._pipeline = pipeline
        self._bucket = bucket
        self._listing = SegmentListing(bucket, section.namespace)
        self._registry = SchemaRegistry(section.registry, clock)
        self._topics = {each.topic: each for each in section.topics}
        self._checked: list[CheckedItem] = []
        self._problems: list[Problem] = []
        self._error: FrazilError | None = None

    def run(self) -> Findings:
        if not self._topics:
            self._problems.append(
                warns("source.topics is empty: nothing is captured. Map topics to tables there.")
            )
        self._check_bucket()
        if uses_etcd(self._section):
            self._check_etcd()
        self._check_columns()
        return Findings(
            checked=tuple(self._checked),
            problems=tuple(self._problems),
            error=self._error,
            tables=tuple(FoundTable(each.topic, each.key) for each in self._topics.values()),
        )

    def _found(self, about: str, found: str) -> None:
        self._checked.append(CheckedItem(about, found))

    # --- the bucket ---

    def _check_bucket(self) -> None:
        try:
            there = self._listing.list_topics()
            shown = self._section.namespace.strip("/") or "of the entire bucket"
            count = humanize.counted(len(there), "topic")
            self._found("bucket", f"{self._bucket.name}, namespace {shown}, has {count}")
            self._check_namespace(there)
            for topic in self._topics:
                self._check_topic(topic, there)
        except StorageError as error:
            self._error = error
            self._problems.append(problem_of(error, advice=_NO_BUCKET))

    def _check_namespace(self, there: Collection[str]) -> None:
        if not self._section.namespace.strip("/") and self._has_default_namespace(there):
            self._problems.append(
                warns(
                    "source.namespace is empty, and keys in the bucket begin with default/, as "
                    "brokers write them: set source.namespace: default."
                )
            )
        elif self._topics and not self._topics.keys() & set(there):
            for other in self._bucket.list_folders("")[:_MOST_NAMESPACES]:
                if self._topics.keys() & set(self._bucket.list_folders(f"{other}/")):
                    self._problems.append(
                        warns(
                            f"No mapped topic is in namespace {self._section.namespace}, and "
                            f"{other} has some: set source.namespace: {other}."
                        )
                    )
                    return

    def _has_default_namespace(self, there: Collection[str]) -> bool:
        if _BROKERS_NAMESPACE not in there or _BROKERS_NAMESPACE in self._topics:
            return False
        below = self._bucket.list_folders(f"{_BROKERS_NAMESPACE}/")
        # A topic of that name would have nothing but numbers.
        return any(not name.isdecimal() for name in below)

    def _check_topic(self, topic: str, there: Collection[str]) -> None:
        partitions = sorted(self._listing.list_partitions([topic]))
        first = next(filter(None, map(self._find_first, partitions)), None)
        if first is None:
            known = [name for name in there if name != topic]
            self._problems.append(
                warns(
                    f"Topic {topic} has no segment in the bucket{suggestion(topic, known)}. Check "
                    "the name in source.topics; it is captured as soon as it has one.",
                    table=topic,
                )
            )
            return
        try:
            end = self._listing.read_ends([first]).get(first.key)
        except StorageError as error:
            refused = problem_of(error, advice=_NO_OBJECT)
            self._problems.append(stops(refused.sentence, table=topic))
            return
        if end is None or end.last_offset is None:
            self._problems.append(
                warns(
                    f"The segment {first.key} is damaged, as it has no footer. Its partition stops "
                    "there, unless source.on_bad_segment is dead_letter. Look into it with "
                    "frazil decode segment.",
                    table=topic,
                )
            )
            return
        self._found(f"topic {topic}", humanize.counted(len(partitions), "partition"))

    def _find_first(self, partition: TopicPartition) -> SegmentObject | None:
        """The oldest segment, found without listing all others."""
        found = self._listing.list_new(partition, 0, _ONE).segments
        return found[0] if found else None

    # --- etcd ---

    def _check_etcd(self) -> None:
        try:
            etcd, snapshot = _ask_etcd(self._section)
        except FrazilError as error:
            if _requires_etcd(self._section):
                self._error = self._error or error
                self._problems.append(problem_of(error))
            else:
                sentence = f"{problem_of(error).sentence} Topics are then found in the bucket."
                self._problems.append(warns(sentence))
            return
        user = self._section.etcd.username
        signed_in = "" if user is None else f", signed in as {user}"
        is_tls = any(each.startswith("https://") for each in self._section.etcd.endpoints)
        self._found("etcd", f"answers{' over TLS' if is_tls else ''}{signed_in}")
        if self._section.discovery is not Discovery.S3:
            self._check_snapshot(snapshot)
        if self._section.offsets.backend is OffsetsBackend.ETCD:
            self._check_coordination(etcd)

    def _check_snapshot(self, snapshot: bytes | None) -> None:
        if snapshot is None:
            sentence = f"the brokers have not written {SNAPSHOT_KEY} yet"
            if self._section.discovery is Discovery.ETCD:
                self._problems.append(
                    warns(f"In etcd {sentence}: nothing is captured until they do, unless "
                          "source.discovery is auto or s3.")
                )  # fmt: skip
            else:
                found = f"{sentence}; topics are found in the bucket"
                self._checked.append(CheckedItem("cluster", found, CheckOutcome.SKIPPED))
            return
        try:
            partitions = parse_cluster_snapshot(snapshot)
        except FrazilError as error:
            self._problems.append(problem_of(error))
            return
        served = {each.topic for each in partitions}
        self._found("cluster", f"serves {humanize.counted(len(served), 'topic')}")
        for topic in self._topics.keys() - served:
            self._problems.append(
                warns(
                    f"The brokers do not serve topic {topic}{suggestion(topic, served)}: it is not "
                    "captured. Check source.topics, or set source.discovery: s3.",
                    table=topic,
                )
            )

    def _check_coordination(self, etcd: Etcd) -> None:
        keys = CoordinationKeys(self._section.offsets.key_prefix)
        try:
            self._try_writing(etcd, keys)
            self._check_pipelines(etcd, keys)
            holders = load_holders(etcd, keys)
        except FrazilError as error:
            self._problems.append(problem_of(error))
            return
        held = {each: holder for each, holder in holders.items() if each.topic in self._topics}
        workers = {holder.name for holder in held.values() if holder.is_ours}
        found = f"{humanize.counted(len(held), 'partition')} held"
        if workers:
            found += f", by {humanize.counted(len(workers), 'worker')} of frazil"
        self._found("leases", found)
        foreign: dict[str, list[str]] = {}
        for partition, holder in sorted(held.items()):
            if not holder.is_ours:
                foreign.setdefault(holder.name, []).append(str(partition))
        for name, names in foreign.items():
            self._problems.append(
                warns(
                    f"{name}, a worker of KafScale's own processor, holds {_some(names)}: frazil "
                    "does not capture what it holds. Stop it, or remove its topics from "
                    "source.topics."
                )
            )

    def _check_pipelines(self, etcd: Etcd, keys: CoordinationKeys) -> None:
        (workers,) = etcd.read_each([Range(keys.workers, is_prefix=True)])
        values = [each.value for each in workers]
        refuse_other_pipelines(values, self._topics, self._pipeline, prefix=keys.prefix)

    @staticmethod
    def _try_writing(etcd: Etcd, keys: CoordinationKeys) -> None:
        """Etcd asks for permission to do all of a transaction before it compares anything."""
        for key in (
            keys.worker("check"),
            keys.lease(TopicPartition("check", 0)),
            keys.offset(TopicPartition("check", 0)),
            keys.watermark(TopicPartition("check", 0)),
        ):
            never = Equals(key, Fact.VERSION, _NO_VERSION)
            etcd.commit(Txn([Put(key, b"")], given=[never]))

    # --- columns ---

    def _check_columns(self) -> None:
        is_away = False
        for topic in self._topics.values():
            from_registry = self._section.columns_from(topic) is ColumnsFrom.REGISTRY
            self._check_names(topic, topic.columns, "source.topics[].columns")
            if is_away or (self._section.validation is Validation.OFF and not from_registry):
                continue
            try:
                schema = self._registry.load(topic.topic)
                columns = schema.columns() if from_registry else ()
            except SourceUnavailableError as error:
                # The others would wait for it as long again, and say the same.
                is_away = True
                self._problems.append(problem_of(error, advice=_NO_REGISTRY))
            except ConfigError as error:
                found = problem_of(error)
                self._problems.append(stops(found.sentence, table=topic.topic))
            else:
                declared = f", {humanize.counted(len(columns), 'column')}" if from_registry else ""
                self._found(f"schema of {topic.topic}", f"in the registry{declared}")
                self._check_names(topic, columns, "its schema in the registry")

    def _check_names(self, topic: Topic, columns: Iterable[TopicColumn], where: str) -> None:
        """Tables of records have columns of their own; changelogs do not."""
        if topic.table is None:
            return
        own = (*BASE_COLUMNS, *(LFS_COLUMNS if topic.lfs.store_metadata else ()))
        taken = {name for name, _, _ in own}
        # Spark does not tell upper and lower case apart.
        clashing = sorted(each.name for each in columns if each.name.lower() in taken)
        if clashing:
            self._problems.append(
                stops(
                    f"Topic {topic.topic}: every table of records has {_some(clashing)} already. "
                    f"Rename or leave out what {where} calls so.",
                    table=topic.topic,
                )
            )


def _some(names: list[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
