"""Settings of the KafScale source."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from frazil.config.models.catalog import CLEAR_TEXT
from frazil.config.models.naming import TableName
from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.tables import PartitionExpression, SortExpression
from frazil.config.models.values import (
    CountOrZero,
    Duration,
    LocalPath,
    Name,
    Secret,
    SizeOrZero,
    Text,
    Truth,
    WebAddress,
    has_password,
    is_clear_text,
    one_of,
)

# KafScale's own processor has these, and its documents rely on them.
LEASE_TTL = timedelta(seconds=30)
REGISTRY_TIMEOUT = timedelta(seconds=5)
REGISTRY_CACHE = timedelta(minutes=5)
RESOLVE_CONCURRENCY = 4


class Discovery(StrEnum):
    """Where topics and partitions are looked up."""

    AUTO = "auto"
    ETCD = "etcd"
    S3 = "s3"


class OffsetsBackend(StrEnum):
    """Where leases and offsets are published."""

    ETCD = "etcd"
    NONE = "none"


class Validation(StrEnum):
    """What happens to a record that does not match its schema."""

    OFF = "off"
    LENIENT = "lenient"
    STRICT = "strict"


class OnBadSegment(StrEnum):
    """What happens to a segment that does not decode."""

    STOP = "stop"
    DEAD_LETTER = "dead_letter"


class OnGap(StrEnum):
    """What happens when offsets are missing between two segments."""

    STOP = "stop"
    RECORD = "record"


class OnWrongValue(StrEnum):
    """What happens to a record with a value that its column cannot hold."""

    NULL = "null"
    DEAD_LETTER = "dead_letter"


class LfsMode(StrEnum):
    """What is done with a record that only points to its payload."""

    OFF = "off"
    RESOLVE = "resolve"
    REFERENCE = "reference"
    SKIP = "skip"
    HYBRID = "hybrid"


class ColumnsFrom(StrEnum):
    """Where the columns of a topic's table come from."""

    MAPPING = "mapping"
    REGISTRY = "registry"
    NONE = "none"


class Envelope(StrEnum):
    """What a record's value is wrapped in."""

    NONE = "none"
    DEBEZIUM = "debezium"


class TopicColumnType(StrEnum):
    """The types a JSON field can be read as."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    DATE = "date"


class Offsets(Section):
    """Leases, offsets and watermarks for other tools to see."""

    backend: Annotated[OffsetsBackend, one_of(OffsetsBackend)] = OffsetsBackend.ETCD
    """etcd, or none: one worker and the markers alone."""
    key_prefix: Name = "processors"
    """Prefix of the keys in etcd."""
    lease_ttl: Duration = LEASE_TTL
    """A dead worker is replaced after this."""


class EtcdSection(Section):
    """The etcd cluster of the brokers."""

    endpoints: tuple[WebAddress, ...] = Field(default=(), repr=False)
    """Addresses, http(s)://host:2379."""
    username: Name | None = None
    """User, when it requires one."""
    password: Secret | None = None
    """That user's password."""
    ca: LocalPath | None = None
    """File with the CA certificate."""
    allow_insecure: Truth = False
    """Send the password to http:// addresses of other machines."""

    def broken_rules(self) -> Iterator[Broken]:
        """A password needs a user, and must not be sent in clear text."""
        for index, address in enumerate(() if self.allow_insecure else self.endpoints):
            is_secret_sent = self.password is not None or has_password(address)
            if is_secret_sent and is_clear_text(address):
                yield Broken(("endpoints", index), CLEAR_TEXT.format("source.etcd"))
        if self.password is not None and self.username is None:
            yield Broken(("username",), "is required with password")


class Registry(Section):
    """JSON Schemas of the topics, as <base_url>/<topic>.json."""

    base_url: WebAddress | None = Field(default=None, repr=False)
    """Address of the registry."""
    timeout: Duration = REGISTRY_TIMEOUT
    """Longest wait for an answer."""
    cache: Duration = REGISTRY_CACHE
    """How long an answer is kept."""
    allow_insecure: Truth = False
    """Send a password to an http:// address of another machine."""

    def broken_rules(self) -> Iterator[Broken]:
        """A password in the address must not be sent in clear text."""
        is_secret_sent = has_password(self.base_url) and is_clear_text(self.base_url)
        if is_secret_sent and not self.allow_insecure:
            yield Broken(("base_url",), CLEAR_TEXT.format("source.registry"))


class Lfs(Section):
    """Payloads stored outside their records."""

    mode: Annotated[LfsMode, one_of(LfsMode)] = LfsMode.OFF
    """off, resolve, reference, skip or hybrid."""
    max_inline_size: SizeOrZero = 0
    """hybrid: payloads up to this size are resolved."""
    store_metadata: Truth = False
    """Keep the envelope's fields."""
    validate_checksum: Truth = True
    """Compare payload and checksum."""
    resolve_concurrency: CountOrZero = RESOLVE_CONCURRENCY
    """Payloads fetched at a time."""

    def broken_rules(self) -> Iterator[Broken]:
        """Hybrid is a decision by size."""
        if self.mode is LfsMode.HYBRID and self.max_inline_size == 0:
            yield Broken(("max_inline_size",), "must be more than 0 for mode hybrid", (("mode",),))


class TopicColumn(Section):
    """One declared column of a topic's table."""

    name: Name
    """Name of the field and of the column."""
    type: Annotated[TopicColumnType, one_of(TopicColumnType)]
    """Its type."""
    required: Truth = False
    """A record without it is invalid."""


class Topic(Section):
    """One topic and the table, or changelog and mirror, it becomes."""

    topic: Name
    """Name of the topic."""
    table: TableName | None = None
    """Append-only table, namespace.table."""
    changelog: TableName | None = None
    """Changelog, instead of table, for topics of changes."""
    mirror: TableName | None = None
    """Mirror merged from that changelog."""
    envelope: Annotated[Envelope, one_of(Envelope)] = Envelope.NONE
    """none, or debezium change events."""
    key: tuple[Name, ...] = ()
    """Key columns of the mirror."""
    create: Truth = True
    """Create the table when it is missing."""
    columns: tuple[TopicColumn, ...] = ()
    """Declared columns."""
    columns_from: Annotated[ColumnsFrom, one_of(ColumnsFrom)] | None = Field(
        default=None,
        description="mapping, registry or none; left out: mapping when columns are declared, "
        "else registry when there is one, else none.",
    )
    widen: Truth = True
    """Follow int to long and float to double."""
    sequence: Name = "offset"
    """What orders changes of one key: offset, or a field such as source.lsn."""
    on_wrong_value: Annotated[OnWrongValue, one_of(OnWrongValue)] | None = Field(
        default=None,
        description="A value that its column cannot hold: null, which is counted, or dead_letter "
        "for its record; left out: null for a table, dead_letter for a changelog.",
    )
    partition_by: tuple[PartitionExpression, ...] = ()
    """Partition expressions of the table, when it is created."""
    sort_by: tuple[SortExpression, ...] = ()
    """Sort expressions of the table, when it is created; records written together are sorted."""
    lfs: Lfs = defaults("Payloads stored outside their records.")

    @property
    def tables(self) -> dict[str, str]:
        """The tables it becomes, by the keys that name them."""
        given = {"table": self.table, "changelog": self.changelog, "mirror": self.mirror}
        return {key: name for key, name in given.items() if name is not None}

    def broken_rules(self) -> Iterator[Broken]:
        """A topic becomes a table or a changelog, and a mirror needs a changelog and a key."""
        if (self.table is None) == (self.changelog is None):
            yield Broken(("table",), "give either table or changelog", (("changelog",),))
        if self.mirror is not None and self.changelog is None:
            yield Broken(("mirror",), "needs changelog", (("changelog",),))
        if self.mirror is not None and not self.key:
            yield Broken(("key",), "is required with mirror")
        if self.envelope is Envelope.DEBEZIUM and self.changelog is None:
            yield Broken(("envelope",), "debezium needs changelog", (("changelog",),))
        if self.sort_by and self.changelog is not None:
            yield Broken(("sort_by",), "is for tables of records", (("changelog",),))
        yield from self._column_rules()

    def _column_rules(self) -> Iterator[Broken]:
        if self.columns_from is ColumnsFrom.MAPPING and not self.columns:
            yield Broken(("columns",), "is required with columns_from: mapping")
        repeated = _repeated(column.name for column in self.columns)
        for index, column in enumerate(self.columns):
            if column.name in repeated:
                yield Broken(("columns", index, "name"), "is declared twice")


def _repeated(names: Iterator[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


class KafscaleSection(Section):
    """Records from KafScale's segments in object storage."""

    kind: Literal["kafscale"]
    """kafscale"""
    bucket: Name
    """Bucket of the segments; the store is storage.s3."""
    namespace: Text = "default"
    """First part of the segments' keys; empty: the entire bucket."""
    discovery: Annotated[Discovery, one_of(Discovery)] = Discovery.AUTO
    """Find topics by auto, etcd or s3."""
    offsets: Offsets = defaults("Leases and offsets.")
    etcd: EtcdSection = defaults("The brokers' etcd.")
    registry: Registry = defaults("Schemas of the topics.")
    validation: Annotated[Validation, one_of(Validation)] = Validation.OFF
    """Compare records with their schema: off, lenient or strict."""
    on_bad_segment: Annotated[OnBadSegment, one_of(OnBadSegment)] = OnBadSegment.STOP
    """A segment that does not decode: stop, or dead_letter."""
    on_gap: Annotated[OnGap, one_of(OnGap)] = OnGap.STOP
    """Missing offsets: stop, or record and go on."""
    topics: tuple[Topic, ...] = ()
    """Topics and their tables."""

    def columns_from(self, topic: Topic) -> ColumnsFrom:
        """Where this topic's columns come from when it does not say so itself."""
        if topic.columns_from is not None:
            return topic.columns_from
        if topic.columns:
            return ColumnsFrom.MAPPING
        return ColumnsFrom.NONE if self.registry.base_url is None else ColumnsFrom.REGISTRY

    def broken_rules(self) -> Iterator[Broken]:
        """Whatever is switched on has an address; a topic is listed once, and so is a table."""
        if not self.etcd.endpoints:
            location, depends = ("etcd", "endpoints"), (("offsets",), ("discovery",))
            if self.offsets.backend is OffsetsBackend.ETCD:
                yield Broken(location, "is required with offsets.backend: etcd", depends)
            elif self.discovery is Discovery.ETCD:
                yield Broken(location, "is required with discovery: etcd", depends)
        yield from self._registry_rules()
        first: dict[str, int] = {}
        for index, topic in enumerate(self.topics):
            if first.setdefault(topic.topic, index) != index:
                yield Broken(
                    ("topics", index, "topic"),
                    f"is already mapped in topics[{first[topic.topic]}]",
                )
        yield from self._table_rules()

    def _table_rules(self) -> Iterator[Broken]:
        """Each topic says on its own how far its table is, and what a resync empties."""
        first: dict[str, str] = {}
        for index, topic in enumerate(self.topics):
            for key, name in topic.tables.items():
                place = f"topics[{index}].{key}"
                # Catalogs may ignore case.
                if (taken := first.setdefault(name.casefold(), place)) != place:
                    yield Broken(("topics", index, key), f"is already {taken}")

    def _registry_rules(self) -> Iterator[Broken]:
        if self.registry.base_url is not None:
            return
        location = ("registry", "base_url")
        if self.validation is not Validation.OFF:
            yield Broken(location, f"is required with validation: {self.validation}")
        for index, topic in enumerate(self.topics):
            if topic.columns_from is ColumnsFrom.REGISTRY:
                yield Broken(
                    ("topics", index, "columns_from"),
                    "registry needs registry.base_url",
                    (location,),
                )
