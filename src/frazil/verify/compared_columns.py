"""Which columns of a changelog, or of a source, are compared with those of the mirror, by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.changelog_columns import find_column, plan_columns
from frazil.merge.planning.column_mapping import RecordedColumns, RecordedField, decode_columns
from frazil.merge.reading.expected_rows import (
    DELETED,
    HI,
    LO,
    ComparedColumn,
    HistoryLayout,
    named_column,
)
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.command import command
from frazil.model.schema.types import Decimal, List, Nested, Primitive
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from frazil.clients.iceberg.table import TableVersion
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Field, Scalar, Schema
    from frazil.model.source_table import SourceColumn, SourceTable

# Types whose texts in Spark mean the same to Postgres, for every value.
_SPELLED_ALIKE = frozenset(
    {Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.UUID, Primitive.BOOLEAN}
)


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
        layout=HistoryLayout(reads=ours, columns=tuple(compared), deletes=settings.deletes),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceComparison:
    """The columns that source and mirror are compared by.

    ``columns`` are by their numbers at the source. ``left_out`` are the mirror's columns that the
    source does not have, ``ahead`` those of the source that the mirror does not have.
    """

    sides: ComparisonPlan
    table: SourceTable
    columns: Mapping[int, ComparedColumn]
    left_out: tuple[str, ...]
    ahead: tuple[str, ...]

    @property
    def names(self) -> dict[str, str]:
        """The names of the mirror's columns during the comparison; they match no real one."""
        return {each.mirror: f"c{number}" for number, each in self.columns.items()}

    @property
    def key_names(self) -> tuple[str, ...]:
        """The same for the key, in the order of the source's."""
        return tuple(f"c{number}" for number in self.table.key)

    @property
    def can_query_by_key(self) -> bool:
        """Whether the source parses keys as Spark formats them."""
        types = [type_ for _, type_ in self.sides.mirror_key]
        return all(each in _SPELLED_ALIKE or isinstance(each, Decimal) for each in types)

    def expected(self, rows: DataFrame) -> DataFrame:
        """Rows of the source, columns by number, with the mirror's types and the keys' hashes."""
        numbers = {each.mirror: number for number, each in self.columns.items()}
        typed = rows.select(
            *(
                _as_mirrored(each, self.columns[each.number]).alias(f"c{each.number}")
                for each in self.table.columns
                if each.number in self.columns
            )
        )
        hi, lo = key_hash_columns(
            [(sf.col(f"c{numbers[name]}"), type_) for name, type_ in self.sides.mirror_key]
        )
        return typed.select(hi.alias(HI), lo.alias(LO), *self.names.values())


def plan_source_comparison(
    table: SourceTable,
    changelog: TableVersion,
    mirror: TableVersion,
    settings: MergeSettings,
    *,
    fields: Mapping[int, int],
    read_as: tuple[StructType, StructType],
) -> SourceComparison:
    """Pair the columns by number and field id.

    ``fields`` are those of the changelog, by the numbers that columns have at the source;
    ``read_as`` is as ``plan_comparison`` has it.
    """
    text = mirror.state.properties.get(COLUMNS_PROPERTY)
    mapped = None if text is None else decode_columns(text, table=str(settings.mirror))
    sides = plan_comparison(changelog.schema, mirror.schema, mapped, settings, read_as=read_as)
    by_field = {each.changelog_id: each for each in sides.layout.columns}
    columns = {
        each.number: by_field[fields[each.number]]
        for each in table.columns
        if fields.get(each.number) in by_field
    }
    compared = {each.mirror for each in columns.values()}
    keys = {key for key, _ in sides.mirror_key}
    if keys != {columns[number].mirror for number in table.key if number in columns}:
        message = "the key of the source table differs from the mirror's."
        raise UnsupportedSchemaChangeError(
            message, table=table.name, next_step=command("resync", table.name)
        )
    unread = [each.mirror for each in sides.layout.columns if each.mirror not in compared]
    return SourceComparison(
        sides=sides,
        table=table,
        columns=columns,
        left_out=(*unread, *sides.left_out),
        ahead=tuple(each.name for each in table.columns if each.number not in columns),
    )


def _as_mirrored(column: SourceColumn, target: ComparedColumn) -> Column:
    value = sf.col(quote(str(column.number)))
    if column.type is Primitive.UUID:
        value = _uuid_text(value)
    elif isinstance(column.type, List) and column.type.element.type is Primitive.UUID:
        value = sf.transform(value, _uuid_text)
    # A wider type at the source may hold values that do not fit the mirror's.
    return value.try_cast(target.type)


def _uuid_text(octets: Column) -> Column:
    return sf.regexp_replace(
        sf.lower(sf.hex(octets)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5"
    )
