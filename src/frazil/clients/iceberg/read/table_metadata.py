"""Facts from one version of a table's metadata, without a scan."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frazil.clients.java_errors import translated
from frazil.codec.malformed import MalformedFileError
from frazil.codec.marker_json import VERSION, decode_marker
from frazil.errors import ForeignChangeError, MarkerLostError, RolledBackError
from frazil.model.command import command
from frazil.model.recorded_version import NEWER_STEP, newer_version
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.model.marker import Marker, MarkerRole

# A replace is a compaction: the same rows in other files.
_HARMLESS = frozenset({SnapshotOperation.APPEND, SnapshotOperation.REPLACE})


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot of the main branch."""

    id: int
    parent: int | None
    sequence: int
    operation: SnapshotOperation
    summary: Mapping[str, str]
    # In milliseconds since the epoch.
    committed_at: int = 0
    schema_id: int | None = None

    def count(self, name: str) -> int:
        """A number of the summary; zero if it is missing."""
        return int(self.summary.get(name, "0"))


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """One version of a table."""

    uuid: str
    format_version: int
    location: str
    last_column_id: int
    properties: Mapping[str, str]
    head: SnapshotFacts | None

    def marker(self, role: MarkerRole, *, table: str) -> Marker | None:
        """The marker in the properties, which may be invalid."""
        text = self.properties.get(role.property_name)
        if text is None:
            return None
        try:
            return decode_marker(text)
        except MalformedFileError as error:
            newer = newer_version(text, VERSION)
            message = f"the property {role.property_name} is not a marker: {error}."
            step = command("position", "show", table)
            if newer is not None:
                message = f"its marker is of version {newer}, which a newer frazil wrote."
                step = NEWER_STEP
            raise MarkerLostError(message, table=table, next_step=step) from error


class TableReader:
    """Reads one table's metadata; ``metadata`` is Iceberg's object for one version."""

    def __init__(self, gateway: IcebergGateway, name: str) -> None:
        self._gateway = gateway
        self.name = name
        # A version of the metadata never changes, so its facts are cached.
        self._last: tuple[JavaObject, TableMetadata] | None = None

    def state(self, metadata: JavaObject) -> TableMetadata:
        """The facts of this version."""
        last = self._last
        if last is not None and last[0] is metadata:
            return last[1]
        with translated(self.name, "reading the table's metadata"):
            state = TableMetadata(
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
        with translated(self.name, "reading the table's head"):
            return self._facts(metadata.currentSnapshot())

    def snapshot(self, metadata: JavaObject, snapshot_id: int) -> SnapshotFacts | None:
        """One snapshot, or None when it is expired or unknown."""
        with translated(self.name, "reading a snapshot"):
            return self._facts(metadata.snapshot(snapshot_id))

    def all_snapshots(self, metadata: JavaObject) -> Mapping[int, SnapshotFacts]:
        """Every snapshot that is kept, of any branch, by id; one gateway call."""
        with translated(self.name, "reading the table's snapshots"):
            document = json.loads(self._gateway.metadata_parser.toJson(metadata))
        found = [facts_from_document(each) for each in document.get("snapshots", [])]
        return {each.id: each for each in found}

    def iter_ancestry(self, metadata: JavaObject) -> Iterator[SnapshotFacts]:
        """The head and its ancestors, newest first, loaded one by one."""
        current = self.head(metadata)
        while current is not None:
            yield current
            parent = current.parent
            current = None if parent is None else self.snapshot(metadata, parent)

    def _facts(self, snapshot: JavaObject | None) -> SnapshotFacts | None:
        if snapshot is None:
            return None
        # One gateway call instead of six.
        text = self._gateway.snapshot_parser.toJson(snapshot, False)  # noqa: FBT003
        return facts_from_document(json.loads(text))


def facts_from_document(document: Mapping[str, Any]) -> SnapshotFacts:
    """A snapshot from its JSON."""
    summary = dict(document.get("summary", {}))
    return SnapshotFacts(
        id=document["snapshot-id"],
        parent=document.get("parent-snapshot-id"),
        # Tables of format version 1 do not number their snapshots.
        sequence=document.get("sequence-number", 0),
        # A snapshot without an operation may have done anything.
        operation=SnapshotOperation(summary.pop("operation", SnapshotOperation.OVERWRITE)),
        summary=summary,
        committed_at=document["timestamp-ms"],
        schema_id=document.get("schema-id"),
    )


def check_range(
    ancestry: Sequence[SnapshotFacts], *, after: int | None, through: int, table: str
) -> tuple[SnapshotFacts, ...]:
    """The snapshots after the one up to the other, oldest first.

    ``ancestry`` is newest first; ``after`` may be the snapshot that was expired last, because
    nothing between the two is missing then. Raises RolledBackError when either is not in the line
    that leads to the head, ForeignChangeError when one between them removed or replaced rows.
    """
    line = [snapshot.id for snapshot in ancestry]
    expired = ancestry[-1].parent if ancestry else None
    for wanted in filter(None, (through, after)):
        if wanted not in line and (wanted == through or wanted != expired):
            message = f"snapshot {wanted} is not in the history of the table's current state."
            raise RolledBackError(
                message, table=table, next_step=command("position", "show", table)
            )
    newest = line.index(through)
    oldest = line.index(after) if after in line else len(line)
    if oldest < newest:
        message = f"snapshot {after} is newer than snapshot {through}."
        raise RolledBackError(message, table=table, next_step=command("position", "show", table))
    between = tuple(reversed(ancestry[newest:oldest]))
    if after is not None:
        for snapshot in between:
            if snapshot.operation not in _HARMLESS:
                message = f"snapshot {snapshot.id} is a {snapshot.operation}, not an append."
                raise ForeignChangeError(message, table=table)
    return between
