"""Chooses the columns of a file that get a dictionary: those whose values repeat.

Arrow builds one for every column and falls back only when it is too large. For distinct values
that costs time in the writer, bytes in the file and time in every reader.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

# Enough to decide, and counted in a millisecond or two.
_SAMPLE_ROWS = 8192
# Text with three repetitions on average was read a tenth faster without a dictionary, at the same
# size.
_REPEATS = 8


def repeating_columns(rows: pa.Table) -> list[str]:
    """The Parquet paths of all columns whose values repeat, judged by a sample."""
    count = min(rows.num_rows, _SAMPLE_ROWS)
    # From the middle: rows may be sorted, and the ends are seldom typical.
    sample = rows.slice((rows.num_rows - count) // 2, count)
    return [
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if pa.types.is_nested(field.type) or _repeats(column, rows.num_rows)
        for path in _leaves(field.name, field.type)
    ]


def _repeats(sample: pa.ChunkedArray, rows: int) -> bool:
    if isinstance(sample.type, pa.BaseExtensionType):
        sample = sample.cast(sample.type.storage_type)
    # The distinct values that a random sample would have at that rate of repetition.
    different = max(rows, 1) / _REPEATS
    expected = different * (1 - math.exp(-len(sample) / different))
    # A single value gets a dictionary, however few rows there are.
    return int(pc.count_distinct(sample).as_py()) <= max(expected, 1)


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    """The columns that Parquet makes of one of Arrow's."""
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    else:
        yield path
