"""Reads the keys of data files with their row positions, inside tasks, to build an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.spark.task_errors import carries_errors
from frazil.errors import NullKeyError, UnsupportedSchemaChangeError
from frazil.mirror.deleted_rows import load_deleted
from frazil.mirror.row_reader import field_id, widened
from frazil.model.schema.types import Decimal, Fixed, List, Map, Primitive, Struct
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.model.key_index import IndexedFile
    from frazil.model.schema.types import Field, Scalar, Type
    from frazil.model.table_name import TableName

# Rows per batch.
_BATCH_ROWS = 65_536

FILE, POSITION, SEQUENCE = "_file_ordinal", "_position", "_sequence"

_SPARK_TYPES = {
    Primitive.BOOLEAN: ("boolean", pa.bool_()),
    Primitive.INT: ("int", pa.int32()),
    Primitive.LONG: ("bigint", pa.int64()),
    Primitive.FLOAT: ("float", pa.float32()),
    Primitive.DOUBLE: ("double", pa.float64()),
    Primitive.DATE: ("date", pa.date32()),
    Primitive.TIMESTAMP: ("timestamp_ntz", pa.timestamp("us")),
    # Plain ``timestamp`` depends on the session.
    Primitive.TIMESTAMPTZ: ("timestamp_ltz", pa.timestamp("us", tz="UTC")),
    Primitive.STRING: ("string", pa.string()),
    Primitive.UUID: ("binary", pa.binary()),
    Primitive.BINARY: ("binary", pa.binary()),
}


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads these columns of these files; picklable."""

    table: TableName
    files: tuple[IndexedFile, ...]
    key: tuple[Field, ...]
    sequence: Field | None
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def columns(self) -> tuple[tuple[str, Field], ...]:
        """Each column's name in Spark, and its field in the table."""
        keys = tuple((f"_key{at}", each) for at, each in enumerate(self.key))
        return keys if self.sequence is None else (*keys, (SEQUENCE, self.sequence))

    @property
    def key_types(self) -> tuple[tuple[str, Scalar], ...]:
        """The names of the key's columns in Spark, and their types."""
        named = self.columns[: len(self.key)]
        return tuple((name, as_scalar(each.type)) for name, each in named)

    @property
    def spark_schema(self) -> str:
        """The rows that ``read`` yields, as Spark's DDL."""
        own = [f"{name} {spark_type(each.type)[0]}" for name, each in self.columns]
        return ", ".join([*own, f"{FILE} int", f"{POSITION} bigint"])

    @carries_errors
    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Live rows of the files with the incoming numbers."""
        inputs = InputFiles(dict(self.io_properties))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read_file(self.files[number], inputs)

    def _read_file(self, file: IndexedFile, inputs: InputFiles) -> Iterator[pa.RecordBatch]:
        deleted = load_deleted(file, inputs).positions().astype(np.int64)
        with inputs.open(file.location) as source, pq.ParquetFile(source) as parquet:
            names = self._names(parquet, file.location)
            first = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=list(names.values())):
                yield self._live(batch, names, first, deleted, file.ordinal)
                first += batch.num_rows

    def _names(self, parquet: pq.ParquetFile, location: str) -> dict[int, str]:
        by_id = {field_id(each): each.name for each in parquet.schema_arrow}
        lacking = [each.name for each in self.key if each.id not in by_id]
        if lacking:
            message = f"the data file {location} lacks {', '.join(lacking)} by field id."
            remedy = rewrite_command(self.table, "'rewrite-all', 'true'")
            raise UnsupportedSchemaChangeError(message, table=str(self.table), next_step=remedy)
        # Files written before the mirror had a sequence column have none.
        return {each.id: by_id[each.id] for _, each in self.columns if each.id in by_id}

    def _live(
        self,
        batch: pa.RecordBatch,
        names: dict[int, str],
        first: int,
        deleted: np.ndarray[tuple[int], np.dtype[np.int64]],
        ordinal: int,
    ) -> pa.RecordBatch:
        until = first + batch.num_rows
        start, end = np.searchsorted(deleted, [first, until])
        alive = np.ones(batch.num_rows, np.bool_)
        alive[deleted[start:end] - first] = False
        positions = np.arange(first, until)[alive]
        if end > start:
            batch = batch.filter(pa.array(alive))
        columns = [
            widened(batch.column(names[each.id]), spark_type(each.type)[1])
            if each.id in names
            else pa.nulls(len(positions), spark_type(each.type)[1])
            for _, each in self.columns
        ]
        nulls = sum(each.null_count for each in columns[: len(self.key)])
        if nulls:
            message = f"{nulls} values of the key are null."
            raise NullKeyError(message, table=str(self.table))
        ordinals = pa.array(np.full(len(positions), ordinal, np.int32))
        return pa.RecordBatch.from_arrays(
            [*columns, ordinals, pa.array(positions)],
            names=[*(name for name, _ in self.columns), FILE, POSITION],
        )


def rewrite_command(table: TableName, options: str) -> str:
    """The Iceberg procedure call that rewrites the table's files, for an operator to run."""
    name = ".".join(map(quote, (*table.namespace, table.table))).replace("'", "\\'")
    call = f"CALL {quote(table.catalog)}.system.rewrite_data_files"
    return f"{call}(table => '{name}', options => map({options}))"


def as_scalar(type_: Type) -> Scalar:
    """The type of a column that can be part of a key; raises for a nested one."""
    if isinstance(type_, Struct | List | Map):
        message = f"{type_} cannot be part of a key."
        raise UnsupportedSchemaChangeError(message)
    return type_


def spark_type(type_: Type) -> tuple[str, pa.DataType]:
    """The Spark name of a key's or sequence's type, and its Arrow type."""
    match type_:
        case Primitive() if type_ in _SPARK_TYPES:
            return _SPARK_TYPES[type_]
        case Fixed():
            return ("binary", pa.binary())
        case Decimal(precision, scale):
            return (f"decimal({precision},{scale})", pa.decimal128(precision, scale))
        case _:
            message = f"{type_} cannot be part of a key."
            raise UnsupportedSchemaChangeError(message)
