"""What metadata and manifests say about one table: facts for the policy, never rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.model.table_name import TableName


class KeptRole(StrEnum):
    """What a table is for us."""

    MIRROR = "mirror"
    CHANGELOG = "changelog"
    # Rows of topics: like a changelog, but nothing is merged from it and nothing removed by age.
    RECORDS = "records"
    LEDGER = "ledger"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileFacts:
    """A live data file; ``partition`` is JSON as in a descriptor, ``dead`` its deleted rows.

    ``sequence`` is its data sequence number. ``written_at`` is when it was written, at the latest,
    in milliseconds since the epoch, as far as names and snapshots tell. A file with
    ``foreign_deletes`` has equality deletes, or position deletes that it shares with other files.
    """

    location: str
    bytes: int
    records: int
    dead: int = 0
    spec_id: int = 0
    partition: str = "{}"
    sequence: int = 0
    written_at: int = 0
    foreign_deletes: bool = False

    @property
    def dead_ratio(self) -> float:
        """The share of its rows that is deleted."""
        return self.dead / self.records if self.records else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAge:
    """A snapshot that the metadata lists, of any branch; the time is in milliseconds."""

    id: int
    parent: int | None
    sequence: int
    committed_at: int
    operation: SnapshotOperation = SnapshotOperation.APPEND


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFacts:
    """A tag or a branch; what it keeps is Iceberg's to decide."""

    name: str
    snapshot_id: int
    is_branch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedThrough:
    """How far one mirror has merged a changelog.

    ``snapshot_id`` is what its marker names, ``sequence`` that snapshot's number; both are None
    where that is not known, and then it may need everything. ``merged_at`` is the time of that
    snapshot in milliseconds, where the changelog still lists it.
    """

    mirror: str
    snapshot_id: int | None = None
    sequence: int | None = None
    merged_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """What readers of a table pay for, in numbers."""

    files: int
    small_files: int
    bytes: int
    records: int
    dead_records: int
    delete_files: int
    manifests: int
    snapshots: int

    @property
    def dead_ratio(self) -> float:
        """The share of rows that scans read and skip."""
        return self.dead_records / self.records if self.records else 0.0


@dataclass(frozen=True, kw_only=True)
class UpkeepFacts:
    """One table at one moment.

    ``needed`` are snapshots that stay whatever their age: the one that wrote the newest marker, and
    those that a mirror's marker names. ``merged`` has a changelog's mirrors. ``orphans_listed_at``
    is when the table's files were last compared with its snapshots; None if that is not known.
    """

    name: TableName
    role: KeptRole
    uuid: str
    head: int | None
    files: tuple[DataFileFacts, ...] = ()
    delete_files: int = 0
    manifests: int = 0
    # Of the current partitioning, and less than half of what a rewritten one has.
    small_manifests: int = 0
    manifest_bytes: int = 0
    metadata_bytes: int = 0
    statistics: int = 0
    snapshots: tuple[SnapshotAge, ...] = ()
    refs: tuple[RefFacts, ...] = ()
    needed: frozenset[int] = frozenset()
    merged: tuple[MergedThrough, ...] = ()
    orphans_listed_at: datetime | None = None
    # Another table may use its files (``gc.enabled`` is false): none of them is removed.
    is_shared: bool = False
    # Of a ledger, since the states of all tables were put in one place.
    commits_since_states: int = 0

    @cached_property
    def line(self) -> tuple[int, ...]:
        """The head and its ancestors, newest first, as far as they are listed."""
        parents = {each.id: each.parent for each in self.snapshots}
        found: list[int] = []
        current = self.head
        while current is not None and current in parents:
            found.append(current)
            current = parents[current]
        return tuple(found)

    def health(self, small_bytes: int) -> TableHealth:
        """The same in numbers; files below ``small_bytes`` are small."""
        return TableHealth(
            files=len(self.files),
            small_files=sum(each.bytes < small_bytes for each in self.files),
            bytes=sum(each.bytes for each in self.files),
            records=sum(each.records for each in self.files),
            dead_records=sum(each.dead for each in self.files),
            delete_files=self.delete_files,
            manifests=self.manifests,
            snapshots=len(self.snapshots),
        )
