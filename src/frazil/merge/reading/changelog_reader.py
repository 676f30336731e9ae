"""Reads a range of a changelog for merge tasks: hashed, named like the mirror, in key order.

Merged changes are read again for deletes to remember, and for possible replays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from frazil.merge.planning.changelog_columns import plan_columns, settings_at
from frazil.merge.planning.changes import (
    ACTION,
    DELETE,
    HI,
    IS_UPDATE,
    LO,
    MERGED,
    PREVIOUS_HI,
    PREVIOUS_LO,
    SEQUENCE,
    TRUNCATE,
    UNCHANGED,
    UPSERT,
)
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.change import Operation, spellings
from frazil.model.schema.types import Fixed, List, Map, Primitive, Struct, children
from frazil.model.table_facts import SnapshotOperation
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from frazil.changelog.table import ChangelogTable
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import TableVersion
    from frazil.merge.planning.changelog_columns import ChangelogColumns
    from frazil.merge.planning.column_mapping import ColumnMapping
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Field, Scalar, Schema

# Flips the sign bit: signed order of the result is unsigned order of the hash.
_UNSIGNED = -(2**63)
# Prefix of the marker column's name.
_MARK = "__frazil_is_null_"
_EMPTY = {List: "array()", Map: "map()"}
# The metadata column that Iceberg adds to every table.
_FILE = "_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLayout:
    """The changelog's columns by role, and the types that the mirror has for the key.

    ``mappings`` has the mirror's columns in order; ``unchanged_ids`` maps the changelog's field
    ids to the mirror's.
    """

    reads: ChangelogColumns
    key_types: tuple[Scalar, ...]
    mappings: tuple[ColumnMapping, ...] = ()
    unchanged_ids: Mapping[int, int] = field(default_factory=dict)


def prepare_changes(frame: DataFrame, layout: ReadLayout) -> DataFrame:
    """The changes with their hash; rows keep no order.

    A TRUNCATE and a row with a null in its key have a null hash; an unknown operation has a null
    action.
    """
    reads = layout.reads
    operation = f"upper({quote(reads.operation.name)})"
    action = _action(operation)
    # The key of a TRUNCATE is set to null before it is hashed: a condition around the hash would
    # have Spark compute it twice, once for each half.
    has_key = action != TRUNCATE
    key = [sf.when(has_key, _column(each.name)) for each in reads.key]
    hi, lo = key_hash_columns(list(zip(key, layout.key_types, strict=True)))
    own = [
        hi.alias(HI),
        lo.alias(LO),
        action.alias(ACTION),
        _column(reads.sequence.name).alias(SEQUENCE),
        sf.expr(f"{operation} in ({_spellings_sql(Operation.UPDATE)})").alias(IS_UPDATE),
    ]
    return frame.select(
        *own, *_partial(layout), *(_mapped(each, _column) for each in layout.mappings)
    )


def in_key_order(frame: DataFrame) -> DataFrame:
    """Sorted inside each partition by key and sequence; rows without a hash come first.

    Columns are renamed to numbers: Spark would parse a name with a dot as a path.
    """
    # Renamed before sorting: afterwards, it would copy every row.
    numbered = frame.toDF(*(f"_{at}" for at in range(len(frame.columns))))
    hi, lo, sequence = (sf.col(f"_{frame.columns.index(name)}") for name in (HI, LO, SEQUENCE))
    keys = [half.bitwiseXOR(sf.lit(_UNSIGNED)) for half in (hi, lo)]
    # Of identical changes the one merged before comes first, and is kept.
    first = [sf.col(f"_{at}").desc() for at, name in enumerate(frame.columns) if name == MERGED]
    return numbered.sortWithinPartitions(*keys, sequence, *first)


def bucket(bits: int) -> Column:
    """The hash bucket of a row: the top bits of its hash."""
    if bits == 0:
        return sf.lit(0)
    return sf.shiftrightunsigned(sf.col(HI), 64 - bits).cast("int")


def _column(name: str) -> Column:
    return sf.col(quote(name))


def _action(operation: str) -> Column:
    # One SQL text instead of a dozen calls through the gateway.
    cases = " ".join(
        f"when {operation} in ({_spellings_sql(*meant)}) then {code}"
        for code, meant in (
            (UPSERT, (Operation.READ, Operation.INSERT, Operation.UPDATE)),
            (DELETE, (Operation.DELETE,)),
            (TRUNCATE, (Operation.TRUNCATE,)),
        )
    )
    return sf.expr(f"cast(case {cases} end as tinyint)")


def _spellings_sql(*operations: Operation) -> str:
    return ", ".join(f"'{spelling}'" for each in operations for spelling in spellings(each))


def _partial(layout: ReadLayout) -> list[Column]:
    """The columns of our own changelogs that describe partial rows."""
    columns, reads = [], layout.reads
    if reads.unchanged is not None:
        pairs = [sf.lit(number) for pair in layout.unchanged_ids.items() for number in pair]
        ids = sf.create_map(*pairs)
        # Columns that the mirror does not have are ignored.
        translated = sf.transform(_column(reads.unchanged.name), lambda each: ids[each])
        columns.append(sf.filter(translated, lambda each: each.isNotNull()).alias(UNCHANGED))
    if reads.previous_key is not None:
        previous = _column(reads.previous_key.name)
        # A struct keeps the names it was created with.
        members = [previous[each.name] for each in reads.previous_members]
        hi, lo = key_hash_columns(list(zip(members, layout.key_types, strict=True)))
        columns += [hi.alias(PREVIOUS_HI), lo.alias(PREVIOUS_LO)]
    return columns


def latest_deletes(changes: DataFrame) -> DataFrame:
    """The keys whose newest change is a DELETE, with its sequence: what an index remembers."""
    newest = (
        changes.where(sf.col(HI).isNotNull())
        .groupBy(HI, LO)
        .agg(sf.max(SEQUENCE).alias(SEQUENCE), sf.max_by(ACTION, SEQUENCE).alias(ACTION))
    )
    return newest.where(sf.col(ACTION) == DELETE).select(HI, LO, SEQUENCE)


def _mapped(mapping: ColumnMapping, named: Callable[[str], Column]) -> Column:
    """A column of the mirror, or a member of a struct; null if it is not mapped.

    Members are mapped one by one: the mirror may have kept some that the source dropped, or have
    others added by another engine.
    """
    source = mapping.source
    column = sf.lit(None) if source is None else _shaped(mapping, named(source.name))
    return column.alias(mapping.target.name)


def _shaped(mapping: ColumnMapping, column: Column) -> Column:
    if mapping.fits or not mapping.members:
        return column
    match mapping.target.type:
        case Struct():
            members = [_mapped(each, lambda name: column[name]) for each in mapping.members]
            return sf.when(column.isNotNull(), sf.struct(*members))
        case List():
            (element,) = mapping.members
            return sf.transform(column, lambda each: _shaped(element, each))
        case Map():
            # Keys of a map never change.
            _, value = mapping.members
            return sf.transform_values(column, lambda _, each: _shaped(value, each))
        case _:
            return column


def lists_of(layout: ReadLayout) -> dict[str, str]:
    """The columns of a merge that may be null lists or maps, each with an empty one in SQL."""
    lists = {} if layout.reads.unchanged is None else {UNCHANGED: _EMPTY[List]}
    for mapping in layout.mappings:
        # An unmapped column is null and has no type.
        if mapping.source is not None and type(mapping.target.type) in _EMPTY:
            lists[mapping.target.name] = _EMPTY[type(mapping.target.type)]
    return lists


def mark_null_lists(rows: DataFrame, lists: Mapping[str, str]) -> DataFrame:
    """The rows with empty lists instead of nulls, and a marker column for each list column.

    Spark computes the size of its Arrow batch before every row, and Arrow's Java implementation
    iterates over the null lists at the end of the batch for it: fifty million steps for ten
    thousand rows. Nearly all changes of a Postgres changelog have such a list: the columns that
    were not sent.
    """
    if not lists:
        return rows
    columns, marks = [], []
    for name in rows.columns:
        column = sf.col(quote(name))
        if name in lists:
            marks.append(column.isNull().alias(f"{_MARK}{name}"))
            column = sf.expr(f"coalesce({quote(name)}, {lists[name]})").alias(name)
        columns.append(column)
    return rows.select(*columns, *marks)


def restore_null_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it was before its null lists were marked."""
    marks = [name for name in batch.schema.names if name.startswith(_MARK)]
    for mark in marks:
        name, is_null = mark.removeprefix(_MARK), batch.column(mark)
        column = batch.column(name)
        if is_null.true_count:
            column = pc.if_else(is_null, pa.scalar(None, column.type), column)
        # Nullable in every batch, even without nulls: all batches need one schema.
        field = pa.field(name, column.type)
        batch = batch.set_column(batch.schema.get_field_index(name), field, column)
    return batch.drop_columns(marks) if marks else batch


def remembered_deletes(
    changelog: ChangelogTable,
    merged_through: int,
    settings: MergeSettings,
    key_types: Sequence[Scalar],
) -> DataFrame:
    """Hash and sequence of the keys whose newest merged change is a DELETE.

    Only merged changes count: a delete that is not merged yet must not make itself late.
    """
    version = changelog.table.load_version()
    oldest, schema = _oldest(version, merged_through)
    named = settings_at(settings, now=version.schema, then=schema)
    # Which columns were left out does not matter.
    reads = replace(plan_columns(schema, named), unchanged=None, previous_key=None)
    layout = ReadLayout(reads=reads, key_types=tuple(key_types))
    return latest_deletes(prepare_changes(_merged(changelog, oldest, merged_through), layout))


def merged_changes(changelog: ChangelogTable, merged_through: int, now: Schema) -> DataFrame:
    """All rows up to the snapshot that was merged last, as the schema ``now`` shows them."""
    version = changelog.table.load_version()
    oldest, then = _oldest(version, merged_through)
    before = {each.id: each for each in then.fields}
    rows = _merged(changelog, oldest, merged_through)
    types = {each.name: each.dataType for each in changelog.table.read().limit(0).schema}
    columns = []
    for each in now.fields:
        old = before.get(each.id)
        column = None if old is None else sf.col(quote(old.name))
        columns.append(_as_shown(each, old, column).cast(types[each.name]).alias(each.name))
    return rows.select(*columns)


def _as_shown(now: Field, then: Field | None, column: Column | None) -> Column:
    """The values of a field as a later schema shows them: members go by id, younger ones default.

    Types of values are left to a cast of the whole.
    """
    if then is None or column is None:
        return _default(now)
    if now.type == then.type:
        return column
    inside = {each.id: each for each in children(then.type)}
    match now.type:
        case Struct(fields):
            members = []
            for each in fields:
                old = inside.get(each.id)
                part = None if old is None else column[old.name]
                members.append(_as_shown(each, old, part).alias(each.name))
            return sf.when(column.isNotNull(), sf.struct(*members))
        case List(element):
            return sf.transform(column, lambda each: _as_shown(element, inside[element.id], each))
        case Map(_, value):
            # Keys of a map never change.
            return sf.transform_values(
                column, lambda _, each: _as_shown(value, inside[value.id], each)
            )
        case _:
            return column


def _default(field: Field) -> Column:
    """What a row has that is older than the column."""
    literal = sf.lit(field.initial_default)
    return (
        sf.unhex(literal)
        if isinstance(field.type, Fixed) or field.type is Primitive.BINARY
        else literal
    )


def _oldest(version: TableVersion, merged_through: int) -> tuple[SnapshotFacts, Schema]:
    """The snapshot merged last, or the one after it, and the schema it is read with."""
    oldest = version.history(until=merged_through)[-1]
    # Reading as of that snapshot uses the column names of that time.
    return oldest, version.schema_of(oldest.schema_id)


def _merged(changelog: ChangelogTable, oldest: SnapshotFacts, merged_through: int) -> DataFrame:
    """The rows up to the snapshot that was merged last, which may be expired.

    ``oldest`` is then the one after it: no merge is planned when more than that is expired.
    """
    rows = changelog.table.read_planned(None, oldest.id)
    if oldest.id == merged_through or oldest.operation is not SnapshotOperation.APPEND:
        return rows
    added = changelog.table.read_planned(merged_through, oldest.id).select(_FILE).distinct()
    return rows.select("*", _FILE).join(added, _FILE, "left_anti").drop(_FILE)
