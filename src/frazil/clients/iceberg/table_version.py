"""One version of a table: all reads are consistent."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_access import load_access
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.clients.java_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.iceberg.commit.strict_commit import Committer
    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata, TableReader
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.model.marker import Marker, MarkerRole
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema

# Loading one snapshot takes a third of a millisecond, loading two thousand together fifty.
_LOADED_ONE_BY_ONE = 100


class TableVersion:
    """Immutable metadata; has the driver's gateway and stays on the driver."""

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
        return self._reader.schema(self._metadata)

    def schema_of(self, schema_id: int) -> Schema:
        """A schema the table has or had."""
        return self._reader.schema(self._metadata, schema_id)

    @property
    def spec(self) -> PartitionSpec:
        """The current partitioning."""
        return self._reader.spec(self._metadata)

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self._reader.sort_order(self._metadata)

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
