"""Which columns of a changelog and of its mirror are compared, by field id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.changelog_columns import find_column, plan_columns
from frazil.merge.planning.recorded_columns import RecordedColumns, RecordedField
from frazil.merge.reading.expected_rows import (
    DELETED,
    HI,
    LO,
    ComparedColumn,
    HistoryLayout,
    named_column,
)
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.schema.types import Nested

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Field, Scalar, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """How both sides of a comparison are read.

    ``mirror_key`` has the key columns in the order of the key, ``deleted`` the column that marks
    soft deletes. ``left_out`` are the mirror's columns that the changelog does not have.
    """

    layout: HistoryLayout
    mirror_key: tuple[tuple[str, Scalar], ...]
    deleted: str | None
    left_out: tuple[str, ...]


def plan_comparison(
    changelog: Schema,
    mirror: Schema,
    columns: RecordedColumns | None,
    settings: MergeSettings,
    *,
    read_as: tuple[StructType, StructType],
) -> ComparisonPlan:
    """Pair the columns as the merges did; without a map, by name.

    ``settings`` names columns as this schema of the changelog does; ``read_as`` has the types that
    Spark gives to changelog and mirror.
    """
    ours = plan_columns(changelog, settings)
    if columns is None:
        columns = _map_by_name(changelog, mirror, tuple(each.name for each in ours.key))
    by_id = {each.id: each for each in mirror.fields}
    sources = {each.id: each for each in changelog.fields}
    sources_of = {each.mirror: sources.get(each.changelog) for each in columns.fields}
    fields = [each for each in mirror.fields if each.id != columns.deleted]
    pairs = [(each, sources_of.get(each.id)) for each in fields]
    compared = [
        ComparedColumn(target.name, read_as[1][target.name].dataType, source.name, source.id)
        for target, source in pairs
        if source is not None and _fits(source, target, read_as)
    ]
    known = {each.mirror for each in compared}
    deleted = by_id.get(columns.deleted) if columns.deleted is not None else None
    return ComparisonPlan(
        layout=HistoryLayout(
            key=tuple((each.name, _scalar(each)) for each in ours.key),
            sequence=ours.sequence.name,
            operation=ours.operation.name,
            unchanged=None if ours.unchanged is None else ours.unchanged.name,
            previous_key=None if ours.previous_key is None else ours.previous_key.name,
            previous_members=tuple(each.name for each in ours.previous_members),
            columns=tuple(compared),
            deletes=settings.deletes,
        ),
        mirror_key=tuple((by_id[each].name, _scalar(by_id[each])) for each in columns.key),
        deleted=None if deleted is None else deleted.name,
        left_out=tuple(each.name for each, _ in pairs if each.name not in known),
    )


def _map_by_name(changelog: Schema, mirror: Schema, key: tuple[str, ...]) -> RecordedColumns:
    found = [(each, find_column(mirror.fields, each.name)) for each in changelog.fields]
    keys = [find_column(mirror.fields, name) for name in key]
    missing = [name for name, column in zip(key, keys, strict=True) if column is None]
    if missing:
        message = f"the mirror has no key column {missing[0]!r}."
        raise UnsupportedSchemaChangeError(
            message, next_step="name the mirror's key in the settings"
        )
    return RecordedColumns(
        fields=tuple(
            RecordedField(changelog=one.id, mirror=other.id)
            for one, other in found
            if other is not None
        ),
        key=tuple(each.id for each in keys if each is not None),
    )


def _fits(source: Field, target: Field, read_as: tuple[StructType, StructType]) -> bool:
    """Whether values can be compared; nested types only if they have the same shape."""
    if not isinstance(source.type, Nested) and not isinstance(target.type, Nested):
        return True
    return _shape(read_as[0][source.name].dataType) == _shape(read_as[1][target.name].dataType)


def _shape(type_: DataType) -> str:
    # Without nullability, which does not affect values.
    return type_.simpleString()


def _scalar(field: Field) -> Scalar:
    if isinstance(field.type, Nested):
        message = f"the column {field.name!r} is a {field.type} and cannot be part of a key."
        raise UnsupportedSchemaChangeError(message)
    return field.type


def mirror_rows(rows: DataFrame, plan: ComparisonPlan, names: Mapping[str, str]) -> DataFrame:
    """The mirror's rows to compare: hash, columns renamed by ``names``, and whether deleted."""
    hi, lo = key_hash_columns([(named_column(name), type_) for name, type_ in plan.mirror_key])
    is_deleted = sf.expr("false")
    if plan.deleted is not None:
        is_deleted = sf.coalesce(named_column(plan.deleted), is_deleted)
    columns = (named_column(name).alias(called) for name, called in names.items())
    return rows.select(hi.alias(HI), lo.alias(LO), *columns, is_deleted.alias(DELETED))
