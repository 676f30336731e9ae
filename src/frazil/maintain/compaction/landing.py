"""Lands a finished rewrite: one strict commit on the table's head, whatever that is by now.

The deletes of the old files at the head are translated to the new ones, so merges that committed
since the rewrite began cost it nothing. When another commit is faster, only the translation is
repeated. Rows, marker and index move together or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.errors import CommitConflictError, StaleIndexError
from frazil.hooks import Failpoint, SystemClock, SystemRandomness, failpoint
from frazil.maintain.compaction.layout import RestoredRowsError
from frazil.merge.writing.delete_writer import data_descriptor, delete_descriptor
from frazil.mirror.deleted_rows import load_many
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.codec.deletes.deletion_vector import DeletionVector
    from frazil.maintain.compaction.compactor import Rewrite
    from frazil.maintain.compaction.rewriting import RewrittenGroup
    from frazil.merge.writing.delete_writer import DeleteWriter, WrittenDeletes
    from frazil.model.key_index import IndexedFile

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A rewrite that is in the table; ``late_deletes`` were translated."""

    snapshot_id: int
    files_added: int
    files_removed: int
    late_deletes: int
    bytes_added: int
    bytes_removed: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A rewrite that is of no use any more; its files are left to maintenance."""

    reason: str


class LandingVersion(Protocol):
    """One version of the table, to land on."""

    @property
    def files(self) -> Mapping[str, IndexedFile]:
        """The data files of the head with their deletes, by location."""

    @property
    def inputs(self) -> InputFiles:
        """How files of the table are read."""

    @property
    def format_version(self) -> int:
        """The version of the table's format."""

    @property
    def must_replace(self) -> bool:
        """Whether readers follow the table's snapshots, so that only a ``replace`` may land."""

    def refusal(self, rewrite: Rewrite) -> str | None:
        """Why the rewrite does not fit to this table any more, if so."""

    def has_equality_deletes(self, locations: Sequence[str]) -> bool:
        """Whether one of these files has deletes without positions."""

    @property
    def equality_deletes(self) -> int:
        """How many deletes without positions the table has, for any file or none."""

    def delete_writer(self) -> DeleteWriter:
        """What writes the deletes of new files."""

    def commit(self, rewrite: Rewrite, changes: FileChanges, moved: MovedFiles) -> int:
        """One strict commit on this version; returns the snapshot's id."""


class Site(Protocol):
    """A table on which rewrites land."""

    def load(self) -> LandingVersion:
        """The table as it is now."""


@dataclass(frozen=True, slots=True)
class MovedFiles:
    """The old files that the head still has, and the new ones with their deletes.

    New files are numbered as in the rewrite; one whose every row was deleted is not among them.
    """

    removed: tuple[IndexedFile, ...]
    added: tuple[IndexedFile, ...]
    removed_deletes: int
    added_deletes: int


def land(rewrite: Rewrite, site: Site, retry: RetryPolicy | None = None) -> Landed | Abandoned:
    """Replace the old files by the new ones on the table's head.

    Raises CommitConflictError when other commits were faster each time: it may be tried again.
    """
    return repeat_on_conflict(
        partial(_attempt, rewrite, site),
        retry or RetryPolicy(),
        clock=SystemClock(),
        randomness=SystemRandomness(),
    )


def _attempt(rewrite: Rewrite, site: Site) -> Landed | Abandoned:
    version = site.load()
    files = version.files
    if version.must_replace:
        # Where retention removed a file meanwhile, the others of its group stay as they are.
        rewrite = replace(rewrite, groups=_complete(rewrite, files))
    present = [
        files[source.location]
        for group in rewrite.groups
        for source in group.layout.sources
        if source.location in files
    ]
    reason = version.refusal(rewrite)
    if reason is None and version.format_version != rewrite.format_version:
        # Rows of a table that was upgraded have an identity by now, which the new files lack.
        reason = "the table's format was upgraded"
    if reason is None and not present:
        reason = "the table has none of the old files any more"
    if reason is not None:
        return Abandoned(reason)
    try:
        late = _translated(rewrite, version, present)
    except RestoredRowsError:
        return Abandoned("rows that were deleted when it began are in the table again")
    failpoint(Failpoint.COMPACTION_TRANSLATED)
    return _commit(rewrite, version, present, late)


def _complete(rewrite: Rewrite, files: Collection[str]) -> tuple[RewrittenGroup, ...]:
    return tuple(
        group
        for group in rewrite.groups
        if all(source.location in files for source in group.layout.sources)
    )


def _translated(
    rewrite: Rewrite, version: LandingVersion, present: Sequence[IndexedFile]
) -> list[DeletionVector]:
    """What is deleted in each new file, in their order."""
    vectors = load_many(present, version.inputs)
    now = {file.location: vector for file, vector in zip(present, vectors, strict=True)}
    return [
        vector
        for group in rewrite.groups
        for vector in group.layout.translate(
            [now.get(source.location) for source in group.layout.sources]
        )
    ]


def _commit(
    rewrite: Rewrite,
    version: LandingVersion,
    present: Sequence[IndexedFile],
    late: Sequence[DeletionVector],
) -> Landed | Abandoned:
    descriptors = [file.descriptor for group in rewrite.groups for file in group.files]
    alive = [
        file for file, dead in zip(rewrite.files, late, strict=True) if dead.cardinality < file.rows
    ]
    written = _written(version, alive, late)
    # A delete that serves other files too stays; it names no row of a new file.
    old = {(p.location, p.offset): p for f in present for p in f.deletes if p.data_file is not None}
    changes = FileChanges(
        added=tuple(descriptors[file.ordinal] for file in alive),
        added_deletes=written.added,
        removed=tuple(data_descriptor(each) for each in present),
        removed_deletes=tuple(delete_descriptor(each) for each in old.values()),
        rewritten_at=rewrite.sequence,
        # A merge removes a file of which every row is deleted.
        has_surplus_rows=sum(each.rows for each in alive) > sum(each.rows for each in present),
    )
    if version.equality_deletes and _moves_specs(present, alive):
        # They concern files of one partitioning: other rows than now would be deleted.
        return Abandoned("equality deletes of another engine, and files of another partitioning")
    if not changes.is_rewrite:
        if version.must_replace:
            return Abandoned("another engine deleted rows, with deletes that other files share")
        if version.has_equality_deletes([each.location for each in present]):
            return Abandoned("equality deletes of another engine concern its rows")
    moved = MovedFiles(
        tuple(present), written.files, len(changes.removed_deletes), len(changes.added_deletes)
    )
    try:
        snapshot_id = version.commit(rewrite, changes, moved)
    except StaleIndexError as error:
        if version.equality_deletes:
            # Iceberg would have dropped those that concern the moved rows alone.
            return Abandoned("equality deletes of another engine concern its rows")
        # The head is another one than its index says: what is loaded next time differs.
        raise CommitConflictError(error.message, table=str(rewrite.table)) from error
    landed = Landed(
        snapshot_id=snapshot_id,
        files_added=len(alive),
        files_removed=len(present),
        late_deletes=sum(each.cardinality for each in late),
        bytes_added=sum(each.size for each in alive),
        bytes_removed=sum(each.size for each in present),
    )
    _log.info(
        "files compacted",
        table=str(rewrite.table),
        files_removed=landed.files_removed,
        files_added=landed.files_added,
        late_deletes=landed.late_deletes,
        bytes_added=landed.bytes_added,
        bytes_removed=landed.bytes_removed,
    )
    return landed


def _moves_specs(old: Sequence[IndexedFile], new: Sequence[IndexedFile]) -> bool:
    return not {each.spec_id for each in old} <= {each.spec_id for each in new}


def _written(
    version: LandingVersion, alive: Sequence[IndexedFile], late: Sequence[DeletionVector]
) -> WrittenDeletes:
    """The deletes of new files, each of which the same commit adds."""
    positions = {
        file.ordinal: late[file.ordinal] for file in alive if late[file.ordinal].cardinality
    }
    return version.delete_writer().write(alive, positions)


def renumbered(files: Sequence[IndexedFile], first_ordinal: int) -> tuple[IndexedFile, ...]:
    """Files of a rewrite with the ordinals that they get in the index."""
    return tuple(replace(each, ordinal=each.ordinal + first_ordinal) for each in files)
