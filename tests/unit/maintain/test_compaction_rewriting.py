"""Rewrites of real files, in one process: rows, order, identity and places."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.clients.iceberg.file_system import InputFiles, OutputFiles
from frazil.clients.iceberg.write.arrow_schema import FIELD_ID
from frazil.clients.iceberg.write.partition_values import transform_values
from frazil.clients.iceberg.write.sort_keys import plan_sort_keys
from frazil.clients.iceberg.write.task_writer import WrittenPositions
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.codec.deletes.deletion_vector import DeletionVector
from frazil.codec.deletes.position_deletes import encode_position_deletes
from frazil.codec.key_index.entries import Entries
from frazil.errors import NullKeyError, UnsupportedSchemaChangeError
from frazil.maintain.compaction import rewriting
from frazil.maintain.compaction.rewriting import RewriteGroup, RewriteTask, rewrite_group
from frazil.maintain.compaction.row_reading import (
    RewrittenFile,
    partition_constants,
    with_lineage,
)
from frazil.maintain.compaction.row_sorting import PORTION_BYTES, RowSorter
from frazil.mirror.index import entry_writing
from frazil.mirror.index.entry_writing import EntryPlan, EntryWriter, numbered
from frazil.mirror.index.run_building import RunStore
from frazil.mirror.index.run_cache import BlobKey, RunCache
from frazil.mirror.index.run_merging import fetch_bucket
from frazil.model.key_index import DeleteKind, DeletePointer, IndexedFile, KeyHash
from frazil.model.schema.partitioning import (
    PartitionField,
    PartitionSpec,
    SortField,
    SortOrder,
    parse_transform,
)
from frazil.model.schema.types import Field, Primitive, Schema
from tests.support.codec.key_hash import xxh64_of_long

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


def buckets_of(ids: list[int], count: int) -> list[int]:
    values = pa.array(ids, pa.int64())
    found: list[int] = transform_values(
        values, Primitive.LONG, parse_transform(f"bucket[{count}]")
    ).to_pylist()
    return found


def rows_of(group: RewrittenGroup) -> list[list[dict[str, Any]]]:
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
    assert group.layout.new_ranks is None
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
    assert group.layout.new_ranks is None
    assert "_row_id" not in rows_of(group)[0][0]


def test_a_new_partitioning_scatters_rows_and_deletes_find_them(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(6), dead=(0,))
    group = rewrite_group(RewriteGroup((old,), target_in(tmp_path, BY_TITLE)))
    assert len(group.files) == 2
    assert group.layout.new_ranks is not None
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
    assert group.layout.new_ranks is None
    assert partition_constants(BY_TITLE, "{}") == ((2, None),)


@pytest.mark.parametrize("spec", [None, BY_TITLE], ids=["plain", "partitioned"])
@pytest.mark.parametrize("portion", [1, PORTION_BYTES], ids=["spilled", "in memory"])
def test_rows_are_sorted_by_the_tables_order_and_late_deletes_find_them(
    tmp_path: Path, spec: PartitionSpec | None, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "RowSorter", partial(RowSorter, portion_bytes=portion))
    order = SortOrder(
        4,
        (
            SortField(2, parse_transform("identity"), descending=True, nulls_first=True),
            SortField(1, parse_transform("bucket[3]"), descending=False, nulls_first=True),
        ),
    )
    first = old_file(tmp_path, "a", range(1, 300), dead=(1, 3))
    second = old_file(tmp_path, "b", range(500, 700), row_id=[None] * 200)
    target = replace(target_in(tmp_path, spec), sort_order_id=4, target_file_bytes=1_000)
    keys = plan_sort_keys(target.schema, order)
    group = rewrite_group(RewriteGroup((first, second), target, keys))
    assert {json.loads(each.descriptor)["sort-order-id"] for each in group.files} == {4}
    files = rows_of(group)
    assert len(files) > 1
    kept = [each for each in range(1, 300) if each not in {2, 4}] + list(range(500, 700))
    assert sorted(row["id"] for rows in files for row in rows) == kept
    buckets = dict(zip(kept, buckets_of(kept, 3), strict=True))

    def place(row: dict[str, Any]) -> tuple[object, ...]:
        # Equal rows stay as they were.
        return ({"n1": 0, "n0": 1}[str(row["title"])], buckets[row["id"]], row["id"])

    for rows in files:
        assert [place(row) for row in rows] == sorted(place(row) for row in rows)
    if spec is None:
        everything = [place(row) for rows in files for row in rows]
        assert everything == sorted(everything)
    # The identity moved with its row.
    for row in (row for rows in files for row in rows):
        start = 1 if row["id"] < 500 else 500
        assert row["_row_id"] == 100 * start + row["id"] - start
        assert row["_last_updated_sequence_number"] == start + 1
    now = [DeletionVector.from_positions([1, 2, 3, 298]), DeletionVector.from_positions([0, 77])]
    gone = {
        rows[at]["id"]
        for rows, dead in zip(files, group.layout.translate(now), strict=True)
        for at in dead.positions().tolist()
    }
    assert gone == {3, 299, 500, 577}


def test_rows_that_are_in_order_already_keep_no_table_of_ranks(tmp_path: Path) -> None:
    order = SortOrder(1, (SortField(1, parse_transform("identity"), False, True),))  # noqa: FBT003
    old = old_file(tmp_path, "a", range(5))
    target = target_in(tmp_path)
    group = rewrite_group(RewriteGroup((old,), target, plan_sort_keys(target.schema, order)))
    assert group.layout.new_ranks is None
    gone = old_file(tmp_path, "b", range(3), dead=(0, 1, 2))
    empty = rewrite_group(RewriteGroup((gone,), target, plan_sort_keys(target.schema, order)))
    assert (empty.files, empty.layout.targets) == ((), ())


def test_a_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(2))
    pq.write_table(pa.table({"id": [1, 2]}), f"{tmp_path}/a.parquet")
    with pytest.raises(UnsupportedSchemaChangeError):
        rewrite_group(RewriteGroup((old,), target_in(tmp_path)))


def entry_plan(folder: Path, few: int, sequence: Field | None = None) -> EntryPlan:
    store = RunStore("t", f"file:{folder}/_index", (), str(folder / "cache"), 1 << 20)
    return EntryPlan(store, SCHEMA.fields[0], sequence, KeyHash.XXHASH64, few)


def test_rows_are_indexed_as_they_are_written(tmp_path: Path) -> None:
    old = [old_file(tmp_path, f"f{at}", range(at * 10, at * 10 + 6), dead=(2,)) for at in range(3)]
    target = target_in(tmp_path, BY_TITLE)
    groups = tuple(RewriteGroup((each,), target) for each in old)
    numbers = [pa.RecordBatch.from_pydict({"id": [at]}) for at in range(3)]
    for few in (100, 0):
        task = RewriteTask(groups, entry_plan(tmp_path, few))
        (portion,) = (pickle.loads(each.column(0)[0].as_py()) for each in task.run(numbers))
        files = [file for group in portion.groups for file in group.files]
        written = numbered(portion.entries, 5)
        assert bool(written.runs) == (few == 0)
        found = [written.few]
        for run in written.runs:
            found += fetch_bucket(run, 0, 0, InputFiles({}))
        entries = Entries.concatenate(found)
        located = {
            int(hi): rows[position]["id"]
            for hi, file, position in zip(entries.hi, entries.file, entries.position, strict=True)
            for rows in [pq.read_table(urlsplit(files[file - 5].location).path).to_pylist()]
        }
        ids = [each for at in range(3) for each in range(at * 10, at * 10 + 6) if each % 10 != 2]
        assert located == {xxh64_of_long(each): each for each in ids}


def test_a_run_that_was_written_is_cached_for_lookups(tmp_path: Path) -> None:
    old = old_file(tmp_path, "a", range(6))
    task = RewriteTask((RewriteGroup((old,), target_in(tmp_path)),), entry_plan(tmp_path, 0))
    (found,) = task.run([pa.RecordBatch.from_pydict({"id": [0]})])
    (run,) = pickle.loads(found.column(0)[0].as_py()).entries.runs
    (part,) = run.parts
    (blob,) = part.blobs
    cached = RunCache(tmp_path / "cache", 1 << 20).find(BlobKey.of(part, blob))
    assert cached is not None
    assert cached.position[np.argsort(cached.position)].tolist() == list(range(6))


def test_a_null_in_the_key_is_refused(tmp_path: Path) -> None:
    nothing = WrittenPositions(np.zeros(1, np.int32), np.zeros(1, np.int64))
    rows = pa.RecordBatch.from_pydict({"id": pa.nulls(1, pa.int64())})
    with pytest.raises(NullKeyError):
        EntryWriter(entry_plan(tmp_path, 0)).add(rows, nothing, 0)


def test_many_entries_become_a_run_before_all_groups_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_writing, "_RUN_ENTRIES", 8)
    old = [old_file(tmp_path, f"f{at}", range(at * 10, at * 10 + 6)) for at in range(5)]
    groups = tuple(RewriteGroup((each,), target_in(tmp_path)) for each in old)
    sequence = Field(5, "added", Primitive.INT)
    task = RewriteTask(groups, entry_plan(tmp_path, 100, sequence))
    numbers = pa.RecordBatch.from_pydict({"id": list(range(5))})
    portions = [pickle.loads(each.column(0)[0].as_py()) for each in task.run([numbers])]
    assert [(each.first, each.files, len(each.entries.runs)) for each in portions] == [
        (0, 2, 1),
        (2, 2, 1),
        (4, 1, 0),
    ]
    few = portions[-1].entries.few
    assert len(few) == 6
    assert few.sequence is not None
    assert few.sequence.to_pylist() == [7] * 6
