"""What a table's metadata says at one moment: facts, without scanning anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.clients.iceberg.translation import translated
from frazil.codec.iceberg_json import schema_from_json, sort_order_from_json, spec_from_json
from frazil.codec.malformed import MalformedFileError
from frazil.codec.marker_json import decode_marker
from frazil.errors import MarkerLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.model.marker import Marker, Role
    from frazil.model.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema import Schema


class SnapshotOperation(StrEnum):
    """What Iceberg says a snapshot did."""

    APPEND = "append"
    REPLACE = "replace"
    OVERWRITE = "overwrite"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot of the main branch."""

    id: int
    parent: int | None
    sequence: int
    operation: SnapshotOperation
    summary: Mapping[str, str]

    def count(self, name: str) -> int:
        """A number of the summary; what is not there is zero."""
        return int(self.summary.get(name, "0"))


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at the moment it was asked."""

    uuid: str
    format_version: int
    location: str
    last_column_id: int
    properties: Mapping[str, str]
    head: SnapshotFacts | None

    def marker(self, role: Role, *, table: str) -> Marker | None:
        """The marker as it stands in the properties; whether it is valid is another question."""
        text = self.properties.get(role.property_name)
        if text is None:
            return None
        try:
            return decode_marker(text)
        except MalformedFileError as error:
            message = f"the property {role.property_name} is not a marker: {error}."
            raise MarkerLostError(
                message, table=table, next_step=f"frazil position show {table}"
            ) from error


class TableReader:
    """Asks one table's metadata; ``metadata`` is Iceberg's own object of one version of it."""

    def __init__(self, gateway: IcebergGateway, name: str) -> None:
        self._gateway = gateway
        self._name = name
        # A version of the metadata never changes, so its facts are asked for once.
        self._last: tuple[JavaObject, TableState] | None = None

    def state(self, metadata: JavaObject) -> TableState:
        """The facts of this version."""
        last = self._last
        if last is not None and last[0] is metadata:
            return last[1]
        with translated(self._name, "reading the table's metadata"):
            state = TableState(
                uuid=metadata.uuid(),
                format_version=metadata.formatVersion(),
                location=metadata.location(),
                last_column_id=metadata.lastColumnId(),
                properties=self._gateway.to_json(metadata.properties()),
                head=self._facts(metadata.currentSnapshot()),
            )
        self._last = (metadata, state)
        return state

    def head(self, metadata: JavaObject) -> SnapshotFacts | None:
        """The current snapshot of this version."""
        with translated(self._name, "reading the table's head"):
            return self._facts(metadata.currentSnapshot())

    def snapshot(self, metadata: JavaObject, snapshot_id: int) -> SnapshotFacts | None:
        """One snapshot, or None when it was expired or never was."""
        with translated(self._name, "reading a snapshot"):
            return self._facts(metadata.snapshot(snapshot_id))

    def walk(self, metadata: JavaObject) -> Iterator[SnapshotFacts]:
        """The head and what it grew from, newest first, asked for one by one."""
        current = self.head(metadata)
        while current is not None:
            yield current
            parent = current.parent
            current = None if parent is None else self.snapshot(metadata, parent)

    def ancestry(self, metadata: JavaObject) -> tuple[SnapshotFacts, ...]:
        """The head and what it grew from, newest first, as far as snapshots are kept."""
        return tuple(self.walk(metadata))

    def schema(self, metadata: JavaObject) -> Schema:
        """The current schema."""
        with translated(self._name, "reading the table's schema"):
            return schema_from_json(self._gateway.schema_parser.toJson(metadata.schema()))

    def spec(self, metadata: JavaObject) -> PartitionSpec:
        """The current partitioning."""
        with translated(self._name, "reading the table's partitioning"):
            return spec_from_json(self._gateway.spec_parser.toJson(metadata.spec()))

    def sort_order(self, metadata: JavaObject) -> SortOrder:
        """The current sort order."""
        with translated(self._name, "reading the table's sort order"):
            return sort_order_from_json(
                self._gateway.sort_order_parser.toJson(metadata.sortOrder())
            )

    def _facts(self, snapshot: JavaObject | None) -> SnapshotFacts | None:
        if snapshot is None:
            return None
        return SnapshotFacts(
            id=snapshot.snapshotId(),
            parent=snapshot.parentId(),
            sequence=snapshot.sequenceNumber(),
            operation=SnapshotOperation(snapshot.operation()),
            summary=self._gateway.to_json(snapshot.summary()),
        )
