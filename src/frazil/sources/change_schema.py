"""The columns of rows as every source produces them: ``ChangeColumn`` with Arrow's types."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.model.schema.types import Field, Schema
from frazil.sources.protocol import ChangeColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.model.schema.types import Type
    from frazil.model.source_table import SourceColumn

COMMITTED_AT_TYPE = pa.timestamp("us", tz="UTC")
UNCHANGED_TYPE = pa.list_(pa.int32())


def change_schema(columns: Sequence[SourceColumn], key: Sequence[int]) -> pa.Schema:
    """The schema of a table's rows: these columns under their numbers, then the metadata columns.

    ``key`` holds numbers of columns; without any, rows have no previous key.
    """
    values = [pa.field(str(each.number), arrow_type(each.type)) for each in columns]
    metadata = [
        pa.field(ChangeColumn.OPERATION, pa.string(), nullable=False),
        pa.field(ChangeColumn.POSITION, pa.uint64(), nullable=False),
        pa.field(ChangeColumn.ORDINAL, pa.uint64(), nullable=False),
        pa.field(ChangeColumn.COMMITTED_AT, COMMITTED_AT_TYPE),
        pa.field(ChangeColumn.ORIGIN, pa.string(), nullable=False),
        pa.field(ChangeColumn.UNCHANGED, UNCHANGED_TYPE),
    ]
    if key:
        types = {each.number: field for each, field in zip(columns, values, strict=True)}
        metadata.append(
            pa.field(ChangeColumn.PREVIOUS_KEY, pa.struct([types[number] for number in key]))
        )
    return pa.schema([*values, *metadata])


# A database has few types and many columns.
@lru_cache(maxsize=256)
def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type that holds values of an Iceberg type."""
    return arrow_schema(Schema(0, (Field(0, "value", type_),))).field(0).type
