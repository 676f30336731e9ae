"""Sends null lists and maps to tasks as empty ones with a marker column.

Spark computes the size of its Arrow batch before every row, and Arrow's Java implementation
iterates over the null lists at the end of the batch for it: fifty million steps for ten thousand
rows. Nearly all changes of a Postgres changelog have such a list: the columns that were not sent.
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

# Prefix of the marker column's name.
_MARK = "__frazil_is_null_"
_EMPTY = {List: "array()", Map: "map()"}


def lists_of(layout: ReadLayout) -> dict[str, str]:
    """The columns of a merge that may be null lists or maps, each with an empty one in SQL."""
    lists = {} if layout.unchanged is None else {UNCHANGED: _EMPTY[List]}
    for mapping in layout.mappings:
        # An unmapped column is null and has no type.
        if mapping.source is not None and type(mapping.target.type) in _EMPTY:
            lists[mapping.target.name] = _EMPTY[type(mapping.target.type)]
    return lists


def mark_null_lists(rows: DataFrame, lists: Mapping[str, str]) -> DataFrame:
    """The rows with empty lists instead of nulls, and a marker column for each list column."""
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
