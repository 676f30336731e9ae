"""Lists and maps on their way to a task: one that is null travels as an empty one with a mark.

Spark asks before every row how large its batch has become, and Arrow's Java answers by a walk over
the null lists at the batch's end: fifty million steps for ten thousand rows. Nearly all changes of
a Postgres changelog have such a list, of the columns that were not sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from frazil.merge.planning.change_columns import UNCHANGED
from frazil.model.schema.types import List, Map
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from frazil.merge.reading.changelog_reader import ReadLayout

# In front of the name of the column that it is about.
_MARK = "__frazil_is_null_"
_EMPTY = {List: "array()", Map: "map()"}


def lists_of(layout: ReadLayout) -> dict[str, str]:
    """The columns of a merge that may be null lists or maps, each with an empty one in SQL."""
    lists = {} if layout.unchanged is None else {UNCHANGED: _EMPTY[List]}
    for feed in layout.feeds:
        # What nothing feeds is null and has no type.
        if feed.source is not None and type(feed.target.type) in _EMPTY:
            lists[feed.target.name] = _EMPTY[type(feed.target.type)]
    return lists


def mark_null_lists(rows: DataFrame, lists: Mapping[str, str]) -> DataFrame:
    """The same rows with empty ones instead of nulls, and for each a column that tells where."""
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
        # Nullable in every batch, also in one that has no nulls: else they would not fit together.
        field = pa.field(name, column.type)
        batch = batch.set_column(batch.schema.get_field_index(name), field, column)
    return batch.drop_columns(marks) if marks else batch
