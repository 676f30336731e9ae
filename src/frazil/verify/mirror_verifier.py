"""Verifies that a mirror is the fold of its changelog, from these two tables only.

Everything up to the mirror's marker is folded by Spark (``expected_rows``), not by the merge code.
Rows are compared by checksum, per range of the key's hash; the keys of ranges that differ are then
compared one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.iceberg.read.table_metadata import check_range
from frazil.clients.spark.pinned_session import pinned_session
from frazil.clients.spark.task_errors import running_tasks
from frazil.errors import ForeignChangeError, TableReplacedError
from frazil.merge.planning.changelog_columns import settings_at
from frazil.merge.planning.column_mapping import decode_columns
from frazil.merge.reading.expected_rows import (
    DELETED,
    HI,
    LO,
    expected_rows,
    load_moved_rows,
    read_history,
)
from frazil.model.command import command
from frazil.model.marker import MarkerRole
from frazil.model.policy import Deletes, Order
from frazil.model.table_facts import COLUMNS_PROPERTY, SnapshotOperation, trimmed_through
from frazil.verify.compared_columns import mirror_rows, plan_comparison
from frazil.verify.row_comparison import (
    RANGES,
    load_differences,
    load_range_totals,
    with_checksums,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import TableVersion
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.reading.expected_rows import MovedRows
    from frazil.model.marker import Marker
    from frazil.model.table_name import TableName
    from frazil.verify.compared_columns import ComparisonPlan
    from frazil.verify.offset_ranges import OffsetDifference
    from frazil.verify.row_comparison import KeyDifference

NOTHING_MERGED = "nothing is merged yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of comparing a mirror with the fold of its changelog up to the mirror's marker.

    Or with its source: then ``source`` names the table there, and ``position`` is where it was
    read. ``through`` is the changelog's snapshot, ``snapshot_id`` the mirror's. ``left_out`` are
    columns of the mirror that the other side does not have. ``unjudged`` counts keys whose expected
    row is unknown: a row moved there and its history is incomplete, or the source kept changing it.
    A mirror that ``is_behind`` has not reached the position: missing rows may still arrive.
    ``samples`` has up to twenty differing keys, ``note`` explains the verdict, and ``next_step`` is
    the command that repairs a difference.

    A table of records is its own changelog and mirror; ``offsets`` are up to twenty ranges of
    offsets by which it differs from its source.
    """

    changelog: TableName
    mirror: TableName
    source: str | None = None
    position: str | None = None
    snapshot_id: int | None = None
    through: int | None = None
    rows_expected: int = 0
    rows_found: int = 0
    columns: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    ranges: int = RANGES
    differing_ranges: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    unjudged: int = 0
    samples: tuple[KeyDifference, ...] = ()
    offsets: tuple[OffsetDifference, ...] = ()
    is_behind: bool = False
    note: str = ""
    next_step: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every judged key has its expected row."""
        return not self.differing_ranges and not self.is_behind

    @property
    def differs(self) -> bool:
        """Whether some key differs permanently."""
        return bool(self.differing_ranges) and not self.is_behind


def verify_mirror(
    session: SparkSession, lake: Lake, settings: MergeSettings, *, show_keys: bool = False
) -> Verification:
    """Compare the mirror with its changelog; read-only.

    ``show_keys`` includes the keys in the result, which are values of rows. Raises
    ForeignChangeError when rows of the changelog were removed, because their absence would be
    reported as a difference, and MarkerLostError or RolledBackError as a merge would.
    """
    pinned = pinned_session(session)
    mirror, changelog = lake.open(settings.mirror), lake.open(settings.changelog)
    now, source = mirror.load_version(), changelog.load_version()
    marker, head = now.marker(MarkerRole.MERGE), now.state.head
    if marker is None or head is None:
        return Verification(
            changelog=settings.changelog, mirror=settings.mirror, note=NOTHING_MERGED
        )
    history = _merged_history(source, marker, settings)
    through = history[-1]
    rows, changes = mirror.read(head.id), changelog.read(through.id)
    # Reading as of a snapshot uses the schema of that time.
    then = source.schema_of(through.schema_id)
    text = now.state.properties.get(COLUMNS_PROPERTY)
    columns = None if text is None else decode_columns(text, table=str(settings.mirror))
    comparison = plan_comparison(
        then,
        now.schema_of(head.schema_id),
        columns,
        settings_at(settings, now=source.schema, then=then),
        read_as=(changes.schema, rows.schema),
    )
    with running_tasks(str(settings.mirror), "comparing the mirror with its changelog"):
        found = _Sides(pinned, settings, comparison, changes, rows).compare(show_keys=show_keys)
    note = _note(history, settings)
    return replace(found, snapshot_id=head.id, through=through.id, note=note)


def refuse_removed_rows(history: Sequence[SnapshotFacts], *, table: str) -> None:
    """Raise ForeignChangeError when a snapshot of this history removed rows."""
    for snapshot in history:
        # A replace is a compaction: the same rows in other files.
        if snapshot.operation is SnapshotOperation.REPLACE:
            continue
        removed = snapshot.count("deleted-records")
        if removed or snapshot.count("added-delete-files"):
            message = (
                f"its history is not complete: snapshot {snapshot.id}, a {snapshot.operation}, "
                f"removed {removed or 'some'} rows, so the expected rows are unknown."
            )
            raise ForeignChangeError(
                message, table=table, next_step="compare the mirror with the source itself"
            )


def _merged_history(
    changelog: TableVersion, marker: Marker, settings: MergeSettings
) -> tuple[SnapshotFacts, ...]:
    """The changelog's snapshots up to the one merged last, oldest first."""
    name = str(settings.changelog)
    if marker.source != changelog.state.uuid:
        message = "the mirror was merged from another table than the one of this name."
        raise TableReplacedError(message, table=name, next_step=command("resync", settings.mirror))
    trimmed = trimmed_through(changelog.state.properties)
    if trimmed is not None:
        message = "changes that were merged long ago are removed, so the expected rows are unknown."
        next_step = "compare the mirror with the source itself"
        raise ForeignChangeError(message, table=name, next_step=next_step)
    through = int(str(marker.position))
    history = check_range(changelog.history(), after=None, through=through, table=name)
    refuse_removed_rows(history, table=name)
    return history


def _note(history: Sequence[SnapshotFacts], settings: MergeSettings) -> str:
    notes = []
    if history[0].parent is not None:
        notes.append(
            f"the changelog's snapshots before {history[0].id} are expired: "
            "rows they removed would be reported as differences"
        )
    if _leaves_deleted_out(settings):
        notes.append("the values of deleted rows are not compared")
    return "; ".join(notes)


def _leaves_deleted_out(settings: MergeSettings) -> bool:
    """Whether deleted rows depend on the order of arrival, which is not recorded."""
    return settings.order is Order.PER_KEY and settings.deletes is Deletes.SOFT


@dataclass(frozen=True, slots=True)
class _Sides:
    """Expected and actual rows, as Spark reads them."""

    session: SparkSession
    settings: MergeSettings
    comparison: ComparisonPlan
    changes: DataFrame
    rows: DataFrame

    def compare(self, *, show_keys: bool) -> Verification:
        """Compare ranges first, then the keys of those that differ."""
        layout = self.comparison.layout
        history = read_history(self.changes, layout)
        moved = load_moved_rows(self.session, history, layout, table=str(self.settings.mirror))
        expected, found = self._expected(history, moved), self._found(moved)
        totals = load_range_totals(expected, found)
        differences = load_differences(expected, found, totals.differing, show_keys=show_keys)
        return Verification(
            changelog=self.settings.changelog,
            mirror=self.settings.mirror,
            rows_expected=totals.expected,
            rows_found=totals.found,
            columns=tuple(each.mirror for each in layout.columns),
            left_out=self.comparison.left_out,
            differing_ranges=len(totals.differing),
            missing=differences.missing,
            surplus=differences.surplus,
            different=differences.different,
            unjudged=0 if moved is None else moved.unjudged_count,
            samples=differences.samples,
        )

    def _expected(self, history: DataFrame, moved: MovedRows | None) -> DataFrame:
        layout = self.comparison.layout
        rows = expected_rows(history, layout)
        if moved is not None:
            rows = rows.join(moved.keys, [HI, LO], "left_anti")
            if moved.rows is not None:
                rows = rows.unionByName(moved.rows)
        return self._compared(rows)

    def _found(self, moved: MovedRows | None) -> DataFrame:
        layout = self.comparison.layout
        named = zip(layout.columns, layout.names, strict=True)
        rows = mirror_rows(self.rows, self.comparison, {each.mirror: name for each, name in named})
        if moved is not None and moved.unjudged is not None:
            rows = rows.join(moved.unjudged, [HI, LO], "left_anti")
        return self._compared(rows)

    def _compared(self, rows: DataFrame) -> DataFrame:
        if _leaves_deleted_out(self.settings):
            rows = rows.where(~sf.col(DELETED))
        names = (*self.comparison.layout.names, DELETED)
        return with_checksums(rows, names, key_names=self._key_names())

    def _key_names(self) -> tuple[str, ...]:
        in_key = {name for name, _ in self.comparison.mirror_key}
        layout = self.comparison.layout
        named = zip(layout.names, layout.columns, strict=True)
        return tuple(name for name, each in named if each.mirror in in_key)
