"""One mirror: how far it has merged, and the commit of a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.codec.malformed import MalformedFileError
from frazil.codec.marker_json import decode_marker
from frazil.errors import MarkerLostError, RolledBackError
from frazil.model.marker import MarkerMove, MarkerRole, Override, SnapshotRef
from frazil.model.table_facts import (
    COLUMNS_PROPERTY,
    DEFAULT_SEQUENCE_PROPERTY,
    ORDER_PROPERTY,
    MirrorFacts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from frazil.clients.iceberg.commit.strict_commit import FileChanges, Receipt, StatisticsFile
    from frazil.clients.iceberg.lake import Lake, TableDefinition
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import LakeTable
    from frazil.errors import FrazilError
    from frazil.model.marker import Marker, Position, SeenMarker
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName


class MirrorTable:
    """The newest state of one source table; lives on the driver."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table

    @classmethod
    def open(cls, lake: Lake, name: TableName) -> MirrorTable:
        """A mirror that exists; TableNotFoundError otherwise."""
        return cls(lake.open(name))

    @classmethod
    def ensure(cls, lake: Lake, name: TableName, definition: TableDefinition) -> MirrorTable:
        """The existing mirror, or a new one as defined."""
        return cls(lake.ensure_table(name, definition))

    def position(self) -> Marker | None:
        """Through which changelog snapshot the mirror has merged; None before the first merge.

        Raises MarkerLostError when there are rows and no marker, RolledBackError when the table
        was rolled back: ``recoverable_marker`` then says where to continue.
        """
        return self.table.load_marker(MarkerRole.MERGE)

    def recoverable_marker(self) -> Marker | None:
        """How far the current snapshot was merged, whatever the property says.

        None when no snapshot of the history was written by a merge of ours. Not for changelogs:
        merging a change again is harmless, appending it again is not.
        """
        return nearest_marker(self.table.iter_with_expired(), MarkerRole.MERGE)

    def apply(
        self,
        changes: FileChanges,
        *,
        start: Position | None,
        goal: Marker,
        replaces: SeenMarker | None = None,
        planned_on: int | None,
        schema: Schema | None = None,
        properties: Mapping[str, str] | None = None,
        summary: Mapping[str, str] | None = None,
        statistics: Callable[[SnapshotRef], StatisticsFile | None] | None = None,
    ) -> Receipt:
        """Commit one merge: files, schema, statistics and position, together or not at all.

        ``planned_on`` is the head whose files the plan names; ``schema`` keeps the id of the one
        it was made from. ``replaces`` is a marker that the goal replaces, valid or not; ``start``
        is then ignored. One attempt only: after CommitConflictError the merge is planned again on
        the new head, from the same start.
        """
        if schema is not None:
            self.table.check_evolution(schema)
        move: MarkerMove | Override = MarkerMove(MarkerRole.MERGE, start, goal)
        if replaces is not None:
            move = Override(MarkerRole.MERGE, replaces.text, goal)
        commit = StrictCommit(
            move=move,
            changes=changes,
            schema=schema,
            schema_before=None if schema is None else schema.schema_id,
            summary=dict(summary or {}),
            properties=dict(properties or {}),
            statistics=statistics,
            planned_on=planned_on,
        )
        return self.table.commit(commit)


def nearest_marker(ancestry: Iterable[SnapshotFacts], role: MarkerRole) -> Marker | None:
    """The marker that our newest commit in this history wrote.

    ``ancestry`` is newest first. A position by partition is not taken from a summary, which names
    only the partitions that moved.
    """
    for snapshot in ancestry:
        text = snapshot.summary.get(role.property_name)
        if text is None:
            continue
        try:
            found = decode_marker(text)
        except MalformedFileError:
            # Written by a newer version or another program: not usable.
            return None
        if not isinstance(found.position, str):
            return None
        return found.written_by(SnapshotRef(snapshot.id, snapshot.sequence))
    return None


def load_mirror_facts(mirror: MirrorTable) -> MirrorFacts:
    """The current version of the mirror; an invalid marker becomes a fact, not an error."""
    version = mirror.table.load_version()
    state = version.state
    problem: FrazilError | None = None
    try:
        marker = state.marker(MarkerRole.MERGE, table=str(mirror.table.name))
        version.marker(MarkerRole.MERGE)
    except RolledBackError as error:
        problem = error
    except MarkerLostError as error:
        # Its snapshots may still show how far it was merged.
        marker, problem = mirror.recoverable_marker(), error
    return MirrorFacts(
        name=mirror.table.name,
        uuid=state.uuid,
        schema=version.schema,
        spec=version.spec,
        sort_order=version.sort_order,
        format_version=state.format_version,
        last_column_id=state.last_column_id,
        head=None if state.head is None else state.head.id,
        marker=marker,
        columns=state.properties.get(COLUMNS_PROPERTY),
        order=state.properties.get(ORDER_PROPERTY),
        # Empty if a restart removed it.
        default_sequence=state.properties.get(DEFAULT_SEQUENCE_PROPERTY) or None,
        total_rows=0 if state.head is None else state.head.count("total-records"),
        marker_text=state.properties.get(MarkerRole.MERGE.property_name),
        problem=problem,
    )
