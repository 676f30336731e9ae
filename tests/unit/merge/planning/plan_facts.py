"""Changelogs and mirrors as a plan sees them, for the tests of plans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.changelog.layout import changelog_schema
from frazil.merge.planning.plan import MergePlan, plan_merge
from frazil.merge.planning.settings import MergeSettings
from frazil.model.marker import Marker
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.model.table_facts import ChangelogFacts, MirrorFacts, SnapshotLine, SnapshotOperation
from frazil.model.table_name import TableName

if TYPE_CHECKING:
    from frazil.model.marker import Position

P = Primitive
APPEND, REPLACE = SnapshotOperation.APPEND, SnapshotOperation.REPLACE
DELETE, OVERWRITE = SnapshotOperation.DELETE, SnapshotOperation.OVERWRITE
CHANGELOG = TableName("lake", ("shop",), "users_changelog")
MIRROR = TableName("lake", ("shop",), "users")
SETTINGS = MergeSettings(changelog=CHANGELOG, mirror=MIRROR, key=("id",), max_rows=100)
USERS = (Field(1, "id", P.LONG), Field(2, "name", P.STRING), Field(3, "seen", P.TIMESTAMP))
SCHEMA = changelog_schema(USERS, ["id"])


def snapshot(
    number: int,
    operation: SnapshotOperation = APPEND,
    *,
    rows: int = 10,
    incomplete: bool = False,
    removes: bool = False,
) -> SnapshotLine:
    return SnapshotLine(
        id=number,
        parent=number - 1 if number > 1 else None,
        sequence=number,
        operation=operation,
        added_rows=rows,
        added_bytes=rows * 100,
        removes=removes or operation is DELETE,
        incomplete=incomplete,
        schema_id=0,
    )


def history(*lines: SnapshotLine) -> tuple[SnapshotLine, ...]:
    """The lines with running totals, appends alone adding to them."""
    total, counted = 0, []
    for each in lines:
        total += each.added_rows if each.operation is APPEND else 0
        counted.append(replace(each, total_rows=total, total_bytes=total * 100))
    return tuple(counted)


def changelog(
    *lines: SnapshotLine,
    schema: Schema = SCHEMA,
    retention: dict[int, int] | None = None,
    schemas: dict[int, Schema] | None = None,
) -> ChangelogFacts:
    return ChangelogFacts(
        name=CHANGELOG,
        uuid="changelog-1",
        schema=schema,
        snapshots=history(*lines),
        retention_of=retention or {},
        schemas={0: schema} if schemas is None else schemas,
    )


def appends(*rows: int) -> tuple[SnapshotLine, ...]:
    return tuple(snapshot(number, rows=count) for number, count in enumerate(rows, start=1))


def merged_through(position: Position, source: str = "changelog-1") -> Marker:
    return Marker(pipeline="frazil", source=source, position=position, batch="b")


def mirror(marker: Marker | None, *, total_rows: int = 5, head: int | None = 700) -> MirrorFacts:
    plan = plan_merge(changelog(snapshot(1)), None, SETTINGS)
    assert plan is not None
    return MirrorFacts(
        name=MIRROR,
        uuid="mirror-1",
        schema=plan.schema.mirror,
        spec=UNPARTITIONED,
        sort_order=UNSORTED,
        format_version=3,
        last_column_id=3,
        head=head,
        marker=marker,
        columns=plan.schema.columns,
        total_rows=total_rows,
    )


def planned(
    facts: ChangelogFacts, after: int | None = None, settings: MergeSettings = SETTINGS
) -> MergePlan | None:
    there = None if after is None else mirror(merged_through(str(after)))
    return plan_merge(facts, there, settings)


def taken(plan: MergePlan | None) -> tuple[int | None, int, int, int] | None:
    """After, through, rows and how many snapshots are left."""
    if plan is None:
        return None
    return plan.after, plan.through, plan.rows, plan.remaining_snapshots
