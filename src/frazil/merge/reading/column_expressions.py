"""The changelog's columns in the shape of the mirror's, as Spark expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.model.schema.types import List, Map, Struct
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

    from frazil.merge.planning.column_mapping import ColumnMapping


def mapped_column(mapping: ColumnMapping) -> Column:
    """A column of the mirror; null if it is not mapped.

    Members of structs are mapped one by one: the mirror may have kept some that the source dropped,
    or have others added by another engine.
    """
    column = (
        sf.lit(None)
        if mapping.source is None
        else _shaped(mapping, sf.col(quote(mapping.source.name)))
    )
    return column.alias(mapping.target.name)


def _shaped(mapping: ColumnMapping, column: Column) -> Column:
    if mapping.fits or not mapping.members:
        return column
    match mapping.target.type:
        case Struct():
            members = [_member(each, column) for each in mapping.members]
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


def _member(mapping: ColumnMapping, column: Column) -> Column:
    found = (
        sf.lit(None) if mapping.source is None else _shaped(mapping, column[mapping.source.name])
    )
    return found.alias(mapping.target.name)
