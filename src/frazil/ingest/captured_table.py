"""One changelog as an ingest sees it: its position, its next schema, and its commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.changelog.layout import CdcColumns
from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.row_order import plan_row_order
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.errors import (
    MarkerLostError,
    TableNotFoundError,
    UnsupportedSchemaChangeError,
)
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ingest.changelog_rows import RowLayout
from frazil.ingest.planning.changelog_plan import ChangelogNow, plan_changelog
from frazil.ingest.planning.column_numbers import decode_column_numbers
from frazil.ingest.task import TableTarget
from frazil.model.change import Operation, SequenceNumber
from frazil.model.marker import Marker, MarkerRole
from frazil.model.schema.layout_expressions import plan_partition_spec, plan_sort_order
from frazil.model.table_facts import COLUMNS_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import TableMetadata
    from frazil.clients.iceberg.table import TableVersion
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.row_order import RowOrder
    from frazil.ingest.planning.changelog_plan import ChangelogPlan
    from frazil.ingest.settings import CaptureSettings
    from frazil.model.marker import Position
    from frazil.model.policy import OnWiden
    from frazil.model.schema.partitioning import PartitionSpec, SortOrder
    from frazil.model.schema.table_layout import TableLayout
    from frazil.model.schema.types import Schema
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import Restart, TablePart


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPosition:
    """The position of a changelog in its source, and how the source described the table there."""

    position: Position
    epoch: int
    shape: str


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Prepared:
    """A part of a batch that its changelog is ready for; lives on the driver."""

    part: TablePart
    plan: ChangelogPlan
    changelog: ChangelogTable
    target: TableTarget
    epoch: int
    # Of the marker that a restart replaces.
    seen: str | None
    has_rows: bool
    # Whether what is known of the columns changes, even if the schema does not.
    has_new_columns: bool
    # The head of a table whose rows another writer left.
    taken_over: int | None = None

    @property
    def must_be_committed(self) -> bool:
        """Whether there is something to commit in addition to rows.

        By partition, the marker alone says where to continue: it moves without rows as well.
        """
        moves = self.part.restart is not None or isinstance(self.part.goal, Mapping)
        return moves or self.plan.evolves or self.has_new_columns


class CapturedTable:
    """The changelog of one source table; lives on the driver."""

    def __init__(
        self, lake: Lake, settings: CaptureSettings, *, pipeline: str, source: str
    ) -> None:
        self._lake = lake
        self._settings = settings
        self._pipeline = pipeline
        self._source = source
        self._opened: ChangelogTable | None = None

    @property
    def name(self) -> str:
        """The changelog's name."""
        return str(self._settings.changelog)

    @property
    def on_widen(self) -> OnWiden:
        """What a widened type means."""
        return self._settings.on_widen

    def load_position(
        self, source: str = "", offset_columns: tuple[str, str, str] | None = None
    ) -> CapturedPosition | None:
        """Its position; None if it does not exist or nothing was written to it.

        With ``offset_columns``, rows of another writer say how far it has come with this source.
        Raises MarkerLostError and RolledBackError as the changelog does.
        """
        changelog = self._open()
        if changelog is None:
            return None
        try:
            marker = changelog.position()
        except MarkerLostError:
            if offset_columns is None:
                raise
            position = changelog.load_next_offsets(source, offset_columns)
            return CapturedPosition(position=position, epoch=0, shape="")
        columns = changelog.table.load_state().properties.get(COLUMNS_PROPERTY)
        if marker is None or columns is None:
            return None
        known = decode_column_numbers(columns, table=self.name)
        return CapturedPosition(position=marker.position, epoch=marker.epoch, shape=known.shape)

    def prepare(self, part: TablePart) -> Prepared:
        """Make the changelog ready for these rows, creating it if it is not there.

        Its schema changes with the commit, not before. Raises UnsupportedSchemaChangeError.
        """
        changelog = self._open() or self._create(part.table)
        version = changelog.table.load_version()
        state = version.state
        columns = state.properties.get(COLUMNS_PROPERTY)
        seen = state.properties.get(MarkerRole.INGEST.property_name)
        has_rows = state.head is not None and state.head.count("total-records") > 0
        takes_over = seen is None and has_rows and part.restart is None
        plan = plan_changelog(
            part.table,
            changelog_now(version),
            prefix=self._settings.prefix,
            on_drop=self._settings.on_drop,
            evolution=self._settings.evolution,
            # The columns of a table that its owner made are found by name.
            restart=part.restart is not None or (seen is None and not has_rows),
            takes_over=takes_over,
        )
        if part.restart is not None and has_rows and not part.table.layout.can_restart:
            message = "its table has rows, which a copy cannot replace in this layout."
            next_step = f"drop {self.name}, or give it another name"
            raise UnsupportedSchemaChangeError(message, table=part.table.name, next_step=next_step)
        epoch = _next_epoch(state, part, table=self.name)
        return Prepared(
            part=part,
            plan=plan,
            changelog=changelog,
            target=TableTarget(
                layout=self._layout(part.table, plan, epoch),
                target=version.write_target(plan.schema),
                order=_row_order(part.table, plan.schema, version.sort_order),
            ),
            epoch=epoch,
            seen=seen,
            has_rows=has_rows,
            has_new_columns=plan.columns != columns,
            taken_over=state.head.id if takes_over and state.head is not None else None,
        )

    def commit(self, prepared: Prepared, files: Sequence[WrittenFile], *, batch: str) -> Receipt:
        """Append the files, follow the source's schema and move the marker, in one commit."""
        part = prepared.part
        goal = Marker(
            pipeline=self._pipeline,
            source=self._source,
            position=part.goal,
            batch=batch,
            epoch=prepared.epoch,
        )
        plan, changelog = prepared.plan, prepared.changelog
        wanted = plan.schema if plan.evolves else None
        if part.restart is not None:
            opening: tuple[WrittenFile, ...] = ()
            if prepared.has_rows:
                ours = self._ours(part.table)
                opening = _write_truncate(prepared, part.restart, ours)
            return changelog.restart_at(
                (*opening, *files),
                seen=prepared.seen,
                goal=goal,
                wanted=wanted,
                columns=plan.columns,
            )
        if prepared.taken_over is not None:
            return changelog.take_over(
                files,
                planned_on=prepared.taken_over,
                goal=goal,
                wanted=wanted,
                columns=plan.columns,
            )
        if wanted is None and not prepared.has_new_columns:
            return changelog.append(files, start=part.start, goal=goal)
        return changelog.evolve(
            plan.schema, start=part.start, goal=goal, columns=plan.columns, files=files
        )

    def load_version(self) -> TableVersion | None:
        """The changelog as it is now; None if it does not exist."""
        changelog = self._open()
        return None if changelog is None else changelog.table.load_version()

    def append_replayed(
        self,
        prepared: Prepared,
        files: Sequence[WrittenFile],
        *,
        version: TableVersion,
        batch: str,
        letters: Sequence[str],
    ) -> Receipt:
        """Append rows of dead letters to this version; its position stays where it is."""
        plan = prepared.plan
        wanted = plan.schema if plan.evolves else None
        if wanted is not None:
            prepared.changelog.table.check_evolution(wanted)
        return prepared.changelog.append_replayed(
            files,
            version=version,
            batch=batch,
            letters=letters,
            wanted=wanted,
            columns=plan.columns,
        )

    def _ours(self, table: SourceTable) -> CdcColumns:
        return CdcColumns(self._settings.prefix, table.layout)

    def _open(self) -> ChangelogTable | None:
        if self._opened is None:
            try:
                self._opened = ChangelogTable.open(self._lake, self._settings.changelog)
            except TableNotFoundError:
                return None
        return self._opened

    def _create(self, table: SourceTable) -> ChangelogTable:
        settings = self._settings
        if not table.layout.is_created:
            raise missing_table(table.name, self.name)
        plan = plan_changelog(
            table,
            None,
            prefix=settings.prefix,
            on_drop=settings.on_drop,
            evolution=settings.evolution,
            restart=True,
        )
        self._opened = ChangelogTable.ensure(
            self._lake,
            settings.changelog,
            schema=plan.schema,
            spec=self._spec(table.layout, plan.schema),
            sort_order=plan_sort_order(table.layout.sort_by, plan.schema),
            format_version=settings.format_version,
            columns=plan.columns,
        )
        return self._opened

    def _spec(self, layout: TableLayout, schema: Schema) -> PartitionSpec:
        prefix, given = self._settings.prefix, self._settings.partition_by
        if given is not None:
            return plan_partition_spec(given, schema)
        wanted = [
            (name.replace("{prefix}", prefix), expression.replace("{prefix}", prefix))
            for name, expression in layout.partition_by
        ]
        spec = plan_partition_spec([expression for _, expression in wanted], schema)
        pairs = zip(spec.fields, wanted, strict=True)
        named = tuple(replace(each, name=name or each.name) for each, (name, _) in pairs)
        return replace(spec, fields=named)

    def _layout(self, table: SourceTable, plan: ChangelogPlan, epoch: int) -> RowLayout:
        names = {each.id: each.name for each in plan.schema.fields}
        mapped = {column.number: names[plan.field_ids[column.number]] for column in table.columns}
        ours = self._ours(table)
        taken = {*mapped.values(), *ours.names}
        return RowLayout(
            names=mapped,
            field_ids=plan.field_ids,
            key=_member_names(plan),
            ours=ours,
            epoch=epoch,
            absent=tuple(name for name in names.values() if name not in taken),
        )


def changelog_now(version: TableVersion) -> ChangelogNow:
    """What a plan of its schema needs."""
    pinned = {each.source_id for each in version.spec.fields}
    pinned |= {each.source_id for each in version.sort_order.fields}
    return ChangelogNow(
        schema=version.schema,
        last_column_id=version.state.last_column_id,
        columns=version.state.properties.get(COLUMNS_PROPERTY),
        format_version=version.state.format_version,
        pinned=frozenset(pinned),
    )


def _row_order(table: SourceTable, schema: Schema, order: SortOrder) -> RowOrder | None:
    """That of a table of records; changes stay in the order they have."""
    if table.layout.has_operations or not order.fields:
        return None
    return plan_row_order(schema, order)


def missing_table(table: str, changelog: str) -> TableNotFoundError:
    """Why a table cannot be captured whose owner was to make its changelog."""
    message = "its table does not exist, and the source's settings say not to create it."
    step = f"create {changelog}, or let it be created"
    return TableNotFoundError(message, table=table, next_step=step)


def _member_names(plan: ChangelogPlan) -> dict[int, str]:
    members = {}
    for number, field_id in plan.key_ids.items():
        column = plan.schema.by_id(field_id)
        if column is not None:
            members[number] = column.field.name
    return members


def _next_epoch(state: TableMetadata, part: TablePart, *, table: str) -> int:
    marker = state.marker(MarkerRole.INGEST, table=table)
    if marker is None:
        return 0
    return marker.epoch if part.restart is None else marker.epoch + 1


def _write_truncate(
    prepared: Prepared, restart: Restart, ours: CdcColumns
) -> tuple[WrittenFile, ...]:
    """One row before all others of the new epoch: what was captured before is gone."""
    target = prepared.target.target
    row = {
        ours.operation: Operation.TRUNCATE.value,
        ours.sequence_number: str(SequenceNumber(prepared.epoch, restart.position, 0)),
        ours.lsn: restart.origin,
    }
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    try:
        writer.write(pa.RecordBatch.from_pylist([row], schema=arrow_schema(target.schema)))
        return writer.close()
    except BaseException:
        writer.abandon()
        raise
