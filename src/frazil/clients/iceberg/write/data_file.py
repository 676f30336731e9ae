"""Writes one Parquet file: rows are buffered, encoded by row group, and described."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.clients.iceberg.write.arrow_schema import parquet_name, parquet_schema
from frazil.clients.iceberg.write.column_metrics import MetricsRecorder
from frazil.clients.iceberg.write.conforming import finished
from frazil.clients.iceberg.write.partition_text import json_form
from frazil.errors import StorageError
from frazil.hooks import Failpoint, failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.clients.iceberg.file_system import OutputFiles
    from frazil.clients.iceberg.write.column_metrics import ColumnMetrics
    from frazil.clients.iceberg.write.partition_text import PartitionValue
    from frazil.clients.iceberg.write.write_target import WriteTarget

# A file this close to its target size is full: the rest would be a tiny row group.
_FULL = 0.9
# Minimum rows of an append, so that a nearly full file does not split batches into tiny ones.
_FEWEST_ROWS = 256
# Enough to decide, and counted in a millisecond or two.
_SAMPLE_ROWS = 8192
# Text with three repetitions on average was read a tenth faster without a dictionary, at the same
# size.
_REPEATS = 8


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished data file; ``descriptor`` is what Iceberg's ContentFileParser reads."""

    location: str
    size: int
    rows: int
    spec_id: int
    partition: tuple[PartitionValue, ...]
    descriptor: str


class DataFile:
    """A file that takes rows until it is full. Nothing is created before rows must be written."""

    def __init__(
        self,
        target: WriteTarget,
        schema: pa.Schema,
        location: str,
        partition: tuple[PartitionValue, ...],
        files: OutputFiles,
    ) -> None:
        self.location = location
        self.partition = partition
        self.rows = 0
        self.buffered_bytes = 0
        self._target = target
        self._schema = schema
        self._parquet_schema = parquet_schema(target.schema)
        self._files = files
        self._metrics = MetricsRecorder(target.schema, dict(target.bound_lengths))
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._encoded_from = 0
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def is_open(self) -> bool:
        """Whether it holds a stream."""
        return self._stream is not None

    @property
    def is_full(self) -> bool:
        """Whether the next row must go to another file."""
        return self._written >= self._target.target_file_bytes * _FULL

    def remaining_rows(self, bytes_a_row: float) -> int:
        """How many more rows of this size may be appended before the next check."""
        target = self._target
        until_row_group = target.row_group_bytes - self.buffered_bytes
        until_full = (target.target_file_bytes - self._written) / self._density
        size = min(until_row_group, until_full - self.buffered_bytes)
        rows = max(int(size / max(bytes_a_row, 1)), _FEWEST_ROWS)
        return min(rows, target.row_group_rows - self._buffered_rows)

    def append(self, batch: pa.RecordBatch) -> int:
        """Append the rows and return the position of the first; may encode a row group."""
        first = self.rows
        self._buffered.append(batch)
        self._buffered_rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        self.rows += batch.num_rows
        expected = self._written + self.buffered_bytes * self._density
        if (
            self.buffered_bytes >= self._target.row_group_bytes
            or self._buffered_rows >= self._target.row_group_rows
            or expected >= self._target.target_file_bytes
        ):
            self.encode()
        return first

    def encode(self) -> None:
        """Write what is buffered as one row group; raises StorageError."""
        if not self._buffered:
            return
        rows = pa.Table.from_batches(self._buffered, self._schema)
        self._metrics.observe(rows)
        try:
            final = finished(rows, self._target.schema, self._parquet_schema)
            self._opened(final).write_table(final, row_group_size=rows.num_rows)
        except OSError as error:
            raise self._failed() from error
        self._encoded_from += self.buffered_bytes
        self._buffered = []
        self._buffered_rows = 0
        self.buffered_bytes = 0

    def close(self) -> WrittenFile:
        """Write the rest and the footer, and describe the file; raises StorageError."""
        self.encode()
        writer = self._opened()
        try:
            writer.close()
            size = self._written
            self._release()
        except OSError as error:
            raise self._failed() from error
        failpoint(Failpoint.FILE_CLOSED)
        footer = writer.writer.metadata
        descriptor = _descriptor(self, self._target, size, footer, self._metrics.finish(footer))
        spec_id = self._target.spec.spec_id
        return WrittenFile(self.location, size, self.rows, spec_id, self.partition, descriptor)

    def abandon(self) -> None:
        """Close the stream; the unfinished file is not deleted."""
        self._buffered = []
        try:
            if self._writer is not None:
                self._writer.close()
            self._release()
        except OSError:
            # The caller is already handling an error, which this one would hide.
            self._stream = None

    @property
    def _written(self) -> int:
        return 0 if self._stream is None else int(self._stream.tell())

    @property
    def _density(self) -> float:
        """Bytes in the file per byte in memory, so far in this file."""
        return self._written / self._encoded_from if self._encoded_from else 1.0

    def _opened(self, rows: pa.Table | None = None) -> pq.ParquetWriter:
        """The writer; the first rows decide which columns get a dictionary."""
        if self._writer is None:
            self._stream = self._files.create(self.location)
            failpoint(Failpoint.FILE_OPENED)
            options = _options(self._target)
            if rows is not None:
                options["use_dictionary"] = repeating_columns(rows)
            self._writer = pq.ParquetWriter(self._stream, self._parquet_schema, **options)
        return self._writer

    def _release(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _failed(self) -> StorageError:
        message = f"the data file {self.location} cannot be written"
        return StorageError(message, table=self._target.table)


def _options(target: WriteTarget) -> dict[str, object]:
    options: dict[str, object] = {
        "compression": target.compression,
        "compression_level": target.compression_level,
        "version": "2.6",
        # Iceberg stores decimals of up to 18 digits as integers.
        "store_decimal_as_integer": True,
        # Readers use Iceberg's schema; Arrow's copy would only make footers larger.
        "store_schema": False,
        "data_page_size": target.page_bytes,
        "dictionary_pagesize_limit": target.dictionary_bytes,
    }
    if target.bloom_filters:
        options["bloom_filter_options"] = {
            _parquet_path(target, each.column): {
                "ndv": min(each.distinct_values, target.row_group_rows),
                "fpp": each.false_positives,
            }
            for each in target.bloom_filters
        }
    return {name: value for name, value in options.items() if value is not None}


def _parquet_path(target: WriteTarget, name: str) -> str:
    column = target.schema.by_name(name)
    path = () if column is None else column.path
    return ".".join(parquet_name(each.name) for each in path)


def _descriptor(
    file: DataFile,
    target: WriteTarget,
    size: int,
    footer: pq.FileMetaData,
    metrics: ColumnMetrics,
) -> str:
    lower = {key: value.hex().upper() for key, value in metrics.lower_bounds.items()}
    upper = {key: value.hex().upper() for key, value in metrics.upper_bounds.items()}
    document: dict[str, object] = {
        "spec-id": target.spec.spec_id,
        "content": "DATA",
        "file-path": file.location,
        "file-format": "PARQUET",
        "partition": _partition_json(target, file.partition),
        "file-size-in-bytes": size,
        "record-count": file.rows,
        "column-sizes": _pairs(metrics.column_sizes),
        "value-counts": _pairs(metrics.value_counts),
        "null-value-counts": _pairs(metrics.null_counts),
        "nan-value-counts": _pairs(metrics.nan_counts),
        "lower-bounds": _pairs(lower),
        "upper-bounds": _pairs(upper),
        "split-offsets": _split_offsets(footer),
        "sort-order-id": target.sort_order_id,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _pairs(values: Mapping[int, int | str]) -> dict[str, list[int] | list[int | str]]:
    return {"keys": list(values), "values": list(values.values())}


def _partition_json(
    target: WriteTarget, partition: tuple[PartitionValue, ...]
) -> dict[str, object]:
    types = target.partition_types
    return {
        str(field.field_id): json_form(value, type_)
        for field, value, type_ in zip(target.spec.fields, partition, types, strict=True)
        if value is not None
    }


def _split_offsets(footer: pq.FileMetaData) -> list[int]:
    offsets = []
    for index in range(footer.num_row_groups):
        first = footer.row_group(index).column(0)
        dictionary = first.dictionary_page_offset
        offsets.append(first.data_page_offset if dictionary is None else dictionary)
    return sorted(offsets)


def repeating_columns(rows: pa.Table) -> list[str]:
    """The Parquet paths of all columns whose values repeat, judged by a sample.

    They get a dictionary. Arrow builds one for every column and falls back only when it is too
    large: for distinct values that costs time in the writer, bytes in the file and time in every
    reader.
    """
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
