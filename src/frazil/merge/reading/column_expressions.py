"""The changelog's columns in the shape of the mirror's, as Spark expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.model.schema.types import List, Map, Struct
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

    from frazil.merge.planning.column_mapping import ColumnMapping


def mapped_column(feed: ColumnMapping) -> Column:
    """A column of the mirror; null where nothing of the changelog feeds it.

    Members of structs are matched by what they were made from: the mirror may have kept some that
    the source dropped, or have others of somebody else's.
    """
    column = sf.lit(None) if feed.source is None else _shaped(feed, sf.col(quote(feed.source.name)))
    return column.alias(feed.target.name)


def _shaped(feed: ColumnMapping, column: Column) -> Column:
    if feed.fits or not feed.members:
        return column
    match feed.target.type:
        case Struct():
            members = [_member(each, column) for each in feed.members]
            return sf.when(column.isNotNull(), sf.struct(*members))
        case List():
            (element,) = feed.members
            return sf.transform(column, lambda each: _shaped(element, each))
        case Map():
            # Keys of a map never change.
            _, value = feed.members
            return sf.transform_values(column, lambda _, each: _shaped(value, each))
        case _:
            return column


def _member(feed: ColumnMapping, column: Column) -> Column:
    found = sf.lit(None) if feed.source is None else _shaped(feed, column[feed.source.name])
    return found.alias(feed.target.name)
