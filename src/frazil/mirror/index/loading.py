"""Loads the index that a table names and validates it; if it is unusable, says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.clients.iceberg.file_system import is_missing, is_within
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.head import read_head
from frazil.codec.key_index.run import decode_run
from frazil.codec.malformed import MalformedFileError
from frazil.errors import StorageError
from frazil.model.key_index import RepairReason, is_same_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.model.key_index import IndexedFile, IndexKey, IndexManifest
    from frazil.model.schema.types import Scalar

# The summary of a merge names its head: a statistics entry may be replaced by ANALYZE.
HEAD_PROPERTY = "frazil.index"
# File ordinals have 31 bits. The upper half is enough for the largest possible merge, so an index
# is rebuilt before they are exhausted.
_MOST_ORDINALS = 1 << 30


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """An index as described by its head, with the young run decoded and encoded."""

    manifest: IndexManifest
    young: Entries
    young_blob: bytes | None


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why there is no index of the table's current state.

    ``base`` is the index of an ancestor, to be updated with the files that were added and removed
    since; without it all files are read.
    """

    reason: RepairReason
    detail: str
    base: KeyIndex | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The properties of a usable index."""

    table_uuid: str
    key: IndexKey
    sequence_type: Scalar | None
    # The folders of the table's files. The table may have files elsewhere, but an index that names
    # such files is not trusted.
    locations: tuple[str, ...]


def load_index(
    ancestry: Iterable[SnapshotFacts], inputs: InputFiles, expected: Expectation
) -> KeyIndex | Unusable:
    """The index of the newest snapshot; ``ancestry`` is newest first and iterated as needed."""
    head_id = None
    for snapshot in ancestry:
        head_id = snapshot.id if head_id is None else head_id
        location = snapshot.summary.get(HEAD_PROPERTY)
        if location is None:
            continue
        found = _load_head(location, snapshot, inputs, expected)
        if isinstance(found, Unusable) or snapshot.id == head_id:
            return found
        detail = f"snapshot {head_id} was committed by another writer after {snapshot.id}"
        return Unusable(RepairReason.FOREIGN_COMMIT, detail, found)
    return Unusable(RepairReason.NO_ANCESTOR, "no snapshot that is kept names an index")


def _load_head(
    location: str, snapshot: SnapshotFacts, inputs: InputFiles, expected: Expectation
) -> KeyIndex | Unusable:
    if not is_within(location, expected.locations):
        return Unusable(RepairReason.DAMAGED, "the snapshot names a head outside of the table")
    try:
        manifest, young = read_head(inputs.read(location))
        entries = (
            Entries.empty() if young is None else decode_run(young, entries=manifest.young_entries)
        )
    except StorageError as error:
        if not is_missing(error):
            raise
        return Unusable(RepairReason.MISSING, f"{location} is missing")
    except MalformedFileError as error:
        return Unusable(RepairReason.DAMAGED, f"{location}: {error}")
    return _judge(KeyIndex(manifest, entries, young), location, snapshot, expected)


def _judge(
    index: KeyIndex, location: str, snapshot: SnapshotFacts, expected: Expectation
) -> KeyIndex | Unusable:
    manifest = index.manifest
    unusable = _useless(manifest, location, snapshot, expected)
    if unusable is not None:
        return unusable
    # Entries are hints: with a correct file table they can be used again.
    if not _all_within(_named_files(manifest), expected):
        # The table itself may have such files; its file list is loaded.
        return Unusable(RepairReason.DAMAGED, f"{location} names files outside of the table", index)
    wrong = _miscounted(manifest, snapshot)
    if wrong:
        return Unusable(RepairReason.DAMAGED, f"{location} has {wrong}", index)
    return index


def _useless(
    manifest: IndexManifest, location: str, snapshot: SnapshotFacts, expected: Expectation
) -> Unusable | None:
    """Why nothing of the index can be reused, if so."""
    if manifest.table_uuid != expected.table_uuid or manifest.snapshot_id != snapshot.id:
        detail = f"{location} was written for another table or snapshot"
        return Unusable(RepairReason.DAMAGED, detail)
    if not is_same_key(manifest.key, expected.key):
        return Unusable(RepairReason.OTHER_KEY, "the key columns have changed")
    if (manifest.sequence_type is None) != (expected.sequence_type is None):
        return Unusable(RepairReason.OTHER_KEY, "the order of the table has changed")
    if manifest.next_ordinal > _MOST_ORDINALS:
        return Unusable(RepairReason.DAMAGED, "its file ordinals are nearly exhausted")
    if not _all_within((part.location for run in manifest.runs for part in run.parts), expected):
        return Unusable(RepairReason.DAMAGED, f"{location} names runs outside of the table")
    return None


def _named_files(manifest: IndexManifest) -> Iterator[str]:
    for file in manifest.files:
        yield file.location
        yield from (each.location for each in file.deletes)


def _all_within(locations: Iterable[str], expected: Expectation) -> bool:
    """Whether all files are in the expected folders; checks each folder once."""
    folders = {f"{location.rpartition('/')[0]}/" for location in locations}
    return all(is_within(f"{each}file", expected.locations) for each in folders)


def _miscounted(manifest: IndexManifest, snapshot: SnapshotFacts) -> str:
    """How the counts of the file table differ from those of the snapshot."""
    files = manifest.files
    counts = {
        "total-data-files": len(files),
        "total-records": sum(each.rows for each in files),
        "total-delete-files": count_deletes(files) + manifest.idle_deletes,
    }
    if not manifest.idle_deletes:
        # The number of rows that other deletes remove is not recorded.
        rows = {(p.location, p.offset): p.rows for each in files for p in each.deletes}
        counts["total-position-deletes"] = sum(rows.values())
    wrong = [
        f"{count} {name.removeprefix('total-').replace('-', ' ')} of {snapshot.count(name)}"
        for name, count in counts.items()
        if count != snapshot.count(name)
    ]
    return ", ".join(wrong)


def count_deletes(files: Iterable[IndexedFile]) -> int:
    """The number of distinct delete files of these data files."""
    return len({(each.location, each.offset) for file in files for each in file.deletes})
