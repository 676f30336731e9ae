"""One changelog: its position, appends, reads of a range, and the facts a merge is planned from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every reader of PySpark knows

from frazil.changelog.mirror_record import recorded_mirrors
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import BOUNDED_METADATA, NEWEST_FORMAT, TableDefinition
from frazil.clients.java_errors import translated
from frazil.errors import TableNotFoundError
from frazil.model.marker import MarkerMove, MarkerRole, Override
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED
from frazil.model.table_facts import (
    COLUMNS_PROPERTY,
    INCOMPLETE_KEY,
    REPLAYED_PROPERTY,
    RESTART_KEY,
    ChangelogFacts,
    SnapshotLine,
    SnapshotOperation,
    trimmed_through,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable, TableVersion
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.model.marker import Marker, Position
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName


class ChangelogTable:
    """The changes of one source table; lives on the driver."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table

    @classmethod
    def open(cls, lake: Lake, name: TableName) -> ChangelogTable:
        """A changelog that exists; TableNotFoundError otherwise."""
        return cls(lake.open(name))

    @classmethod
    def ensure(
        cls,
        lake: Lake,
        name: TableName,
        *,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED,
        sort_order: SortOrder = UNSORTED,
        format_version: int = NEWEST_FORMAT,
        columns: str | None = None,
    ) -> ChangelogTable:
        """The existing changelog, or a new one with this schema (see ``layout``).

        ``columns`` becomes the property that maps source columns to fields.
        """
        properties = {} if columns is None else {COLUMNS_PROPERTY: columns}
        definition = TableDefinition(
            schema=schema,
            spec=spec,
            sort_order=sort_order,
            format_version=format_version,
            properties={**BOUNDED_METADATA, **properties},
        )
        return cls(lake.ensure_table(name, definition))

    def position(self) -> Marker | None:
        """The position of the last append; None if there was none.

        Raises MarkerLostError when there are rows and no marker, RolledBackError when the table
        was rolled back or replaced: only the source knows what is missing then.
        """
        return self.table.load_marker(MarkerRole.INGEST)

    def append(
        self,
        files: Sequence[WrittenFile],
        *,
        start: Position | None,
        goal: Marker,
        summary: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Append the files and move the position, in one commit.

        Repeating the same range is a no-op, and the receipt says so. Raises FencedError when the
        position is not ``start``: another process has done this work.
        """
        commit = StrictCommit(
            move=MarkerMove(MarkerRole.INGEST, start, goal),
            changes=_added(files),
            summary=dict(summary or {}),
        )
        return self.table.append(commit)

    def evolve(
        self,
        wanted: Schema,
        *,
        start: Position | None,
        goal: Marker,
        columns: str | None = None,
        files: Sequence[WrittenFile] = (),
    ) -> Receipt:
        """Change the schema, by field id, together with the rows that need it.

        ``wanted`` keeps the ``schema_id`` of the schema it was made from; if the table has another
        one now, CommitConflictError is raised and the caller plans again. ``columns`` becomes the
        property that maps source columns to fields. Raises
        UnsupportedSchemaChangeError with every difference that cannot be followed.
        """
        move = MarkerMove(MarkerRole.INGEST, start, goal)
        return self._commit(move, files, wanted, columns, {})

    def restart_at(
        self,
        files: Sequence[WrittenFile],
        *,
        seen: str | None,
        goal: Marker,
        wanted: Schema | None = None,
        columns: str | None = None,
    ) -> Receipt:
        """Append a copy of the source table, whatever was captured before.

        ``seen`` is the text of the marker that this replaces, valid or not. Raises
        CommitConflictError when the table has another one now.
        """
        move = Override(MarkerRole.INGEST, seen, goal)
        return self._commit(move, files, wanted, columns, {RESTART_KEY: f"{goal.epoch:04x}"})

    def take_over(
        self,
        files: Sequence[WrittenFile],
        *,
        planned_on: int | None,
        goal: Marker,
        wanted: Schema | None = None,
        columns: str | None = None,
    ) -> Receipt:
        """Append to the rows that another writer left, which wrote no marker.

        Raises CommitConflictError when its head is not the one that this was planned on: the other
        writer may still be there.
        """
        move = Override(MarkerRole.INGEST, None, goal)
        return self._commit(move, files, wanted, columns, {}, planned_on=planned_on)

    def load_next_offsets(self, source: str, columns: tuple[str, str, str]) -> Mapping[str, int]:
        """Where each partition of a source continues, by the rows that are there.

        ``columns`` have the source's name, the number of the partition and the offset.
        """
        name, partition, offset = columns
        with translated(str(self.table.name), "reading offsets"):
            rows = self.table.read().where(F.col(name) == F.lit(source))
            newest = rows.groupBy(partition).agg(F.max(offset)).collect()
        return {f"{source}/{number}": last + 1 for number, last in newest}

    def append_replayed(
        self,
        files: Sequence[WrittenFile],
        *,
        version: TableVersion,
        batch: str,
        letters: Sequence[str],
        wanted: Schema | None = None,
        columns: str | None = None,
    ) -> Receipt:
        """Append rows of dead letters, and leave the position where it is.

        Their ids are what ``replayed_letters`` returns until the next such commit.
        Raises CommitConflictError when the table is not at this version any more: which letters
        it has must be read again.
        """
        state, marker = version.state, version.marker(MarkerRole.INGEST)
        if marker is None or state.head is None:
            message = "nothing was captured yet that letters could follow."
            raise TableNotFoundError(message, table=str(self.table.name))
        seen = state.properties.get(MarkerRole.INGEST.property_name)
        # A marker never moves without a new snapshot, and no snapshot is without one.
        same = replace(marker, batch=batch, snapshot=None)
        properties = {REPLAYED_PROPERTY: f"{marker.epoch}:{','.join(letters)}"}
        if columns is not None:
            properties[COLUMNS_PROPERTY] = columns
        commit = StrictCommit(
            move=Override(MarkerRole.INGEST, seen, same),
            changes=_added(files),
            schema=wanted,
            schema_before=None if wanted is None else wanted.schema_id,
            summary={REPLAYED_PROPERTY: str(len(letters))},
            properties=properties,
            planned_on=state.head.id,
        )
        return self.table.commit(commit)

    def _commit(
        self,
        move: MarkerMove | Override,
        files: Sequence[WrittenFile],
        wanted: Schema | None,
        columns: str | None,
        summary: Mapping[str, str],
        *,
        planned_on: int | None = None,
    ) -> Receipt:
        if wanted is not None:
            self.table.check_evolution(wanted)
        commit = StrictCommit(
            move=move,
            changes=_added(files),
            schema=wanted,
            schema_before=None if wanted is None else wanted.schema_id,
            summary=summary,
            properties={} if columns is None else {COLUMNS_PROPERTY: columns},
            planned_on=planned_on,
        )
        return self.table.commit(commit)


def replayed_letters(version: TableVersion) -> frozenset[str]:
    """The dead letters whose rows the last replay appended; none after a copy of the table."""
    marker = version.marker(MarkerRole.INGEST)
    epoch, _, ids = version.state.properties.get(REPLAYED_PROPERTY, "").partition(":")
    if marker is None or epoch != str(marker.epoch):
        return frozenset()
    return frozenset(filter(None, ids.split(",")))


def _added(files: Sequence[WrittenFile]) -> FileChanges:
    return FileChanges(added=tuple(file.descriptor for file in files))


def load_changelog_facts(changelog: ChangelogTable, *, after: int | None) -> ChangelogFacts:
    """The current changelog, back to the snapshot that was merged last.

    Without ``after``, or if it is not in the history, back to the oldest snapshot kept. Files of
    older snapshots are not read.
    """
    version = changelog.table.load_version()
    history = version.history(until=after)
    # A full read needs the schemas. Removed rows matter only to a range, which begins after the
    # marker or with a copy of the table.
    has_range = after is not None or any(RESTART_KEY in each.summary for each in history)
    is_full = after not in {each.id for each in history}
    properties = version.state.properties
    is_ours = MarkerRole.INGEST.property_name in properties
    return ChangelogFacts(
        name=changelog.table.name,
        uuid=version.state.uuid,
        schema=version.schema,
        snapshots=tuple(snapshot_line(each) for each in reversed(history)),
        retention_of=_load_retention(version, history, after) if has_range else {},
        schemas=_load_schemas(version, history) if is_full else {},
        trimmed=trimmed_through(properties),
        mirrors=recorded_mirrors(properties) if is_ours else None,
    )


def snapshot_line(snapshot: SnapshotFacts) -> SnapshotLine:
    """The facts about a snapshot that a plan needs."""
    return SnapshotLine(
        id=snapshot.id,
        parent=snapshot.parent,
        sequence=snapshot.sequence,
        operation=snapshot.operation,
        added_rows=snapshot.count("added-records"),
        added_bytes=snapshot.count("added-files-size"),
        total_rows=snapshot.count("total-records"),
        total_bytes=snapshot.count("total-files-size"),
        removes=snapshot.count("deleted-data-files") > 0 or _deletes_rows(snapshot),
        incomplete=snapshot.summary.get(INCOMPLETE_KEY, "").lower() == "true",
        restart=snapshot.summary.get(RESTART_KEY),
        committed_at=snapshot.committed_at,
        schema_id=snapshot.schema_id,
    )


def _deletes_rows(snapshot: SnapshotFacts) -> bool:
    """Whether it deleted single rows of files, whose age is unknown."""
    return snapshot.count("added-delete-files") > 0


def _load_retention(
    version: TableVersion, history: Sequence[SnapshotFacts], after: int | None
) -> Mapping[int, int]:
    return {
        each.id: _load_removed(version, each)
        for each in history
        if each.operation is SnapshotOperation.DELETE
        and each.id != after
        and not _deletes_rows(each)
    }


def _load_removed(version: TableVersion, snapshot: SnapshotFacts) -> int:
    """The highest data sequence number that it removed; our own retention has written it down."""
    known = trimmed_through(snapshot.summary)
    return version.load_removed_sequence(snapshot.id) if known is None else known


def _load_schemas(version: TableVersion, history: Sequence[SnapshotFacts]) -> Mapping[int, Schema]:
    ids = {each.schema_id for each in history if each.schema_id is not None}
    return {each: version.schema_of(each) for each in sorted(ids)}
