"""One Iceberg table: its metadata, reads of its rows, and commits to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import Committer, Receipt, StrictCommit
from frazil.clients.iceberg.file_access import Renewal, load_access
from frazil.clients.iceberg.read.live_files import LiveFiles
from frazil.clients.iceberg.read.snapshot_range import check_range
from frazil.clients.iceberg.read.table_metadata import TableReader
from frazil.clients.iceberg.table_version import TableVersion
from frazil.clients.java_errors import translated
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.schema.evolution import plan_evolution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, DataFrameReader

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.hooks import Clock, Randomness
    from frazil.model.marker import Marker, MarkerRole
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName


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
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.name = name
        self._gateway = gateway
        self._table = table
        self._reload = reload
        self._invalidate = invalidate
        self._reader = TableReader(gateway, str(name))
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
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
        return self._reader.schema(self._refreshed())

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

    def load_spec(self) -> PartitionSpec:
        """The current partitioning."""
        return self._reader.spec(self._refreshed())

    def load_sort_order(self) -> SortOrder:
        """The current sort order."""
        return self._reader.sort_order(self._refreshed())

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
        return self._reader.ancestry(self._refreshed())

    def iter_ancestry(self) -> Iterator[SnapshotFacts]:
        """The same, loaded one by one as the caller iterates."""
        return self._reader.iter_ancestry(self._refreshed())

    def iter_with_expired(self) -> Iterator[SnapshotFacts]:
        """The same, with expired snapshots as far as earlier versions of the metadata list them."""
        return self._committer.iter_with_expired(self._refreshed())

    def load_live_files(self, snapshot_id: int) -> tuple[LiveFile, ...]:
        """The data files of a snapshot with their deletes, from the manifests."""
        return LiveFiles(self._gateway, self._table, str(self.name)).load(snapshot_id)

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
