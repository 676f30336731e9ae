"""Loads the facts of one table from its metadata and manifests."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from frazil.changelog.mirror_record import recorded_mirrors
from frazil.errors import (
    ConfigError,
    MarkerLostError,
    RolledBackError,
    TableNotFoundError,
    TableReplacedError,
)
from frazil.ledger.table import states_from
from frazil.maintain.facts import (
    DataFileFacts,
    KeptRole,
    MergedThrough,
    RefFacts,
    SnapshotAge,
    UpkeepFacts,
)
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.model.key_index import DeleteKind
from frazil.model.marker import MarkerRole
from frazil.model.table_name import parse_table_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.upkeep import MetadataFacts
    from frazil.maintain.table_set import KeptTable
    from frazil.model.marker import Marker
    from frazil.model.table_name import TableName

# When a table's files were last compared with its snapshots.
ORPHANS_PROPERTY = "frazil.orphans-listed"
_SHARED_PROPERTY = "gc.enabled"
# Our files say when they were written; the snapshot that added one may be expired long since.
_OUR_NAME = re.compile(r"-([0-9]{10})\.parquet$")
# A marker that cannot be trusted says nothing: all is kept.
_UNTRUSTED = (MarkerLostError, RolledBackError, TableReplacedError)


def load_facts(lake: Lake, kept: KeptTable, known: UpkeepFacts | None = None) -> UpkeepFacts | None:
    """The table as it is; None if it does not exist or is not ours to look after.

    A table is ours if a commit of ours has left its marker there: another writer's changelog is
    only read. ``known`` are earlier facts, whose files are not listed again while the head is the
    same.
    """
    try:
        table = lake.open(kept.name)
    except TableNotFoundError:
        return None
    upkeep = table.upkeep()
    metadata = upkeep.load_metadata()
    role = MarkerRole.MERGE if kept.role is KeptRole.MIRROR else MarkerRole.INGEST
    if role.property_name not in metadata.properties:
        return None
    manifests = upkeep.load_manifests(metadata.spec_id)
    if known is not None and (known.uuid, known.head) == (metadata.uuid, metadata.head):
        files, delete_files = known.files, known.delete_files
    else:
        live = () if metadata.head is None else table.load_live_files(metadata.head)
        files = tuple(_file_facts(each, metadata.snapshots) for each in live)
        delete_files = len({(d.location, d.offset) for each in live for d in each.deletes})
    merged = _load_all_merged(lake, kept, metadata)
    return UpkeepFacts(
        name=kept.name,
        role=kept.role,
        uuid=metadata.uuid,
        head=metadata.head,
        files=files,
        delete_files=delete_files,
        manifests=manifests.count,
        small_manifests=manifests.small,
        manifest_bytes=manifests.bytes,
        metadata_bytes=metadata.bytes,
        statistics=metadata.statistics,
        snapshots=tuple(_age(each) for each in metadata.snapshots),
        refs=tuple(
            RefFacts(name=each.name, snapshot_id=each.snapshot_id, is_branch=each.is_branch)
            for each in metadata.refs
        ),
        needed=_needed(table, role, metadata, merged),
        merged=merged,
        orphans_listed_at=_moment(metadata.properties.get(ORPHANS_PROPERTY)),
        is_shared=metadata.properties.get(_SHARED_PROPERTY, "").lower() == "false",
        commits_since_states=_commits_since_states(metadata),
    )


def _commits_since_states(metadata: MetadataFacts) -> int:
    newest = max((each.sequence for each in metadata.snapshots), default=0)
    return newest - states_from(metadata.properties)


def _file_facts(file: LiveFile, snapshots: Sequence[SnapshotFacts]) -> DataFileFacts:
    own = [
        each
        for each in file.deletes
        if each.kind is DeleteKind.VECTOR or each.data_file is not None
    ]
    return DataFileFacts(
        location=file.location,
        bytes=file.size,
        records=file.rows,
        dead=min(sum(each.rows for each in own), file.rows),
        spec_id=file.spec_id,
        partition=file.partition,
        sequence=file.sequence,
        written_at=_written_at(file, snapshots),
        foreign_deletes=file.equality_deletes > 0 or len(own) < len(file.deletes),
    )


def _written_at(file: LiveFile, snapshots: Sequence[SnapshotFacts]) -> int:
    """The latest time at which it can have been written, in milliseconds."""
    named = _OUR_NAME.search(file.location)
    if named is not None:
        return int(named[1]) * 1000
    # It was there when the first snapshot with its number, or a later one, was committed.
    later = [each.committed_at for each in snapshots if each.sequence >= file.sequence]
    return min(later, default=max((each.committed_at for each in snapshots), default=0))


def _age(snapshot: SnapshotFacts) -> SnapshotAge:
    return SnapshotAge(
        id=snapshot.id,
        parent=snapshot.parent,
        sequence=snapshot.sequence,
        committed_at=snapshot.committed_at,
        operation=snapshot.operation,
    )


def _load_all_merged(
    lake: Lake, kept: KeptTable, metadata: MetadataFacts
) -> tuple[MergedThrough, ...]:
    """How far the mirrors of a changelog are: those of the document, and those it knows itself.

    One that cannot be found may be in another catalog, or be made again: everything is kept for it
    until its property is removed.
    """
    found = [_load_merged(lake, each, metadata) for each in kept.mirrors]
    if kept.role is not KeptRole.CHANGELOG:
        return tuple(found)
    others = recorded_mirrors(metadata.properties) - {str(each) for each in kept.mirrors}
    for each in sorted(others):
        try:
            name = parse_table_name(each, catalog=kept.name.catalog)
        except ConfigError:
            found.append(MergedThrough(mirror=each))
        else:
            found.append(_load_merged(lake, name, metadata))
    return tuple(found)


def _load_merged(lake: Lake, mirror: TableName, changelog: MetadataFacts) -> MergedThrough:
    """How far a mirror is; whatever is in doubt counts as nothing merged."""
    unknown = MergedThrough(mirror=str(mirror))
    try:
        marker = lake.open(mirror).load_marker(MarkerRole.MERGE)
    except (TableNotFoundError, *_UNTRUSTED):
        return unknown
    if marker is None or marker.source != changelog.uuid:
        return unknown
    return locate_merged(str(mirror), marker, changelog)


def locate_merged(mirror: str, marker: Marker, changelog: MetadataFacts) -> MergedThrough:
    """The changelog's snapshot that a marker names, with its number and time; pure."""
    position = str(marker.position)
    if not position.isdecimal():
        return MergedThrough(mirror=mirror)
    wanted = int(position)
    by_id = {each.id: each for each in changelog.snapshots}
    found = by_id.get(wanted)
    if found is not None:
        return MergedThrough(
            mirror=mirror,
            snapshot_id=wanted,
            sequence=found.sequence,
            merged_at=found.committed_at,
        )
    oldest = None
    current = None if changelog.head is None else by_id.get(changelog.head)
    while current is not None:
        oldest = current
        current = None if current.parent is None else by_id.get(current.parent)
    if oldest is not None and oldest.parent == wanted:
        # Expired up to there and no further: all that is older was merged.
        return MergedThrough(mirror=mirror, snapshot_id=wanted, sequence=oldest.sequence - 1)
    return MergedThrough(mirror=mirror)


def _needed(
    table: LakeTable, role: MarkerRole, metadata: MetadataFacts, merged: Iterable[MergedThrough]
) -> frozenset[int]:
    needed = {each.snapshot_id for each in merged if each.snapshot_id is not None}
    listed = {each.id: each for each in metadata.snapshots}
    try:
        marker = table.load_marker(role)
    except _UNTRUSTED:
        # Its repair may need any of them.
        return frozenset(listed)
    if marker is not None and marker.snapshot is not None:
        needed.add(marker.snapshot.id)
    current = None if metadata.head is None else listed.get(metadata.head)
    while current is not None and HEAD_PROPERTY not in current.summary:
        current = None if current.parent is None else listed.get(current.parent)
    if current is not None:
        # The newest that names an index: what follows is added to it.
        needed.add(current.id)
    return frozenset(needed & listed.keys())


def _moment(text: str | None) -> datetime | None:
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else None
