"""The plan of one merge, made from facts: ``frazil plan`` prints it, ``merge`` performs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.merge.planning.changelog_columns import check_partial_rows, plan_columns, settings_at
from frazil.merge.planning.changelog_range import choose_everything, choose_range, choose_restart
from frazil.merge.planning.schema_mapping import plan_schema
from frazil.model.command import command
from frazil.model.humanize import counted, size
from frazil.model.marker import SeenMarker
from frazil.model.policy import Deletes, Order
from frazil.model.recorded_version import NEWER_STEP
from frazil.model.schema.layout_expressions import (
    plan_partition_spec,
    plan_sort_order,
    quoted_if_odd,
)
from frazil.model.schema.partitioning import MANY_PARTITIONS, TransformKind, expected_partitions
from frazil.model.table_facts import DEFAULT_SEQUENCE_PROPERTY

if TYPE_CHECKING:
    from frazil.errors import FrazilError
    from frazil.merge.planning.changelog_columns import ChangelogColumns
    from frazil.merge.planning.changelog_range import ChangelogRange
    from frazil.merge.planning.schema_mapping import SchemaPlan
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.marker import Marker, Position
    from frazil.model.schema.partitioning import PartitionField, PartitionSpec, SortField, SortOrder
    from frazil.model.schema.types import Scalar, Schema
    from frazil.model.table_facts import ChangelogFacts, MirrorFacts
    from frazil.model.table_name import TableName

# What can be wrong with a mirror, or with its place in the changelog.
HEALED_BY_REBUILD = (
    errors.DuplicateKeyError,
    errors.EqualityDeletesError,
    errors.ForeignChangeError,
    errors.MarkerLostError,
    errors.MissingImageError,
    errors.NullKeyError,
    errors.PositionLostError,
    errors.RolledBackError,
    errors.StorageError,
    errors.TableReplacedError,
    errors.UnsupportedSchemaChangeError,
)
OTHER_MIRROR_STEP = "choose a mirror that is not there yet, or has no rows"
_MIB = 2**20
_FIRST_WITH_DELETES = 2
# Starting a task costs about as much as merging this many changes, so fewer are not split.
_ROWS_OF_ONE_TASK = 200_000
# Each task writes its own files, and each file that a later merge touches costs a delete: no more
# tasks than can run at a time, until one would have to spill while it sorts.
_ROWS_PER_TASK = 2_000_000
# Sorted in memory by each concurrent task, decompressed to several times that.
_BYTES_PER_TASK = 256 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMirror:
    """The definition of a mirror that does not exist yet."""

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    format_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """One commit to the mirror: which changes, into which schema, by how many tasks.

    Without ``after`` everything up to ``through`` is read. ``start`` is the marker's position that
    the commit expects, ``head`` the mirror's snapshot that the plan was made on. ``reads`` has the
    changelog's columns under the names they have in ``changelog_schema``, with which the changes
    are read. With ``replaces`` nothing of the mirror is kept: the range has the complete table,
    and the commit replaces that marker, valid or not. With ``records_mirror`` the changelog does
    not know the mirror yet, and its retention would not wait for it.
    """

    changelog: TableName
    mirror: TableName
    source: str
    after: int | None
    through: int
    rows: int
    bytes: int
    snapshots: int
    remaining_snapshots: int
    changelog_schema: Schema
    reads: ChangelogColumns
    schema: SchemaPlan
    spec: PartitionSpec
    sort_order: SortOrder
    creates: NewMirror | None = None
    bits: int = 0
    start: Position | None = None
    head: int | None = None
    # With order per_key, the sequence of rows that have none.
    default_sequence: str | None = None
    replaces: SeenMarker | None = None
    records_mirror: bool = False

    @property
    def default_sequence_property(self) -> dict[str, str]:
        """The table property with the default sequence; empty text if a restart removes it."""
        if self.default_sequence is None and self.replaces is None:
            return {}
        return {DEFAULT_SEQUENCE_PROPERTY: self.default_sequence or ""}

    @property
    def tasks(self) -> int:
        """The number of tasks, one per value of the top ``bits`` of the key's hash."""
        return 1 << self.bits

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The key's columns in the mirror."""
        return tuple(each.id for each in self.schema.key)

    @property
    def sequence_id(self) -> int | None:
        """The mirror's column for the sequence, if it has one."""
        return None if self.schema.sequence is None else self.schema.sequence.id

    @property
    def sequence_type(self) -> Scalar:
        """The type that changes are ordered by."""
        return self.reads.sequence_type


def plan_merge(
    changelog: ChangelogFacts,
    mirror: MirrorFacts | None,
    settings: MergeSettings,
    *,
    cores: int = 1,
    rebuild: bool = False,
) -> MergePlan | None:
    """The next commit, or None when the mirror is up to date; ``cores`` tasks run at a time.

    With ``rebuild`` it builds the mirror from everything in the changelog. Raises an error that
    names the next step when the mirror's marker is lost, when the changelog cannot be read from
    there, or when the mirror cannot follow its schema.
    """
    marker = None if mirror is None else mirror.marker
    if mirror is not None:
        _refuse_old_format(mirror, settings)
    chosen = _choose(changelog, mirror, settings, rebuild=rebuild)
    if chosen is None:
        return None
    # Settings use current names; a full read has those of its snapshot.
    named = settings_at(settings, now=changelog.schema, then=chosen.schema)
    if mirror is None:
        schema = plan_schema(chosen.schema, None, None, named)
        creates = _new_mirror(schema, changelog.schema, settings)
        plan = _plan(changelog, chosen, named, schema=schema, layout=creates)
        bits = plan_bits(rows=plan.rows, size=plan.bytes, cores=cores)
        return replace(plan, creates=creates, bits=bits)
    schema = plan_schema(
        chosen.schema,
        mirror.schema,
        mirror.columns,
        named,
        last_column_id=mirror.last_column_id,
        format_version=mirror.format_version,
        pinned=_pinned(mirror),
        is_other_changelog=(
            chosen.restarts and marker is not None and marker.source != changelog.uuid
        ),
    )
    becomes = None if chosen.restarts else _order_change(mirror, marker, schema, settings)
    if becomes is not None:
        schema = replace(schema, changes=(*schema.changes, becomes))
    default = _default_sequence(mirror, marker if becomes else None)
    plan = _plan(changelog, chosen, named, schema=schema, layout=mirror)
    return replace(
        plan,
        # A restart keeps no row that was merged before.
        default_sequence=None if chosen.restarts else default,
        start=None if marker is None else marker.position,
        head=mirror.head,
        replaces=SeenMarker(mirror.marker_text) if chosen.restarts else None,
        bits=plan_bits(rows=plan.rows, size=plan.bytes, cores=cores),
    )


def _refuse_old_format(mirror: MirrorFacts, settings: MergeSettings) -> None:
    """Refuse format version 1: it has no row deletes, so the second merge could not be written."""
    if mirror.format_version >= _FIRST_WITH_DELETES:
        return
    wanted = f"'format-version' = '{settings.format_version}'"
    message = f"the mirror has format version {mirror.format_version}: no row of it can be deleted."
    raise errors.ConfigError(
        message,
        table=str(mirror.name),
        next_step=f"ALTER TABLE {mirror.name.quoted} SET TBLPROPERTIES ({wanted})",
    )


def _default_sequence(mirror: MirrorFacts, converted_at: Marker | None) -> str | None:
    sequence = None if converted_at is None else converted_at.sequence
    return mirror.default_sequence if sequence is None else sequence


def _order_change(
    mirror: MirrorFacts, marker: Marker | None, schema: SchemaPlan, settings: MergeSettings
) -> str | None:
    """What a mirror merged with order append needs to continue with order per_key.

    The opposite change needs nothing. A mirror from before the order was recorded has a sequence
    column with per_key only.
    """
    if settings.order is not Order.PER_KEY or marker is None:
        return None
    had_sequence = schema.sequence is not None and mirror.schema.by_id(schema.sequence.id)
    recorded = mirror.order or (Order.PER_KEY if had_sequence else Order.APPEND)
    if recorded == Order.PER_KEY:
        return None
    if marker.sequence is None and mirror.total_rows and not had_sequence:
        message = (
            "order cannot change from append to per_key: the marker has no sequence for rows that "
            "were merged before."
        )
        resync = command("resync", mirror.name)
        next_step = f"merge changes with order: append once more, or {resync}"
        raise errors.MarkerLostError(message, table=str(mirror.name), next_step=next_step)
    return (
        "order changes from append to per_key: rows merged before that have no sequence count as "
        "the highest one that was merged"
    )


def _choose(
    changelog: ChangelogFacts, mirror: MirrorFacts | None, settings: MergeSettings, *, rebuild: bool
) -> ChangelogRange | None:
    if mirror is None:
        return choose_range(changelog, None, settings)
    marker = mirror.marker
    if mirror.problem is not None and mirror.problem.next_step == NEWER_STEP:
        # A restart is refused too: it would lose what a newer frazil recorded in the mirror.
        raise mirror.problem
    # A table that no merge wrote to is not ours: none of it is replaced.
    is_ours = mirror.columns is not None or marker is not None
    if rebuild and (is_ours or not mirror.total_rows):
        return choose_everything(changelog, marker, settings)
    # Where deletes are not applied, rows outlive a copy: a mirror that is in order goes on, and
    # one that is not is made from everything that the changelog holds.
    replaces = is_ours and settings.deletes is Deletes.APPLY
    restart = choose_restart(changelog, marker, settings) if replaces else None
    if restart is not None:
        return restart
    if mirror.problem is not None:
        raise mirror.problem
    if marker is None and mirror.total_rows:
        message = f"the table has {mirror.total_rows} rows and no marker of ours."
        next_step = command("position", "set", mirror.name, "--role", "merge")
        if not is_ours:
            next_step = f"{next_step}, or {OTHER_MIRROR_STEP}"
        raise errors.MarkerLostError(message, table=str(mirror.name), next_step=next_step)
    return choose_range(changelog, marker, settings)


def is_away(error: FrazilError) -> bool:
    """Whether the store does not answer, which says nothing about a mirror."""
    return isinstance(error, errors.StorageError) and not error.is_gone


def needs_rebuild(
    changelog: ChangelogFacts, mirror: MirrorFacts, settings: MergeSettings, error: FrazilError
) -> bool:
    """Whether a mirror that cannot be merged into is to be made again where rows outlive a copy.

    The source was read again since the mirror was merged last, and the error speaks of the mirror
    or of the place that it has in the changelog. What is wrong with the changes themselves is
    wrong with them in a mirror made again, too.
    """
    return (
        isinstance(error, HEALED_BY_REBUILD)
        and not error.in_changes
        and not is_away(error)
        and settings.deletes is not Deletes.APPLY
        and choose_restart(changelog, mirror.marker, settings) is not None
    )


def plan_bits(*, rows: int, size: int, cores: int = 1) -> int:
    """How many bits of the hash split the work: none for a small batch, which needs no shuffle."""
    if rows <= _ROWS_OF_ONE_TASK and size <= _BYTES_PER_TASK:
        return 0
    needed = max(_times(rows, _ROWS_PER_TASK), _times(size, _BYTES_PER_TASK), 2)
    useful = min(cores, _times(rows, _ROWS_OF_ONE_TASK))
    return (max(needed, useful) - 1).bit_length()


def _times(amount: int, share: int) -> int:
    return -(-amount // share)


def _plan(
    changelog: ChangelogFacts,
    chosen: ChangelogRange,
    settings: MergeSettings,
    *,
    schema: SchemaPlan,
    layout: NewMirror | MirrorFacts,
) -> MergePlan:
    reads = plan_columns(chosen.schema, settings)
    check_partial_rows(reads, chosen.schema, settings)
    return MergePlan(
        changelog=settings.changelog,
        mirror=settings.mirror,
        source=changelog.uuid,
        after=chosen.after,
        through=chosen.through,
        rows=chosen.rows,
        bytes=chosen.bytes,
        snapshots=chosen.snapshots,
        remaining_snapshots=chosen.remaining,
        changelog_schema=chosen.schema,
        reads=reads,
        schema=schema,
        spec=layout.spec,
        sort_order=layout.sort_order,
        records_mirror=changelog.mirrors is not None
        and str(settings.mirror) not in changelog.mirrors,
    )


def _new_mirror(schema: SchemaPlan, now: Schema, settings: MergeSettings) -> NewMirror:
    """A mirror as configured; settings use the changelog's current column names."""
    today = {each.id: each.name for each in now.fields}
    names = {
        each.target.id: today.get(each.source.id, each.target.name)
        for each in schema.mappings
        if each.source is not None
    }
    named = replace(
        schema.mirror,
        fields=tuple(
            replace(each, name=names.get(each.id, each.name)) for each in schema.mirror.fields
        ),
    )
    return NewMirror(
        schema=schema.mirror,
        spec=plan_partition_spec(settings.partition_by, named),
        sort_order=plan_sort_order(settings.sort_by, named),
        format_version=settings.format_version,
    )


def _pinned(mirror: MirrorFacts) -> frozenset[int]:
    """The columns that cannot be dropped while the mirror is partitioned or sorted by them."""
    used = {
        each.source_id
        for each in mirror.spec.fields
        # A void transform reads no column.
        if each.transform.kind is not TransformKind.VOID
    }
    used |= {each.source_id for each in mirror.sort_order.fields}
    columns = [each for each in mirror.schema.columns() if each.field.id in used]
    return frozenset(field.id for each in columns for field in each.path)


def describe(plan: MergePlan) -> list[tuple[str, str]]:
    """The plan as labels and texts, for printing."""
    if plan.after is None:
        taken = f"everything as of snapshot {plan.through}"
    else:
        taken = f"{counted(plan.snapshots, 'snapshot')} after {plan.after} through {plan.through}"
    lines = [
        ("changelog", f"{plan.changelog}: {taken}"),
        ("changes", f"{plan.rows:,} rows in {size(plan.bytes)}"),
        ("mirror", f"{plan.mirror}, {_mirror_text(plan)}"),
        ("key", ", ".join(each.name for each in plan.schema.key)),
    ]
    lines += [("schema", change) for change in plan.schema.changes]
    lines.append(("work", counted(plan.tasks, "task")))
    lines += [("warning", each) for each in _warnings(plan)]
    left = counted(plan.remaining_snapshots, "snapshot") if plan.remaining_snapshots else "nothing"
    return [*lines, ("left after it", left)]


def plan_document(plan: MergePlan) -> dict[str, object]:
    """The plan as JSON; snapshot ids are text, because many JSON parsers round them."""
    return {
        "changelog": str(plan.changelog),
        "mirror": str(plan.mirror),
        "source": plan.source,
        "after": None if plan.after is None else str(plan.after),
        "through": str(plan.through),
        "planned_on": None if plan.head is None else str(plan.head),
        "rows": plan.rows,
        "bytes": plan.bytes,
        "snapshots": plan.snapshots,
        "remaining_snapshots": plan.remaining_snapshots,
        "tasks": plan.tasks,
        "key": [each.name for each in plan.schema.key],
        "creates_mirror": _creates_document(plan.creates),
        "schema_changes": list(plan.schema.changes),
        "warnings": _warnings(plan),
        "columns": [
            {"name": target.name, "type": str(target.type), "from": source}
            for target, source in plan.schema.projection
        ],
    }


def _warnings(plan: MergePlan) -> list[str]:
    """Effects of this merge that an operator may not expect."""
    unmapped = ", ".join(map(repr, plan.schema.unmapped))
    text = f"no changelog column for {unmapped}: rows that change get null there"
    found = [text] if unmapped else []
    partitions = expected_partitions(plan.spec, plan.rows)
    if partitions > MANY_PARTITIONS:
        found.append(
            f"the changes may fall into up to {partitions:,} partitions, each with a file of its "
            "own: a coarser partitioning is merged and read much faster"
        )
    return found


def _creates_document(new: NewMirror | None) -> dict[str, object] | None:
    if new is None:
        return None
    return {
        "format_version": new.format_version,
        "partitioned_by": _partitioned_by(new),
        "sorted_by": _sorted_by(new),
    }


def _mirror_text(plan: MergePlan) -> str:
    if plan.creates is None:
        planned = "which is empty" if plan.head is None else f"planned on snapshot {plan.head}"
        return planned if plan.replaces is None else f"{planned}, all of whose rows are replaced"
    layouts = [
        ("partitioned", _partitioned_by(plan.creates)),
        ("sorted", _sorted_by(plan.creates)),
    ]
    parts = [f"{noun} by {', '.join(terms)}" for noun, terms in layouts if terms]
    made = f"which is made with format version {plan.creates.format_version}"
    return ", ".join([made, *parts])


def _partitioned_by(new: NewMirror) -> list[str]:
    return [_term(each, new.schema) for each in new.spec.fields]


def _sorted_by(new: NewMirror) -> list[str]:
    return [
        f"{_term(each, new.schema)} {'desc' if each.descending else 'asc'}"
        for each in new.sort_order.fields
    ]


def _term(part: PartitionField | SortField, schema: Schema) -> str:
    """A partition or sort field as written in settings."""
    column = schema.by_id(part.source_id)
    name = "" if column is None else quoted_if_odd(column.name)
    if part.transform.kind is TransformKind.IDENTITY:
        return name
    width = f"{part.transform.width}, " if part.transform.width else ""
    return f"{part.transform.kind}({width}{name})"
