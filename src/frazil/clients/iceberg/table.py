"""One Iceberg table: its metadata, reads of its rows, commits to it, and access to its files."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import Committer, Receipt, StrictCommit
from frazil.clients.iceberg.file_access import Renewal, load_access
from frazil.clients.iceberg.read.live_files import LiveFiles
from frazil.clients.iceberg.read.table_metadata import TableReader, check_range
from frazil.clients.iceberg.upkeep import TableUpkeep
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.clients.java_errors import translated
from frazil.codec.iceberg_json import schema_from_json, sort_order_from_json, spec_from_json
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.schema.change import plan_evolution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, DataFrameReader

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.model.marker import Marker, MarkerRole
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName

# Loading one snapshot takes a third of a millisecond, loading two thousand together fifty.
_LOADED_ONE_BY_ONE = 100


class LakeTable:
    """An open table; has the driver's gateway and stays on the driver."""

    def __init__(
        self,
        gateway: IcebergGateway,
        table: JavaObject,
        name: TableName,
        *,
        reload: Callable[[], JavaObject],
        invalidate: Callable[[], None],
    ) -> None:
        self.name = name
        self._gateway = gateway
        self._table = table
        self._reload = reload
        self._invalidate = invalidate
        self._reader = TableReader(gateway, str(name))
        self._clock = SystemClock()
        self._randomness = SystemRandomness()
        self._committer = Committer(
            gateway,
            table,
            name=str(name),
            uuid=str(table.operations().current().uuid()),
            reader=self._reader,
            reload=reload,
        )
        self._renewal = self._begin_renewal()

    def load_version(self) -> TableVersion:
        """The table as it is now, to be asked several questions about one moment."""
        metadata = self._refreshed()
        return TableVersion(
            gateway=self._gateway,
            table=self._table,
            metadata=metadata,
            reader=self._reader,
            committer=self._committer,
        )

    def load_state(self) -> TableMetadata:
        """The current metadata."""
        return self._reader.state(self._refreshed())

    def load_marker(self, role: MarkerRole) -> Marker | None:
        """The current valid marker; None for a table nothing was written to."""
        return self._committer.marker(self._refreshed(), role)

    def load_schema(self) -> Schema:
        """The current schema."""
        return self.load_version().schema

    def check_evolution(self, wanted: Schema) -> None:
        """Refuse a schema the table cannot follow, with all differences.

        ``wanted`` keeps the id of the schema it was made from. When the table has another one now,
        nothing is compared: the commit decides whether that was ours.
        """
        version = self.load_version()
        if version.schema.schema_id == wanted.schema_id:
            state = version.state
            plan_evolution(
                version.schema,
                wanted,
                last_column_id=state.last_column_id,
                format_version=state.format_version,
            )

    def load_metadata_location(self) -> str:
        """The location of the current metadata file, for readers without a catalog."""
        return str(self._refreshed().metadataFileLocation())

    def load_write_target(self, schema: Schema | None = None) -> WriteTarget:
        """What a task needs to write files of this table, credentials included; picklable.

        ``schema`` is the one committed together with the files, if it changes.
        """
        return self.load_version().write_target(schema)

    def load_ancestry(self) -> tuple[SnapshotFacts, ...]:
        """The current snapshot and its ancestors, newest first."""
        return tuple(self.iter_ancestry())

    def iter_ancestry(self) -> Iterator[SnapshotFacts]:
        """The same, loaded one by one as the caller iterates."""
        return self._reader.iter_ancestry(self._refreshed())

    def iter_with_expired(self) -> Iterator[SnapshotFacts]:
        """The same, with expired snapshots as far as earlier versions of the metadata list them."""
        return self._committer.iter_with_expired(self._refreshed())

    def load_live_files(self, snapshot_id: int) -> tuple[LiveFile, ...]:
        """The data files of a snapshot with their deletes, from the manifests."""
        return LiveFiles(self._gateway, self._table, str(self.name)).load(snapshot_id)

    def upkeep(self) -> TableUpkeep:
        """What keeps the table small; loads the table again if its credentials end."""
        self._refreshed()
        return TableUpkeep(self._gateway, self._table, self.name)

    def commit(self, commit: StrictCommit) -> Receipt:
        """One attempt; what happened is in the receipt or in the error."""
        with translated(str(self.name), "refreshing the table"):
            self._renew()
        receipt = self._committer.commit(commit)
        self.show_latest()
        return receipt

    def append(self, commit: StrictCommit, retry: RetryPolicy | None = None) -> Receipt:
        """Commit files that are valid on any head; retries on conflicts."""
        return repeat_on_conflict(
            lambda: self.commit(commit),
            retry or RetryPolicy(),
            clock=self._clock,
            randomness=self._randomness,
        )

    def read(self, snapshot_id: int | None = None) -> DataFrame:
        """All rows, as of the given snapshot or the current one."""
        with translated(str(self.name), "reading the table"):
            reader = self._fresh_reader()
            if snapshot_id is not None:
                reader = reader.option("versionAsOf", str(snapshot_id))
            return reader.load(self.name.quoted)

    def read_between(self, after: int | None, through: int) -> DataFrame:
        """The rows appended after one snapshot up to another, its descendant.

        Raises ForeignChangeError when a snapshot between them is anything but an append or a
        compaction: Iceberg's incremental read would skip it silently.
        """
        check_range(self.load_ancestry(), after=after, through=through, table=str(self.name))
        return self.read_planned(after, through)

    def read_planned(self, after: int | None, through: int) -> DataFrame:
        """The same for a range that a plan has checked: snapshots that add no rows are skipped.

        A range has the columns of the table's current schema, a full read those of the snapshot's
        schema.
        """
        if after is None:
            # Not a range: it would miss snapshots before the oldest one kept.
            return self.read(through)
        if after == through:
            return self.read(through).limit(0)
        with translated(str(self.name), "reading a range of the table"):
            return (
                self._fresh_reader()
                .option("start-snapshot-id", str(after))
                .option("end-snapshot-id", str(through))
                .load(self.name.quoted)
            )

    def show_latest(self) -> None:
        """Make the last commit visible to all readers in this session.

        Spark caches tables it has read, without later commits of ours or of other processes.
        """
        with translated(str(self.name), "refreshing the table"):
            self._invalidate()

    def _fresh_reader(self) -> DataFrameReader:
        self.show_latest()
        return self._gateway.session.read.format("iceberg")

    def _refreshed(self) -> JavaObject:
        with translated(str(self.name), "refreshing the table"):
            self._renew()
            return self._table.operations().refresh()

    def _renew(self) -> None:
        """Load the table again before vended credentials expire: refreshing keeps the old ones."""
        if self._renewal.is_due():
            self._table = self._reload()
            self._committer.go_on_with(self._table)
            self._renewal = self._begin_renewal()

    def _begin_renewal(self) -> Renewal:
        return Renewal(load_access(self._gateway, self._table), self._clock)


class TableVersion:
    """Immutable metadata of one version: all reads are consistent; stays on the driver."""

    def __init__(
        self,
        *,
        gateway: IcebergGateway,
        table: JavaObject,
        metadata: JavaObject,
        reader: TableReader,
        committer: Committer,
    ) -> None:
        self._gateway = gateway
        self._table = table
        self._metadata = metadata
        self._reader = reader
        self._committer = committer
        self._name = reader.name

    @property
    def state(self) -> TableMetadata:
        """Identity, properties and head."""
        return self._reader.state(self._metadata)

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.schema_of(None)

    def schema_of(self, schema_id: int | None) -> Schema:
        """A schema the table has or had; the current one for a snapshot that names none."""
        with translated(self._name, "reading the table's schema"):
            if schema_id is None:
                schema = self._metadata.schema()
            else:
                schema = self._metadata.schemasById().get(schema_id)
            return schema_from_json(self._gateway.schema_parser.toJson(schema))

    @property
    def spec(self) -> PartitionSpec:
        """The current partitioning."""
        with translated(self._name, "reading the table's partitioning"):
            return spec_from_json(self._gateway.spec_parser.toJson(self._metadata.spec()))

    def spec_of(self, spec_id: int) -> PartitionSpec:
        """A partitioning that the table has or had."""
        with translated(self._name, "reading the table's partitioning"):
            spec = self._metadata.specsById().get(spec_id)
            return spec_from_json(self._gateway.spec_parser.toJson(spec))

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        with translated(self._name, "reading the table's sort order"):
            order = self._gateway.sort_order_parser.toJson(self._metadata.sortOrder())
            return sort_order_from_json(order)

    def marker(self, role: MarkerRole) -> Marker | None:
        """The valid marker; raises like ``LakeTable.load_marker``."""
        return self._committer.marker(self._metadata, role)

    def write_target(self, schema: Schema | None = None) -> WriteTarget:
        """What a task needs to write files of this table, credentials included; picklable.

        ``schema`` is the one committed together with the files, if it changes.
        """
        state = self.state
        with translated(self._name, "asking how the table's files are reached"):
            io_properties = load_access(self._gateway, self._table)
        return plan_write_target(
            table=self._name,
            location=state.location,
            schema=schema or self.schema,
            spec=self.spec,
            sort_order=self.sort_order,
            properties=state.properties,
            io_properties=io_properties,
            format_version=state.format_version,
        )

    def history(self, *, until: int | None = None) -> tuple[SnapshotFacts, ...]:
        """The head and its ancestors, newest first, down to ``until`` or the oldest one kept."""
        found = []
        for snapshot in self._iter_history():
            found.append(snapshot)
            if snapshot.id == until:
                break
        return tuple(found)

    def load_removed_sequence(self, snapshot_id: int) -> int:
        """The highest data sequence number of the files that this snapshot removed, or -1.

        Not the file sequence number: files written by a compaction keep the data sequence number
        of their rows. Takes a gateway call per file.
        """
        with translated(self._name, "reading what a snapshot removed"):
            snapshot = self._metadata.snapshot(snapshot_id)
            changes = self._gateway.snapshot_changes.builderFor(self._table)
            removed = changes.snapshot(snapshot).build().removedDataFiles().iterator()
            highest = -1
            while removed.hasNext():
                highest = max(highest, int(removed.next().dataSequenceNumber()))
        return highest

    def _iter_history(self) -> Iterator[SnapshotFacts]:
        """One by one at first, because few are needed nearly always; then all together."""
        last = None
        for last in islice(self._reader.iter_ancestry(self._metadata), _LOADED_ONE_BY_ONE):
            yield last
        if last is None or last.parent is None:
            return
        known = self._reader.all_snapshots(self._metadata)
        below = known.get(last.parent)
        while below is not None:
            yield below
            below = None if below.parent is None else known.get(below.parent)
