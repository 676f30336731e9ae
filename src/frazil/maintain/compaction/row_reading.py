"""Reads the live rows of a data file for a rewrite, in order, inside a task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.codec.iceberg_json import default_from_json
from frazil.errors import UnsupportedSchemaChangeError
from frazil.mirror.row_reader import field_id, project
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from frazil.clients.iceberg.file_system import InputFiles
    from frazil.codec.deletes.deletion_vector import DeletionVector
    from frazil.model.key_index import IndexedFile
    from frazil.model.schema.partitioning import PartitionSpec
    from frazil.model.schema.types import Default

# Rows per batch: enough for vectorised work, few enough for wide rows.
_BATCH_ROWS = 65_536
# The first version whose rows have an identity.
_LINEAGE_FORMAT = 3
# Iceberg's reserved columns. A file that has them keeps the identity of rows written before.
ROW_ID = Field(2147483540, "_row_id", Primitive.LONG)
LAST_UPDATED = Field(2147483539, "_last_updated_sequence_number", Primitive.LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFile:
    """A file to rewrite, with its deletes and what its rows inherit from its manifest entry.

    ``constants`` are columns whose value is the partition's, by field id, as JSON.
    """

    file: IndexedFile
    first_row_id: int | None
    sequence: int
    constants: tuple[tuple[int, Default | None], ...] = ()


def with_lineage(schema: Schema, format_version: int) -> Schema:
    """The columns of rewritten files: those of the table, and the identity of rows, if any."""
    if format_version < _LINEAGE_FORMAT:
        return schema
    return Schema(schema.schema_id, (*schema.fields, ROW_ID, LAST_UPDATED), schema.identifier_ids)


def partition_constants(
    spec: PartitionSpec, partition: str
) -> tuple[tuple[int, Default | None], ...]:
    """The columns that a partition determines; files of other engines may leave them out."""
    values: Mapping[str, Default] = json.loads(partition)
    return tuple(
        (each.source_id, values.get(str(each.field_id)))
        for each in spec.fields
        if each.transform.kind is TransformKind.IDENTITY
    )


def read_live_rows(
    rewritten: RewrittenFile, dead: DeletionVector, schema: Schema, inputs: InputFiles
) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, under the schema; batches may be empty."""
    location = rewritten.file.location
    deleted = dead.positions().astype(np.int64)
    wanted = {each.id for each in schema.fields}
    with inputs.open(location) as source, pq.ParquetFile(source) as parquet:
        ids = [field_id(each) for each in parquet.schema_arrow]
        if ids and set(ids) == {None}:
            message = f"the data file {location} has no field ids: its columns are not identified."
            raise UnsupportedSchemaChangeError(message)
        names = [
            each.name for each, id_ in zip(parquet.schema_arrow, ids, strict=True) if id_ in wanted
        ]
        first = 0
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
            yield _live(batch, rewritten, schema, first, deleted)
            first += batch.num_rows


def _live(
    batch: pa.RecordBatch,
    rewritten: RewrittenFile,
    schema: Schema,
    first: int,
    deleted: NDArray[np.int64],
) -> pa.RecordBatch:
    count = batch.num_rows
    constants = dict(rewritten.constants)
    columns = project(batch, schema.fields)
    for at, each in enumerate(schema.fields):
        if each.id in constants:
            columns[at] = _constant(each, constants[each.id], count)
        elif each.id == ROW_ID.id and rewritten.first_row_id is not None:
            inherited = np.arange(count) + (rewritten.first_row_id + first)
            columns[at] = pc.coalesce(columns[at], pa.array(inherited, pa.int64()))
        elif each.id == LAST_UPDATED.id:
            columns[at] = pc.fill_null(columns[at], rewritten.sequence)
    rows = pa.RecordBatch.from_arrays(columns, names=[each.name for each in schema.fields])
    start, end = np.searchsorted(deleted, [first, first + count])
    if start == end:
        return rows
    alive = np.ones(count, np.bool_)
    alive[deleted[start:end] - first] = False
    return rows.filter(pa.array(alive))


def _constant(field: Field, value: Default | None, count: int) -> pa.Array:
    target = arrow_schema(Schema(0, (field,))).field(0).type
    if value is None:
        return pa.nulls(count, target)
    return pa.repeat(default_from_json(value, field.type, target), count)
