"""Rewrites of real files, in one process: rows, order, identity and places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.clients.iceberg.file_system import OutputFiles
from frazil.clients.iceberg.write.arrow_schema import FIELD_ID
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.codec.deletes.deletion_vector import DeletionVector
from frazil.codec.deletes.position_deletes import encode_position_deletes
from frazil.errors import UnsupportedSchemaChangeError
from frazil.maintain.compaction.rewriting import RewriteGroup, rewrite_group
from frazil.maintain.compaction.row_reading import (
    RewrittenFile,
    partition_constants,
    with_lineage,
)
from frazil.model.key_index import DeleteKind, DeletePointer, IndexedFile
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.maintain.compaction.rewriting import RewrittenGroup

SCHEMA = Schema(
    2,
    (
        Field(1, "id", Primitive.LONG, required=True),
        Field(2, "title", Primitive.STRING),
        Field(5, "added", Primitive.INT, initial_default=7),
    ),
)
BY_TITLE = PartitionSpec(3, (PartitionField(2, 1000, "title", parse_transform("identity")),))


def target_in(folder: Path, spec: PartitionSpec | None = None, version: int = 3) -> WriteTarget:
    planned = plan_write_target(
        table="t",
        location=f"file:{folder}",
        schema=SCHEMA,
        spec=spec or PartitionSpec(),
        properties={},
        io_properties={},
        format_version=version,
    )
    return replace(planned, schema=with_lineage(SCHEMA, version))


def old_file(
    folder: Path, name: str, ids: range, dead: tuple[int, ...] = (), **more: list[int | None]
) -> RewrittenFile:
    """A file of the time when ``title`` was ``name`` and ``added`` was not there."""
    columns = {"id": (1, pa.array(list(ids), pa.int32()))}
    columns["name"] = (2, pa.array([f"n{each % 2}" for each in ids]))
    if "row_id" in more:
        columns["_row_id"] = (2147483540, pa.array(more["row_id"], pa.int64()))
    fields = [
        pa.field(key, column.type, metadata={FIELD_ID: str(number)})
        for key, (number, column) in columns.items()
    ]
    location = f"file:{folder}/{name}.parquet"
    table = pa.Table.from_arrays([each for _, each in columns.values()], schema=pa.schema(fields))
    pq.write_table(table, f"{folder}/{name}.parquet", row_group_size=3)
    deletes: tuple[DeletePointer, ...] = ()
    if dead:
        vector = DeletionVector.from_positions(np.array(dead))
        data = encode_position_deletes(location, vector)
        where = f"file:{folder}/{name}-deletes.parquet"
        OutputFiles({}).write_file(where, data)
        deletes = (
            DeletePointer(
                kind=DeleteKind.POSITIONS,
                location=where,
                file_size=len(data),
                rows=len(dead),
                spec_id=0,
                partition="{}",
                data_file=location,
            ),
        )
    file = IndexedFile(
        ordinal=0, location=location, rows=len(ids), size=1, spec_id=0, partition="{}",
        deletes=deletes,
    )  # fmt: skip
    return RewrittenFile(file=file, first_row_id=100 * ids.start, sequence=ids.start + 1)


def rows_of(group: RewrittenGroup) -> list[list[dict[str, object]]]:
    return [pq.read_table(urlsplit(each.location).path).to_pylist() for each in group.files]


def test_rows_are_written_in_order_under_the_tables_schema_with_their_identity(
    tmp_path: Path,
) -> None:
    first = old_file(tmp_path, "a", range(1, 6), dead=(1, 3))
    second = old_file(tmp_path, "b", range(9, 11), row_id=[42, None])
    group = rewrite_group(RewriteGroup((first, second), target_in(tmp_path)))
    (rows,) = rows_of(group)
    assert [row["id"] for row in rows] == [1, 3, 5, 9, 10]
    assert [row["title"] for row in rows] == ["n1", "n1", "n1", "n1", "n0"]
    assert {row["added"] for row in rows} == {7}
    assert [row["_row_id"] for row in rows] == [100, 102, 104, 42, 901]
    assert [row["_last_updated_sequence_number"] for row in rows] == [2, 2, 2, 10, 10]
    assert group.layout.targets == (5,)
    assert group.layout.scattered is None
    now = [DeletionVector.from_positions([1, 2, 3]), DeletionVector.from_positions([1])]
    (deleted,) = group.layout.translate(now)
    assert deleted.positions().tolist() == [1, 4]


def test_files_of_the_target_size_follow_each_other(tmp_path: Path) -> None:
    old = [old_file(tmp_path, f"f{at}", range(at * 1_000, at * 1_000 + 700)) for at in range(2)]
    target = replace(target_in(tmp_path, version=2), target_file_bytes=1_000)
    group = rewrite_group(RewriteGroup(tuple(old), target))
    assert len(group.files) > 1
    found = [row["id"] for rows in rows_of(group) for row in rows]
    assert found == [*range(700), *range(1_000, 1_700)]
    assert group.layout.targets == tuple(each.rows for each in group.files)
    assert group.layout.scattered is None
    assert "_row_id" not in rows_of(group)[0][0]


def test_a_new_partitioning_scatters_rows_and_deletes_find_them(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(6), dead=(0,))
    group = rewrite_group(RewriteGroup((old,), target_in(tmp_path, BY_TITLE)))
    assert len(group.files) == 2
    assert group.layout.scattered is not None
    gone = DeletionVector.from_positions([0, 1, 4])
    translated = group.layout.translate([gone])
    left = [
        row["id"]
        for rows, dead in zip(rows_of(group), translated, strict=True)
        for at, row in enumerate(rows)
        if at not in dead
    ]
    assert set(left) == {2, 3, 5}


def test_the_partitions_value_counts_where_a_file_has_another_or_none(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(2))
    constants = partition_constants(BY_TITLE, '{"1000":"of the partition"}')
    moved = replace(old, constants=constants)
    group = rewrite_group(RewriteGroup((moved,), target_in(tmp_path, BY_TITLE)))
    (rows,) = rows_of(group)
    assert {row["title"] for row in rows} == {"of the partition"}
    assert group.layout.scattered is None
    assert partition_constants(BY_TITLE, "{}") == ((2, None),)


def test_a_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(2))
    pq.write_table(pa.table({"id": [1, 2]}), f"{tmp_path}/a.parquet")
    with pytest.raises(UnsupportedSchemaChangeError):
        rewrite_group(RewriteGroup((old,), target_in(tmp_path)))
