"""Prepares the rows of a source table for the comparison with its mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.errors import UnsupportedSchemaChangeError
from frazil.merge.planning.recorded_columns import decode_columns
from frazil.merge.reading.expected_rows import HI, LO
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.command import command
from frazil.model.schema.types import Decimal, List, Primitive
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.model.table_name import quote
from frazil.verify.compared_columns import plan_comparison

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from frazil.clients.iceberg.table_version import TableVersion
    from frazil.merge.planning.settings import MergeSettings
    from frazil.merge.reading.expected_rows import ComparedColumn
    from frazil.model.source_table import SourceColumn, SourceTable
    from frazil.verify.compared_columns import ComparisonPlan

# Types whose texts in Spark mean the same to Postgres, for every value.
_SPELLED_ALIKE = frozenset(
    {Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.UUID, Primitive.BOOLEAN}
)


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
