"""Loads what a plan needs from both tables and builds the work that ``apply`` performs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.iceberg.write.row_order import plan_row_order
from frazil.errors import CommitConflictError
from frazil.merge.apply import MergeWork
from frazil.merge.folding.change_rows import FoldColumn, FoldLayout
from frazil.merge.job import MergeRange
from frazil.merge.planning.changes import decode_sequence
from frazil.merge.reading.changelog_reader import ReadLayout, merged_changes, remembered_deletes
from frazil.merge.target import MergeTarget, load_target, plan_growth, task_index
from frazil.merge.writing.admission import AdmissionRules
from frazil.merge.writing.key_writer import KeyWriterSpec
from frazil.merge.writing.mirror_rows import ComparedContent
from frazil.merge.writing.task import MergeJob
from frazil.mirror.index.key_reading import spark_type
from frazil.mirror.index.run_building import fresh_name
from frazil.model.key_index import KeyHash
from frazil.model.marker import Marker
from frazil.model.policy import Deletes, Order
from frazil.model.table_facts import COLUMNS_PROPERTY, ORDER_PROPERTY
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.changelog.table import ChangelogTable
    from frazil.hooks import Clock, Randomness
    from frazil.merge.planning.changes import SequenceValue
    from frazil.merge.planning.column_mapping import ColumnMapping
    from frazil.merge.planning.plan import MergePlan
    from frazil.merge.planning.settings import MergeSettings
    from frazil.mirror.index.keeping import IndexKeeper
    from frazil.mirror.index.loading import KeyIndex
    from frazil.mirror.table import MirrorTable


def assemble_work(
    session: SparkSession,
    plan: MergePlan,
    settings: MergeSettings,
    *,
    changelog: ChangelogTable,
    mirror: MirrorTable,
    clock: Clock,
    randomness: Randomness,
) -> MergeWork:
    """Load everything the plan needs; writes nothing.

    Raises CommitConflictError when another merge has committed since the plan was made.
    """
    target = load_target(
        mirror,
        settings,
        schema=plan.schema.wanted,
        key_ids=plan.key_ids,
        sequence_id=plan.sequence_id,
        sequence_type=plan.sequence_type,
        randomness=randomness,
    )
    before = None if plan.replaces is not None else mirror.position()
    if plan.replaces is None and (None if before is None else before.position) != plan.start:
        # A mirror without a snapshot has no head to compare.
        message = "another merge has committed to the table."
        raise CommitConflictError(message, table=str(settings.mirror))
    assembly = _Assembly(
        session=session,
        plan=plan,
        settings=settings,
        changelog=changelog,
        before=before,
        target=target,
        clock=clock,
    )
    return assembly.work()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assembly:
    """Builds the parts of one merge from the plan and the current mirror."""

    session: SparkSession
    plan: MergePlan
    settings: MergeSettings
    changelog: ChangelogTable
    before: Marker | None
    target: MergeTarget
    clock: Clock

    def work(self) -> MergeWork:
        """The complete work."""
        plan, settings = self.plan, self.settings
        return MergeWork(
            target=self.target,
            range_=self._range(),
            keeper=self._keeper(),
            growth=plan_growth(self.session, self.target, settings, clock=self.clock),
            make_job=self._job,
            plan=plan,
            before=self.before,
            goal=Marker(
                pipeline=settings.pipeline,
                source=plan.source,
                position=str(plan.through),
                batch=fresh_name(self.target.randomness.token),
                epoch=0 if self.before is None else self.before.epoch,
            ),
            properties={
                COLUMNS_PROPERTY: plan.schema.columns,
                ORDER_PROPERTY: settings.order.value,
                **plan.default_sequence_property,
            },
            clock=self.clock,
        )

    def _marker_sequence(self, name: str) -> SequenceValue | None:
        """A sequence of the marker, as a value that compares."""
        text = None if self.before is None else getattr(self.before, name)
        return decode_sequence(text, self.plan.sequence_type)

    def _default_sequence(self) -> SequenceValue | None:
        return decode_sequence(self.plan.default_sequence, self.plan.sequence_type)

    def _merged_changes(self) -> DataFrame:
        if self.before is None:
            return self.changelog.table.read_planned(self.plan.through, self.plan.through)
        merged_through = int(str(self.before.position))
        return merged_changes(self.changelog, merged_through, self.plan.changelog_schema)

    def _content(self) -> ComparedContent:
        """The columns that identify a replay: those whose value every change determines."""
        own = {each.id for each in self.target.key} | {self.plan.sequence_id}
        return ComparedContent(
            fields=tuple(
                each.target
                for each in self._mappings()
                if each.target.id not in own and each.is_comparable
            ),
            deleted=self.plan.schema.flag,
            default_sequence=self._default_sequence(),
            truncated=self._marker_sequence("truncated"),
        )

    def _layout(self) -> ReadLayout:
        return ReadLayout(
            reads=self.plan.reads,
            key_types=self.target.index_key.types,
            mappings=self._mappings(),
            unchanged_ids=self.plan.schema.unchanged_ids,
        )

    def _mappings(self) -> tuple[ColumnMapping, ...]:
        """The mirror's columns except the one that marks soft deletes."""
        mark = self.plan.schema.deleted
        mappings = self.plan.schema.mappings
        return tuple(each for each in mappings if mark is None or each.target.id != mark.id)

    def _range(self) -> MergeRange:
        plan, settings = self.plan, self.settings
        return MergeRange(
            table=str(settings.mirror),
            changelog=self.changelog.table.read_planned(plan.after, plan.through),
            layout=self._layout(),
            sequence_type=plan.sequence_type,
            bits=plan.bits,
            order=settings.order,
            deletes=settings.deletes,
            highest_merged=self._marker_sequence("sequence"),
            truncated=self._marker_sequence("truncated"),
            default_sequence=self._default_sequence(),
            merged_changes=self._merged_changes,
            mirror_rows=self._mirror_rows,
            mirror_key=tuple(
                (field.name, type_)
                for field, type_ in zip(self.target.key, self.target.index_key.types, strict=True)
            ),
            mirror_sequence=None if plan.schema.sequence is None else plan.schema.sequence.name,
            run=fresh_name(self.target.randomness.token),
            replaces_mirror=plan.replaces is not None,
        )

    def _mirror_rows(self) -> DataFrame:
        """Key and sequence of the mirror's rows, under their names after this merge."""
        version, head = self.target.mirror.table.load_version(), self.target.head
        read_with = version.schema_of(None if head is None else head.schema_id)
        names = {each.id: each.name for each in read_with.fields}
        kept = self.target.sequence
        wanted = self.target.key if kept is None else (*self.target.key, kept)
        rows = self.target.mirror.table.read(self.plan.head)
        if self.plan.replaces is not None:
            rows = rows.where(sf.lit(False))  # noqa: FBT003
        return rows.select(
            *(
                (
                    sf.col(quote(names[each.id]))
                    if each.id in names
                    # This merge adds the sequence column: it is null in every row.
                    else sf.lit(None).cast(spark_type(each.type)[0])
                ).alias(each.name)
                for each in wanted
            )
        )

    def _keeper(self) -> IndexKeeper:
        return self.target.index_keeper(
            self.session, self.settings, clock=self.clock, remembered=self._remembered
        )

    def _remembered(self) -> DataFrame | None:
        if self.before is None or not self.settings.remembers_deletes:
            return None
        merged_through = int(str(self.before.position))
        types = self.target.index_key.types
        return remembered_deletes(self.changelog, merged_through, self.settings, types)

    def _job(self, index: KeyIndex) -> MergeJob:
        target, settings = self.target, self.settings
        # A soft delete keeps the row, but becomes the change that a late one is compared with.
        sent = {field.id for field in target.key} | {self.plan.sequence_id}
        mark = self.plan.schema.deleted
        fields = tuple(each.target for each in self._mappings())
        columns = tuple(FoldColumn(field.name, field.id, field.id in sent) for field in fields)
        layout = FoldLayout(columns, settings.deletes)
        merged, key_ids = self._marker_sequence("sequence"), tuple(each.id for each in target.key)
        return MergeJob(
            layout=layout,
            admission=AdmissionRules(
                order=settings.order,
                deletes=settings.deletes,
                truncated=self._marker_sequence("truncated"),
                is_only_task=self.plan.bits == 0,
                highest_merged=merged if settings.order is Order.APPEND else None,
            ),
            writing=KeyWriterSpec(
                target=target.write_target,
                fields=fields,
                order=plan_row_order(target.write_target.schema, self.plan.sort_order, key_ids),
                index=task_index(index, target, settings),
                first_ordinal=index.manifest.next_ordinal,
                deleted_column=None if mark is None else mark.name,
                has_lower_half=target.index_key.hash is not KeyHash.XXHASH64,
                has_sequences=target.sequence is not None,
                optional_ids=layout.optional_ids,
                content=self._content(),
                highest_merged=merged,
                ignores_deletes=settings.deletes is Deletes.IGNORE,
            ),
            store=target.store,
        )
