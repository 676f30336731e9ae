"""Equality deletes, as Flink writes them: rows are named by the values of their key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.file_system import OutputFiles
from frazil.clients.iceberg.gateway import FileIntake
from frazil.clients.iceberg.write.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.iceberg.table import LakeTable


def delete_by_equality(
    table: LakeTable, ids: Sequence[int], *, spec_id: int = 0, partition: str = "{}"
) -> None:
    """Delete the rows with these ids, of one partition; one commit of another engine."""
    schema = table.load_schema()
    at, column = next((at, f) for at, f in enumerate(schema.fields) if f.name == "id")
    type_ = arrow_schema(schema).field(at).type
    field = pa.field("id", type_, nullable=False, metadata={"PARQUET:field_id": str(column.id)})
    content = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": list(ids)}, schema=pa.schema([field])), content)
    data = content.getvalue().to_pybytes()
    target = table.load_write_target()
    location = f"{target.data_location}/{uuid4()}-eq.parquet"
    OutputFiles(dict(target.io_properties)).write_file(location, data)
    described = {
        "spec-id": spec_id,
        "content": "EQUALITY_DELETES",
        "equality-ids": [column.id],
        "file-format": "PARQUET",
        "file-path": location,
        "partition": json.loads(partition),
        "record-count": len(ids),
        "file-size-in-bytes": len(data),
    }
    delta = table._table.newRowDelta()
    table._gateway.apply_files(
        delta, FileIntake.ADD_DELETES, [json.dumps(described)], table._table.specs()
    )
    delta.commit()
