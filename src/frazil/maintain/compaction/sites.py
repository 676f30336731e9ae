"""Where rewrites land: mirrors, whose key index moves in the same commit, and other tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.clients.spark.pinned_session import pinned_session
from frazil.codec.key_index.entries import Entries
from frazil.errors import CommitConflictError, DamagedIndexError
from frazil.hooks import SystemRandomness
from frazil.ledger.table import STATES_KEY
from frazil.maintain.compaction.landing import renumbered
from frazil.merge.index_operations import find_index, load_current_target
from frazil.merge.target import plan_growth
from frazil.merge.writing.delete_writer import DeleteWriter
from frazil.mirror.index.keeping import write_index_head
from frazil.mirror.index.loading import HEAD_PROPERTY, KeyIndex, count_deletes
from frazil.mirror.index.run_building import fresh_name
from frazil.mirror.index.run_merging import rebased
from frazil.model.key_index import IndexedFile, is_same_key
from frazil.model.marker import Carry, MarkerRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.strict_commit import (
        FileChanges,
        Receipt,
        StatisticsFile,
    )
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.live_files import LiveFile
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.maintain.compaction.compactor import Rewrite
    from frazil.maintain.compaction.landing import MovedFiles
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.target import MergeTarget
    from frazil.model.key_index import IndexManifest
    from frazil.model.marker import SnapshotRef
    from frazil.model.table_name import TableName

_EQUALITY_DELETES = "total-equality-deletes"


@dataclass(frozen=True, slots=True)
class MirrorSite:
    """One mirror; lives on the driver."""

    session: SparkSession
    lake: Lake
    settings: MergeSettings

    def load(self) -> MirrorVersion:
        """The mirror as it is now, with its index unless that must be rebuilt."""
        target = load_current_target(self.lake, self.settings)
        index = find_index(self.session, self.lake, self.settings, target)
        live = None
        if index is None and target.head is not None:
            live = target.mirror.table.load_live_files(target.head.id)
        return MirrorVersion(self.session, self.settings, target, index, live)


@dataclass(frozen=True, slots=True)
class MirrorVersion:
    """One version of a mirror.

    Without ``index``, what is committed has none either: the next merge builds it from the files.
    """

    session: SparkSession
    settings: MergeSettings
    target: MergeTarget
    index: KeyIndex | None
    live: tuple[LiveFile, ...] | None

    @property
    def files(self) -> Mapping[str, IndexedFile]:
        """The data files of the head with their deletes, by location."""
        if self.index is not None:
            return {each.location: each for each in self.index.manifest.files}
        return _by_location(self.live or ())

    @property
    def inputs(self) -> InputFiles:
        """How files of the mirror are read."""
        return self.target.inputs

    @property
    def format_version(self) -> int:
        """The version of the mirror's format."""
        return self.target.state.format_version

    @property
    def must_replace(self) -> bool:
        """Merges are overwrites, so a mirror has no readers of that kind."""
        return False

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Why the rewrite does not fit to this mirror any more, if so."""
        new, expected = rewrite.index, self.target.expected
        if new is None or not is_same_key(new.key, expected.key):
            return "the mirror has another key"
        if (new.sequence_type is None) != (expected.sequence_type is None):
            return "the order of the mirror has changed"
        return None

    def has_equality_deletes(self, locations: Sequence[str]) -> bool:
        """An index is made of no such files."""
        return _has_equality_deletes(self.live or (), locations)

    @property
    def equality_deletes(self) -> int:
        """How many deletes without positions the mirror has."""
        head = self.target.head
        return 0 if head is None else head.count(_EQUALITY_DELETES)

    def delete_writer(self) -> DeleteWriter:
        """What writes the deletes of new files."""
        target = self.target
        return DeleteWriter(
            target.state.format_version,
            target.inputs,
            target.outputs,
            target.name_delete_file,
            hidden_folder=f"{target.state.location}/_deletes",
        )

    def commit(self, rewrite: Rewrite, changes: FileChanges, moved: MovedFiles) -> int:
        """One strict commit on this version; returns the snapshot's id."""
        index = self.index
        if index is not None:
            try:
                index = self._moved(index, rewrite, moved)
            except DamagedIndexError:
                # A run is lost: the next merge finds that out, and builds the index again.
                index = None
        return _snapshot_id(self.commit_index(changes, index))

    def commit_index(self, changes: FileChanges, index: KeyIndex | None) -> Receipt:
        """Commit these changes with this index, and the marker where it is."""
        target = self.target
        head = target.head
        location = target.name_head()

        def write_head(snapshot: SnapshotRef) -> StatisticsFile | None:
            if index is None:
                return None
            return write_index_head(index, snapshot.id, location, target.outputs)

        commit = StrictCommit(
            move=Carry(MarkerRole.MERGE),
            changes=changes,
            summary={} if index is None else {HEAD_PROPERTY: location},
            statistics=write_head,
            planned_on=None if head is None else head.id,
        )
        return target.mirror.table.commit(commit)

    def _moved(self, index: KeyIndex, rewrite: Rewrite, moved: MovedFiles) -> KeyIndex:
        """The index with the new files instead of the old ones, whose entries die with them."""
        manifest: IndexManifest = index.manifest
        first, new = manifest.next_ordinal, rewrite.index
        gone = {each.location for each in moved.removed}
        kept = tuple(each for each in manifest.files if each.location not in gone)
        files = (*kept, *renumbered(moved.added, first))
        before = count_deletes(manifest.files) + manifest.idle_deletes
        after = before + moved.added_deletes - moved.removed_deletes
        index = replace(
            index, manifest=replace(manifest, idle_deletes=after - count_deletes(files))
        )
        runs = () if new is None else new.runs
        few = Entries.empty() if new is None else new.entries
        # Runs are merged by merges and in the background: a landing is short.
        growth = replace(
            plan_growth(pinned_session(self.session), self.target, self.settings), upkeep_entries=0
        )
        return growth.grown(
            index,
            files=files,
            next_ordinal=first + len(rewrite.files),
            entries=rebased(few, first),
            new_runs=tuple(
                replace(run, first_ordinal=first + run.first_ordinal) for run in runs if run.parts
            ),
        )


@dataclass(frozen=True, slots=True)
class LogSite:
    """A table that is only appended to: a changelog, the ledger, dead letters.

    ``summary`` goes into the snapshot, for tables whose readers expect something there.
    """

    lake: Lake
    table: TableName
    summary: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_ledger(cls, lake: Lake, table: TableName) -> LogSite:
        """The ledger: a commit of it that does not say so may have written states of tables."""
        return cls(lake, table, ((STATES_KEY, "0"),))

    def load(self) -> LogVersion:
        """The table as it is now."""
        table = self.lake.open(self.table)
        version = table.load_version()
        head = version.state.head
        if head is None:
            message = "nothing was written to the table yet."
            raise CommitConflictError(message, table=str(self.table))
        return LogVersion(
            table,
            version.write_target(),
            version.state.location,
            head,
            table.load_live_files(head.id),
            self.summary,
        )


@dataclass(frozen=True, slots=True)
class LogVersion:
    """One version of such a table."""

    table: LakeTable
    target: WriteTarget
    location: str
    head: SnapshotFacts
    live: tuple[LiveFile, ...]
    summary: tuple[tuple[str, str], ...]

    @property
    def files(self) -> Mapping[str, IndexedFile]:
        """The data files of the head with their deletes, by location."""
        return _by_location(self.live)

    @property
    def inputs(self) -> InputFiles:
        """How files of the table are read."""
        return InputFiles(dict(self.target.io_properties))

    @property
    def format_version(self) -> int:
        """The version of the table's format."""
        return self.target.format_version

    @property
    def must_replace(self) -> bool:
        """An overwrite would stop the mirrors of a changelog."""
        return True

    def refusal(self, rewrite: Rewrite) -> str | None:
        """A log is indexed by nothing."""
        return None if rewrite.index is None else "the table is not a mirror"

    def has_equality_deletes(self, locations: Sequence[str]) -> bool:
        """Whether another engine deleted rows by their values."""
        return _has_equality_deletes(self.live, locations)

    @property
    def equality_deletes(self) -> int:
        """How many deletes without positions the table has."""
        return self.head.count(_EQUALITY_DELETES)

    def delete_writer(self) -> DeleteWriter:
        """What writes the deletes of new files; only other engines delete rows of a log."""
        return DeleteWriter(
            self.target.format_version,
            self.inputs,
            OutputFiles(dict(self.target.io_properties)),
            self._name_delete_file,
            hidden_folder=f"{self.location}/_deletes",
        )

    def commit(self, rewrite: Rewrite, changes: FileChanges, moved: MovedFiles) -> int:
        """One strict commit on this version; returns the snapshot's id."""
        del rewrite, moved
        commit = StrictCommit(
            move=Carry(MarkerRole.INGEST),
            changes=changes,
            summary=dict(self.summary),
            planned_on=self.head.id,
        )
        return _snapshot_id(self.table.commit(commit))

    def _name_delete_file(self, ending: str) -> str:
        return f"{self.target.data_location}/{fresh_name(SystemRandomness().token)}{ending}"


def _snapshot_id(receipt: Receipt) -> int:
    snapshot = receipt.marker.snapshot
    return 0 if snapshot is None else snapshot.id


def _has_equality_deletes(live: Sequence[LiveFile], locations: Sequence[str]) -> bool:
    concerned = set(locations)
    return any(each.equality_deletes and each.location in concerned for each in live)


def _by_location(live: Sequence[LiveFile]) -> dict[str, IndexedFile]:
    return {each.location: each.indexed(at) for at, each in enumerate(live)}
