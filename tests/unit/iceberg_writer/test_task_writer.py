from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.iceberg.write.partition_split import PartitionSpill
from frazil.clients.iceberg.write.task_writer import TaskWriter, WrittenPositions
from frazil.clients.iceberg.write.write_target import BloomFilter, WriteTarget, plan_write_target
from frazil.errors import StorageError, UnrepresentableValueError
from frazil.hooks import ManualClock, SeededRandomness
from frazil.model.schema.partitioning import (
    UNPARTITIONED,
    PartitionField,
    PartitionSpec,
    parse_transform,
)
from frazil.model.schema.types import Field, Primitive, Schema, Struct, list_of, map_of
from tests.support.sampling import examples
from tests.unit.iceberg_writer.schemas import batch_of, uuid_of

if TYPE_CHECKING:
    from frazil.clients.iceberg.write.data_file import WrittenFile

P = Primitive
SCHEMA = Schema(
    0,
    (
        Field(1, "id", P.LONG, required=True),
        Field(2, "name", P.STRING),
        Field(3, "s", Struct((Field(4, "x", P.INT),))),
    ),
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def target(folder: Path, *parts: tuple[int, str], **changes: object) -> WriteTarget:
    spec = PartitionSpec(
        7,
        tuple(
            PartitionField(source, 1000 + index, f"p{index}", parse_transform(text))
            for index, (source, text) in enumerate(parts)
        ),
    )
    planned = plan_write_target(
        table="t",
        location=f"file:{folder}",
        schema=SCHEMA,
        spec=spec if parts else UNPARTITIONED,
        properties={},
        io_properties={},
    )
    return replace(planned, **changes)  # type: ignore[arg-type]


def writer_to(to: WriteTarget, **options: int) -> TaskWriter:
    return TaskWriter(to, clock=ManualClock(NOON), randomness=SeededRandomness(1), **options)


def batch(ids: range | list[int]) -> pa.RecordBatch:
    names = [None if number % 7 == 0 else f"name {number}" for number in ids]
    inner = [None if number % 5 == 0 else {"x": number % 3} for number in ids]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(ids), pa.int64()),
            pa.array(names, pa.string()),
            pa.array(inner, pa.struct([("x", pa.int32())])),
        ],
        names=["id", "name", "s"],
    )


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file:"))


def read(file: WrittenFile) -> pa.Table:
    return pq.read_table(path_of(file.location), partitioning=None)


def check_positions(
    files: tuple[WrittenFile, ...], written: list[tuple[pa.RecordBatch, WrittenPositions]]
) -> None:
    """Every row is where it was said to be, and nothing else is anywhere."""
    found = [read(file).column("id").to_pylist() for file in files]
    assert sum(map(len, found)) == sum(rows.num_rows for rows, _ in written)
    for rows, positions in written:
        there = [
            found[file][position]
            for file, position in zip(positions.file, positions.position, strict=True)
        ]
        assert there == rows.column("id").to_pylist()


def test_one_file_with_a_unique_name(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path))
    rows = batch(range(10))
    positions = writer.write(rows)
    assert positions.file.tolist() == [0] * 10
    assert positions.position.tolist() == list(range(10))
    (file,) = writer.close()
    assert re.fullmatch(
        rf"file:{re.escape(str(tmp_path))}/data/[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}"
        rf"-{int(NOON.timestamp())}\.parquet",
        file.location,
    )
    assert file.size == path_of(file.location).stat().st_size
    assert (file.rows, file.spec_id, file.partition) == (10, 0, ())
    assert read(file).to_pylist() == rows.to_pylist()


def test_files_roll_at_the_target_size(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path, target_file_bytes=50_000, compression="none"))
    written = [
        (rows, writer.write(rows))
        for rows in (batch(range(n, n + 3000)) for n in range(0, 60_000, 3000))
    ]
    files = writer.close()
    assert len(files) > 5
    assert all(30_000 < file.size < 80_000 for file in files[:-1])
    check_positions(files, written)


def test_a_batch_larger_than_a_file_is_spread_over_several(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path, target_file_bytes=20_000, compression="none"))
    rows = batch(range(30_000))
    positions = writer.write(rows)
    files = writer.close()
    assert len(files) > 5
    check_positions(files, [(rows, positions)])


def test_row_groups_keep_to_their_rows(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path, row_group_rows=1000))
    for start in range(0, 5000, 700):
        writer.write(batch(range(start, start + 700)))
    (file,) = writer.close()
    footer = pq.read_metadata(path_of(file.location))
    sizes = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
    assert sizes[:-1] == [1000] * (len(sizes) - 1)
    assert len(json.loads(file.descriptor)["split-offsets"]) == len(sizes)


def test_each_partition_has_its_own_file_and_path(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path, (1, "truncate[10]"), (4, "identity")))
    rows = batch([1, 2, 11, 3, 5])
    positions = writer.write(rows)
    files = writer.close()
    check_positions(files, [(rows, positions)])
    folders = {file.partition: path_of(file.location).parent for file in files}
    data = tmp_path / "data"
    assert folders == {
        (0, 1): data / "p0=0" / "p1=1",
        (0, 2): data / "p0=0" / "p1=2",
        (10, 2): data / "p0=10" / "p1=2",
        (0, 0): data / "p0=0" / "p1=0",
        (0, None): data / "p0=0" / "p1=null",
    }
    described = {file.partition: json.loads(file.descriptor) for file in files}
    assert described[0, None]["partition"] == {"1000": 0}
    assert described[0, 2]["partition"] == {"1000": 0, "1001": 2}
    assert {file.spec_id for file in files} == {7}


def test_few_files_are_open_at_a_time_and_the_oldest_go_first(tmp_path: Path) -> None:
    # One byte is less than any row takes: everything is encoded, and thus opened, at once.
    to = target(tmp_path, (1, "bucket[10]"), row_group_bytes=1)
    writer = writer_to(to, open_files=3)
    written = []
    most = 0
    for start in range(0, 500, 100):
        rows = batch(range(start, start + 100))
        written.append((rows, writer.write(rows)))
        most = max(most, sum(file.is_open for _, file in writer._current.values()))
    files = writer.close()
    assert most == 3
    assert len(files) > 10
    assert [file.location for file in files] == list(writer.locations)
    check_positions(files, written)


def test_buffers_of_all_partitions_together_stay_within_one_row_group(tmp_path: Path) -> None:
    to = target(tmp_path, (1, "bucket[10]"), row_group_bytes=100_000)
    writer = writer_to(to, open_files=10)
    for start in range(0, 50_000, 500):
        writer.write(batch(range(start, start + 500)))
        buffered = sum(file.buffered_bytes for _, file in writer._current.values())
        assert buffered <= 100_000
    assert len(writer.close()) == 10


parts = st.lists(
    st.sampled_from([(1, "bucket[3]"), (1, "truncate[5]"), (2, "truncate[6]"), (4, "identity")]),
    max_size=3,
    unique=True,
)


@examples(40)
@given(
    parts,
    st.lists(st.lists(st.integers(0, 10**6), max_size=40), min_size=1, max_size=5),
    st.sampled_from([300, 3000, 10**6]),
    st.fixed_dictionaries(
        {"open_files": st.integers(1, 4), "side_by_side": st.sampled_from([0, 1, 4, 1000])}
    ),
)
def test_positions_are_true_for_any_rows_partitions_and_sizes(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, str]],
    groups: list[list[int]],
    size: int,
    limits: dict[str, int],
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    to = target(folder, *parts, target_file_bytes=size, row_group_bytes=2000)
    writer = writer_to(to, **limits)
    written = [(rows, writer.write(rows)) for rows in map(batch, groups)]
    files = writer.close()
    check_positions(files, written)
    for file in files:
        assert json.loads(file.descriptor)["record-count"] == file.rows


@pytest.mark.fault("N31")
@pytest.mark.parametrize("partitions", [1_100, pytest.param(6_000, marks=pytest.mark.deep)])
def test_each_of_many_partitions_gets_one_file(tmp_path: Path, partitions: int) -> None:
    writer = writer_to(target(tmp_path, (1, "truncate[2]")))
    # As a merge does it: every batch has rows of every partition.
    even, odd = (writer.write(batch(range(first, 2 * partitions, 2))) for first in (0, 1))
    files = writer.close()
    assert len(files) == len({file.partition for file in files}) == partitions
    assert {file.rows for file in files} == {2}
    assert (even.file.tolist(), odd.file.tolist()) == (list(range(partitions)),) * 2
    assert (set(even.position), set(odd.position)) == ({0}, {1})
    for number in range(0, partitions, 500):
        assert read(files[number]).column("id").to_pylist() == [2 * number, 2 * number + 1]


@pytest.mark.fault("N31")
def test_nested_values_are_spilled_unchanged(tmp_path: Path) -> None:
    nested = Struct((Field(3, "l", list_of(4, map_of(5, P.STRING, 6, P.INT))),))
    schema = Schema(0, (Field(1, "id", P.LONG), Field(2, "s", nested)))
    spec = PartitionSpec(0, (PartitionField(1, 1000, "id", parse_transform("identity")),))
    location = f"file:{tmp_path}"
    to = plan_write_target(
        table="t", location=location, schema=schema, spec=spec, properties={}, io_properties={}
    )
    values: list[Any] = [None, {"l": None}, {"l": []}, {"l": [None, [], [("a", None)]]}, None]
    writer = writer_to(to, side_by_side=1)
    for _ in range(2):
        writer.write(batch_of(schema, [list(range(5)), values]))
    files = writer.close()
    assert {file.partition[0]: read(file).column("s").to_pylist() for file in files} == {
        number: [value, value] for number, value in enumerate(values)
    }


@pytest.mark.fault("O2")
def test_a_full_local_disk_is_reported_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "not there"))
    writer = writer_to(target(tmp_path, (1, "identity")), side_by_side=1)
    with pytest.raises(StorageError, match=r"spark\.local\.dir"):
        writer.write(batch(range(3)))
    assert writer.abandon() == ()


def test_abandon_frees_the_local_disk(tmp_path: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    writer = writer_to(target(tmp_path, (1, "identity")), side_by_side=1)
    writer.write(batch(range(3)))
    assert opened() == before + 1
    writer.abandon()
    assert opened() == before


def test_abandon_after_close_or_twice_is_no_error(tmp_path: Path) -> None:
    for closes in (True, False):
        writer = writer_to(target(tmp_path, (1, "identity")), side_by_side=1)
        writer.write(batch(range(3)))
        files = writer.close() if closes else ()
        assert writer.abandon() == writer.abandon() == tuple(each.location for each in files)
    spill = PartitionSpill(batch([]).schema, table="t")
    spill.discard()
    spill.discard()


def test_abandon_on_a_full_disk_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - closed by who gives up
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
    writer = writer_to(target(tmp_path, (1, "identity")), side_by_side=1)
    writer.write(batch(range(3)))
    assert writer.abandon() == ()


def test_a_batch_that_does_not_fit_leaves_the_writer_as_it_was(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path))
    writer.write(batch(range(3)))
    bad = batch(range(3)).set_column(0, "id", pa.array([1, None, 3]))
    with pytest.raises(UnrepresentableValueError, match="'id': 1 values are null"):
        writer.write(bad)
    writer.write(batch(range(3, 5)))
    (file,) = writer.close()
    assert read(file).column("id").to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_partition_without_a_spelling_is_refused(tmp_path: Path, value: float) -> None:
    schema = Schema(0, (Field(1, "f", P.DOUBLE),))
    spec = PartitionSpec(0, (PartitionField(1, 1000, "f", parse_transform("identity")),))
    to = plan_write_target(
        table="t", location=str(tmp_path), schema=schema, spec=spec, properties={}, io_properties={}
    )
    rows = pa.RecordBatch.from_pydict({"f": [1.0, value, None, 0.0, -0.0]})
    with pytest.raises(UnrepresentableValueError, match="'f': 1 values are NaN or infinite"):
        writer_to(to).write(rows)
    writer = writer_to(to)
    writer.write(rows.filter(pa.array([True, False, True, True, True])))
    assert Counter(str(file.partition[0]) for file in writer.close()) == Counter(
        ["1.0", "None", "0.0", "-0.0"]
    )


def test_abandon_deletes_nothing_and_returns_what_was_begun(tmp_path: Path) -> None:
    writer = writer_to(target(tmp_path, (1, "bucket[2]"), row_group_bytes=1))
    writer.write(batch(range(100)))
    begun = writer.abandon()
    assert len(begun) == 2
    assert all(path_of(location).exists() for location in begun)


def test_a_disk_that_fails_is_a_storage_error_that_names_the_file(tmp_path: Path) -> None:
    to = target(tmp_path)
    (tmp_path / "data").touch()
    writer = writer_to(to)
    writer.write(batch(range(10)))
    with pytest.raises(StorageError) as failure:
        writer.close()
    assert writer.locations[0] in str(failure.value)


def test_bloom_filters_are_written_where_the_table_configures_them(tmp_path: Path) -> None:
    filters = (BloomFilter("id", 0.01, 100), BloomFilter("s.x", 0.01, 100))
    writer = writer_to(target(tmp_path, bloom_filters=filters))
    writer.write(batch(range(100)))
    (file,) = writer.close()
    group = pq.read_metadata(path_of(file.location)).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert [each.bloom_filter_offset is not None for each in columns] == [True, False, True]


def test_strange_names_and_required_members_of_null_structs_are_written(tmp_path: Path) -> None:
    inner = Struct(
        (
            Field(3, "a b", P.UUID, required=True),
            Field(4, "l", list_of(5, P.UUID, required=True), required=True),
            Field(6, "n", Struct((Field(7, "x", P.STRING, required=True),)), required=True),
            Field(8, "m", map_of(9, P.STRING, 10, P.UUID), required=True),
        )
    )
    schema = Schema(0, (Field(1, "id", P.LONG), Field(2, "s", inner)))
    to = plan_write_target(
        table="t", location=str(tmp_path), schema=schema, properties={}, io_properties={}
    )
    one = uuid_of(1)
    present = {"a b": one, "l": [one], "n": {"x": "y"}, "m": [("k", one)]}
    rows = batch_of(schema, [[1, 2, 3], [None, present, None]])
    writer = writer_to(to)
    writer.write(rows)
    (file,) = writer.close()
    found = read(file).column("s").to_pylist()
    assert found[0] is None
    assert found[2] is None
    assert str(found[1]["a_x20b"]) == one
    assert found[1]["n"] == {"x": "y"}
    nulls = json.loads(file.descriptor)["null-value-counts"]
    assert dict(zip(nulls["keys"], nulls["values"], strict=True)) == {1: 0, 3: 2, 7: 2}


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "lz4", "none"])
def test_the_codec_is_the_tables(tmp_path: Path, codec: str) -> None:
    writer = writer_to(target(tmp_path, compression=codec))
    writer.write(batch(range(100)))
    (file,) = writer.close()
    column = pq.read_metadata(path_of(file.location)).row_group(0).column(0)
    assert column.compression.lower().replace("uncompressed", "none") == codec


# Incompressible, so that files reach their size: 300 MB through files of 128 MB.
HEAVY = """
import re, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.iceberg.write.write_target import plan_write_target
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.hooks import SystemClock, SystemRandomness
schema = Schema(0, (Field(1, "id", Primitive.LONG), Field(2, "data", Primitive.BINARY)))
parts = [PartitionField(1, 1000, "b", parse_transform("bucket[16]"))] * int(sys.argv[2])
to = plan_write_target(
    table="t", location=sys.argv[1], schema=schema, spec=PartitionSpec(0, tuple(parts)),
    properties={"write.parquet.compression-codec": "none"}, io_properties={},
)
writer = TaskWriter(to, clock=SystemClock(), randomness=SystemRandomness())
dice = np.random.default_rng(1)
for start in range(0, 300_000, 10_000):
    data = pa.Array.from_buffers(
        pa.binary(1000), 10_000, [None, pa.py_buffer(dice.bytes(10_000_000))]
    ).cast(pa.binary())
    ids = pa.array(np.arange(start, start + 10_000))
    writer.write(pa.RecordBatch.from_arrays([ids, data], names=["id", "data"]))
files = writer.close()
# Not getrusage: its peak is inherited from the parent process, here a test run of any size.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(len(files), int(peak[1]) * 1024)
"""


@pytest.mark.parametrize(
    ("partitioned", "expected"), [pytest.param(0, 3, marks=pytest.mark.deep), (1, 16)]
)
def test_a_task_stays_below_half_a_gigabyte(
    tmp_path: Path, partitioned: int, expected: int
) -> None:
    command = [sys.executable, "-c", HEAVY, str(tmp_path), str(partitioned)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    files, resident = map(int, finished.stdout.split())
    assert files == expected
    assert resident < 512 * 2**20


def test_a_task_does_not_import_spark_or_the_configuration() -> None:
    program = (
        "import sys, frazil.clients.iceberg.write.task_writer;"
        "print([name for name in ('pyspark','pydantic','structlog','py4j','pandas','pyiceberg')"
        " if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"
