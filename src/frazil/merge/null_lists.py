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
from pyspark.sql.types import ArrayType, MapType

from frazil.model.table_name import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# In front of the name of the column that it is about.
_MARK = "__frazil_is_null_"


def mark_null_lists(rows: DataFrame) -> DataFrame:
    """The same rows without a null list or map, and a column for each that tells where one was."""
    columns, marks = [], []
    for field in rows.schema.fields:
        column, empty = sf.col(quote(field.name)), _empty(field.dataType)
        if empty is not None:
            marks.append(column.isNull().alias(f"{_MARK}{field.name}"))
            column = sf.coalesce(column, empty).alias(field.name)
        columns.append(column)
    return rows.select(*columns, *marks) if marks else rows


def restore_null_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it was before its null lists were marked."""
    marks = [name for name in batch.schema.names if name.startswith(_MARK)]
    for mark in marks:
        name, is_null = mark.removeprefix(_MARK), batch.column(mark)
        if is_null.true_count:
            whole = batch.column(name)
            restored = pc.if_else(is_null, pa.scalar(None, whole.type), whole)
            batch = batch.set_column(batch.schema.get_field_index(name), name, restored)
    return batch.drop_columns(marks) if marks else batch


def _empty(type_: DataType) -> Column | None:
    match type_:
        case ArrayType():
            return sf.array().cast(type_)
        case MapType():
            return sf.create_map().cast(type_)
        case _:
            return None
