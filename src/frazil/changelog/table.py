"""One changelog: its position, appends, and reads of a range of snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import BOUNDED_METADATA, NEWEST_FORMAT, TableDefinition
from frazil.model.marker import MarkerMove, MarkerRole, Override
from frazil.model.schema.partitioning import UNPARTITIONED
from frazil.model.table_facts import COLUMNS_PROPERTY, RESTART_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from frazil.clients.iceberg.commit.retrying import RetryPolicy
    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import LakeTable
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.model.marker import Marker, Position
    from frazil.model.schema.partitioning import PartitionSpec
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
        retry: RetryPolicy | None = None,
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
        return self.table.append(commit, retry)

    def evolve(
        self,
        wanted: Schema,
        *,
        start: Position | None,
        goal: Marker,
        columns: str | None = None,
        files: Sequence[WrittenFile] = (),
        summary: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Change the schema, by field id, together with the rows that need it.

        ``wanted`` keeps the ``schema_id`` of the schema it was made from; if the table has another
        one now, CommitConflictError is raised and the caller plans again. ``columns`` becomes the
        property that maps source columns to fields. Raises
        UnsupportedSchemaChangeError with every difference that cannot be followed.
        """
        self.table.check_evolution(wanted)
        commit = StrictCommit(
            move=MarkerMove(MarkerRole.INGEST, start, goal),
            changes=_added(files),
            schema=wanted,
            schema_before=wanted.schema_id,
            summary=dict(summary or {}),
            properties={} if columns is None else {COLUMNS_PROPERTY: columns},
        )
        return self.table.commit(commit)

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
        if wanted is not None:
            self.table.check_evolution(wanted)
        commit = StrictCommit(
            move=Override(MarkerRole.INGEST, seen, goal),
            changes=_added(files),
            schema=wanted,
            schema_before=None if wanted is None else wanted.schema_id,
            summary={RESTART_KEY: f"{goal.epoch:04x}"},
            properties={} if columns is None else {COLUMNS_PROPERTY: columns},
        )
        return self.table.commit(commit)

    def read_between(self, after: int | None, through: int) -> DataFrame:
        """The changes appended after one snapshot up to another; without the first, all up to it.

        Raises RolledBackError when either is not in the table's history, ForeignChangeError when
        rows were removed or replaced between them.
        """
        return self.table.read_between(after, through)

    def read_planned(self, after: int | None, through: int) -> DataFrame:
        """The same for a range that a merge plan has checked; it may include retention."""
        return self.table.read_planned(after, through)


def _added(files: Sequence[WrittenFile]) -> FileChanges:
    return FileChanges(added=tuple(file.descriptor for file in files))
