"""The root of the document, and the settings of one table: its own over those for all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Self, TypeVar

from pydantic import Field, model_validator

from frazil.config.models.buffer_source import BufferSection
from frazil.config.models.catalog import CLEAR_TEXT, Catalog, Storage
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.config.models.maintenance import Maintenance, MaintenanceOverride
from frazil.config.models.naming import PipelineName
from frazil.config.models.observability import Telemetry
from frazil.config.models.postgres_source import PostgresSection
from frazil.config.models.running import (
    SHUTDOWN_GRACE,
    DeadLetters,
    Ingest,
    LedgerSection,
    Merge,
    Retry,
    Spark,
)
from frazil.config.models.section import Broken, KeyPath, Section, defaults
from frazil.config.models.tables import (
    TOMBSTONES_KEPT,
    Changelog,
    ColumnSettings,
    IndexOverrides,
    Mirror,
    Table,
    WriteOverrides,
)
from frazil.config.models.values import Duration, is_clear_text
from frazil.model.policy import Order

Source = Annotated[PostgresSection | KafscaleSection | BufferSection, Field(discriminator="kind")]

_SectionT = TypeVar("_SectionT", bound=Section)

# Columns of the buffer's writer begin so; ours are added to them.
BUFFER_COLUMN_PREFIX = "_cdc_"
# And so are its tables called.
BUFFER_CHANGELOG = {"namespace": "cdc", "table": "{schema}_{table}"}
# Postgres cuts identifiers here.
_LONGEST_IDENTIFIER = 63

_MIRROR_KEYS = (
    "format_version", "partition_by", "sort_by", "deletes", "on_drop", "evolution",
    "on_unrepresentable",
)  # fmt: skip
# A source has names that no document could list.
_NOT_LISTED = "not.listed"


class Config(Section):
    """A pipeline: where changes come from, where tables are, and how they are merged."""

    pipeline: PipelineName
    """Names slot, publication and ledger; labels every metric."""
    catalog: Catalog
    """Where tables are looked up and committed."""
    storage: Storage = defaults("Object stores.")
    source: Source | None = None
    """Where changes come from; none: merge existing changelogs only."""
    changelog: Changelog = defaults("History tables.")
    mirror: Mirror = defaults("Newest-state tables.")
    tables: tuple[Table, ...] = ()
    """Overrides per table; without a source, the list of merges."""
    ingest: Ingest = defaults("Batches into changelogs.")
    merge: Merge = defaults("Merges into mirrors.")
    maintenance: Maintenance = defaults("Upkeep of all tables.")
    dead_letters: DeadLetters = defaults("The table of what could not be written.")
    ledger: LedgerSection = defaults("The pipeline's ledger.")
    retry: Retry = defaults("Back-off between attempts.")
    shutdown_grace: Duration = SHUTDOWN_GRACE
    """Time to finish or abandon a batch on shutdown."""
    telemetry: Telemetry = defaults("Logs, metrics, pages.")
    spark: Spark = defaults("The Spark session.")

    @property
    def column_prefix(self) -> str:
        """The prefix of our columns, which the buffer source has its own default for."""
        is_given = "column_prefix" in self.changelog.model_fields_set
        if isinstance(self.source, BufferSection) and not is_given:
            return BUFFER_COLUMN_PREFIX
        return self.changelog.column_prefix

    def order_of(self, table: Table | None) -> Order:
        """The order a table's changelog promises, given or by the source's nature."""
        if table is not None and table.order is not None:
            return table.order
        # Neither partitions nor claimed events come in one order.
        is_unordered = isinstance(self.source, BufferSection | KafscaleSection)
        return Order.PER_KEY if is_unordered else Order.APPEND

    @model_validator(mode="after")
    def _name_after_pipeline(self) -> Self:
        # The model is frozen; here it is still being built.
        if isinstance(self.source, BufferSection):
            given = self.changelog.model_fields_set
            named = {key: name for key, name in BUFFER_CHANGELOG.items() if key not in given}
            self.__dict__["changelog"] = self.changelog.model_copy(update=named)
        for name in ("changelog", "mirror", "dead_letters", "ledger"):
            section: Section = getattr(self, name)
            self.__dict__[name] = _resolved(section, ("namespace", "table"), self.pipeline)
        if isinstance(self.source, PostgresSection):
            publication = _resolved(self.source.publication, ("name",), self.pipeline)
            source = _resolved(self.source, ("slot",), self.pipeline)
            self.__dict__["source"] = source.model_copy(update={"publication": publication})
        return self

    def broken_rules(self) -> Iterator[Broken]:
        """Rules about the document as a unit."""
        source_depends: tuple[KeyPath, ...] = (("source",), ("tables",))
        if self.source is None and not self.tables:
            yield Broken(
                (), "give a source to capture from, or tables to merge, or both", source_depends
            )
        if (self.changelog.namespace, self.changelog.table) == (
            self.mirror.namespace,
            self.mirror.table,
        ):
            is_changed = self.changelog.model_fields_set & {"namespace", "table"}
            location = "changelog" if is_changed else "mirror"
            yield Broken((location, "table"), "must differ between changelog and mirror")
        if isinstance(self.source, PostgresSection):
            yield from self._identifier_rules(self.source)
        yield from self._table_rules()
        yield from self._store_rules()

    def _store_rules(self) -> Iterator[Broken]:
        """Keys of S3 sign and are never sent, but a key that encrypts goes with every request."""
        given = self.catalog.properties
        endpoint = given.get("s3.endpoint", self.storage.s3.endpoint)
        is_key_sent = given.get("s3.sse.type") == "custom" and not self.catalog.allow_insecure
        if is_key_sent and is_clear_text(endpoint):
            location: KeyPath = ("catalog", "properties", "s3.endpoint")
            if "s3.endpoint" not in given:
                location = ("storage", "s3", "endpoint")
            yield Broken(location, CLEAR_TEXT.format("catalog"))

    def _identifier_rules(self, source: PostgresSection) -> Iterator[Broken]:
        for location, name in (
            (("source", "slot"), source.slot),
            (("source", "publication", "name"), source.publication.name),
        ):
            if len(name.replace("{pipeline}", self.pipeline).encode()) > _LONGEST_IDENTIFIER:
                sentence = f"must not be longer than {_LONGEST_IDENTIFIER} bytes"
                yield Broken(location, sentence, (("pipeline",),))

    def _table_rules(self) -> Iterator[Broken]:
        first: dict[str, int] = {}
        for index, table in enumerate(self.tables):
            if first.setdefault(table.mirror, index) != index:
                yield Broken(
                    ("tables", index, "mirror"),
                    f"is already listed in tables[{first[table.mirror]}]",
                )
            if table.changelog == table.mirror:
                yield Broken(("tables", index, "changelog"), "must not be the mirror itself")
            if table.tombstones is not None and self.order_of(table) is not Order.PER_KEY:
                location: KeyPath = ("tables", index, "tombstones")
                depends: tuple[KeyPath, ...] = (("source",), ("tables", index, "order"))
                yield Broken(location, "needs order: per_key", depends)
            if self.source is None:
                yield from _merge_only_rules(index, table)
            yield from self._upkeep_rules(index, table)

    def _upkeep_rules(self, index: int, table: Table) -> Iterator[Broken]:
        """The rules of maintenance, with what the table sets differently."""
        if table.maintenance == type(table.maintenance)():
            return
        own = _overridden(self.maintenance, table.maintenance)
        for name, section in (("compact", own.compact), ("orphans", own.orphans)):
            for each in section.broken_rules():
                at: KeyPath = ("tables", index, "maintenance", name)
                depends = tuple((*at, *path) for path in each.depends)
                yield Broken((*at, *each.location), each.sentence, (("maintenance",), *depends))


def _merge_only_rules(index: int, table: Table) -> Iterator[Broken]:
    if table.changelog is None:
        sentence = "is required without a source: namespace.table of the changelog"
        yield Broken(("tables", index, "changelog"), sentence, (("source",),))
    if not table.key:
        sentence = "is required without a source: the key columns"
        yield Broken(("tables", index, "key"), sentence, (("source",),))


def _resolved(section: _SectionT, names: tuple[str, ...], pipeline: str) -> _SectionT:
    texts = {name: getattr(section, name).replace("{pipeline}", pipeline) for name in names}
    changed = {name: text for name, text in texts.items() if text != getattr(section, name)}
    return section.model_copy(update=changed) if changed else section


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Everything the document says about one mirror and its changelog.

    ``changelog`` is None and ``key`` empty when the source decides them; ``tombstones`` is None
    when the order is append, ``changelog_partition_by`` when it is not given.
    """

    name: str
    changelog: str | None
    key: tuple[str, ...]
    sequence: str
    operation: str
    order: Order
    tombstones: timedelta | None
    columns: Mapping[str, ColumnSettings]
    column_prefix: str
    changelog_partition_by: tuple[str, ...] | None
    mirror: Mirror
    maintenance: Maintenance


def table_settings(config: Config, mirror: str) -> TableSettings:
    """The settings of the mirror with this name, whether the document lists it or not."""
    table = next((t for t in config.tables if t.mirror == mirror), None)
    own = table if table is not None else Table(mirror=_NOT_LISTED)
    prefix = own.column_prefix or config.column_prefix
    order = config.order_of(table)
    tombstones = (own.tombstones or TOMBSTONES_KEPT) if order is Order.PER_KEY else None
    partition_by = own.changelog_partition_by
    if partition_by is None and "partition_by" in config.changelog.model_fields_set:
        partition_by = config.changelog.partition_by
    return TableSettings(
        name=mirror,
        changelog=own.changelog,
        key=own.key,
        sequence=own.sequence or f"{prefix}sequence_number",
        operation=own.operation or f"{prefix}operation",
        order=order,
        tombstones=tombstones,
        columns=own.columns,
        column_prefix=prefix,
        changelog_partition_by=partition_by,
        mirror=_merged(config.mirror, own),
        maintenance=_overridden(config.maintenance, own.maintenance),
    )


def _merged(mirror: Mirror, own: Table) -> Mirror:
    changes = {key: getattr(own, key) for key in _MIRROR_KEYS if getattr(own, key) is not None}
    write = mirror.write.model_copy(update=_given(own.write))
    index = mirror.index.model_copy(update=_given(own.index))
    return mirror.model_copy(update={**changes, "write": write, "index": index})


def _overridden(section: _SectionT, own: MaintenanceOverride) -> _SectionT:
    """The section with what a table sets differently, at any depth."""
    changes: dict[str, object] = {}
    for name in type(own).model_fields:
        value = getattr(own, name)
        if isinstance(value, MaintenanceOverride):
            changes[name] = _overridden(getattr(section, name), value)
        elif value is not None:
            changes[name] = value
    return section.model_copy(update=changes) if changes else section


def _given(overrides: WriteOverrides | IndexOverrides) -> dict[str, object]:
    # An override of 0 or false counts; only what is left out does not.
    values = {name: getattr(overrides, name) for name in type(overrides).model_fields}
    return {name: value for name, value in values.items() if value is not None}
