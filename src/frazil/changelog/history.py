"""Loads the facts about a changelog that a merge is planned from: schema and unmerged snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.table_facts import (
    INCOMPLETE_KEY,
    RESTART_KEY,
    ChangelogFacts,
    SnapshotLine,
    SnapshotOperation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.changelog.table import ChangelogTable
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import TableVersion
    from frazil.model.schema.types import Schema


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
    return ChangelogFacts(
        name=changelog.table.name,
        uuid=version.state.uuid,
        schema=version.schema,
        snapshots=tuple(snapshot_line(each) for each in reversed(history)),
        retention_of=_load_retention(version, history, after) if has_range else {},
        schemas=_load_schemas(version, history) if is_full else {},
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
        each.id: version.load_removed_sequence(each.id)
        for each in history
        if each.operation is SnapshotOperation.DELETE
        and each.id != after
        and not _deletes_rows(each)
    }


def _load_schemas(version: TableVersion, history: Sequence[SnapshotFacts]) -> Mapping[int, Schema]:
    ids = {each.schema_id for each in history if each.schema_id is not None}
    return {each: version.schema_of(each) for each in sorted(ids)}
