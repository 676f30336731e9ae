from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from decimal import Decimal as D  # noqa: N817 - the schema's has the name
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyspark.sql.functions import struct as struct_of

from frazil.clients.iceberg.write.partition_text import file_location, partition_path
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import (
    Decimal,
    Field,
    Fixed,
    List,
    Map,
    Primitive,
    Scalar,
    Schema,
    Struct,
    list_of,
)
from tests.spark.lake.iceberg_bridge import Bridge, metrics_of
from tests.unit.iceberg_writer.schemas import (
    FIRST_DAY,
    IN_SPARK,
    LAST_DAY,
    MICROS_A_DAY,
    batch_of,
    batches,
    schemas,
    uuid_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.clients.iceberg.write.write_target import WriteTarget
    from frazil.demo.services import ObjectStore, RestCatalog
    from tests.spark.lake.iceberg_bridge import IcebergTable

pytestmark = pytest.mark.spark

# A table and an INSERT cost half a second; the deep suite has the time for more.
EXAMPLES = 6
numbers = count()

P = Primitive
ID = Field(1, "id", P.LONG, required=True)
FOUND = pa.schema(
    [("id", pa.int64()), ("file", pa.string()), ("pos", pa.int64()), ("descriptor", pa.string())]
)


@pytest.fixture(scope="module")
def local(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    """Tables in a folder."""
    prefix = "spark.sql.catalog.local"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{prefix}.type", "hadoop")
    spark.conf.set(f"{prefix}.warehouse", f"file:{tmp_path_factory.mktemp('warehouse')}")
    return Bridge(spark, "local", {})


@pytest.fixture(scope="module")
def remote(spark: SparkSession, object_store: ObjectStore) -> Bridge:
    """Tables in an object store, behind a REST catalog."""
    return Bridge(spark, "lake", object_store.io_properties())


def fresh(prefix: str) -> str:
    return f"{prefix}_{next(numbers)}"


def write(target: WriteTarget, *batches: pa.RecordBatch) -> tuple[WrittenFile, ...]:
    writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
    for batch in batches:
        writer.write(batch)
    return writer.close()


def insert(table: IcebergTable, batch: pa.RecordBatch) -> None:
    spark = table.bridge.spark
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    frame.coalesce(1).writeTo(table.name).append()


def unsigned_zero(bound: str, type_: Primitive) -> str:
    zero = struct.pack("<f" if type_ is Primitive.FLOAT else "<d", -0.0).hex().upper()
    return "0" * len(zero) if bound == zero else bound


def without_signs(metrics: dict[str, dict[int, Any]], schema: Schema) -> dict[str, dict[int, Any]]:
    """Footers widen zero to both signs, and count no NaN."""
    floats = {
        each.field.id: each.field.type
        for each in schema.leaves()
        if each.field.type in {Primitive.FLOAT, Primitive.DOUBLE}
    }
    bounds = {
        name: {
            key: unsigned_zero(value, floats[key]) if key in floats else value
            for key, value in metrics[name].items()
        }
        for name in ("lower-bounds", "upper-bounds")
    }
    return {**metrics, **bounds, "nan-value-counts": {}}


def check_against_footer(
    table: IcebergTable, file: WrittenFile, *, long_fields: frozenset[int] = frozenset()
) -> None:
    ours = json.loads(file.descriptor)
    footer = table.footer_metrics(file)
    sizes = metrics_of(ours, "column-sizes")
    assert sizes == metrics_of(footer, "column-sizes")
    assert ours["record-count"] == footer["record-count"]
    schema = table.schema
    expected = metrics_of(footer)
    for name in ("lower-bounds", "upper-bounds"):
        # Arrow writes no bound of more than 4 KiB into a footer; we have them all the same.
        missing = metrics_of(ours)[name].keys() - expected[name].keys()
        expected[name] |= {key: metrics_of(ours)[name][key] for key in missing & long_fields}
    assert without_signs(metrics_of(ours), schema) == without_signs(expected, schema)


def long_fields(schema: Schema, batch: pa.RecordBatch) -> frozenset[int]:
    """The fields that may hold values of more than 4 KiB."""
    return frozenset(
        each.field.id
        for each in schema.leaves()
        if each.field.type is Primitive.STRING and batch.column(each.path[0].name).nbytes > 4096
    )


def rows_of(table: IcebergTable, location: str) -> list[str]:
    """The rows of one file as Spark prints them, by id: NaN is then equal to itself."""
    frame = table.bridge.spark.table(table.name)
    text = struct_of(*frame.columns).cast("string").alias("text")
    rows = frame.where(frame["_file"] == location).orderBy("id").select(text).collect()
    return [row.text for row in rows]


def check_like_an_insert(local: Bridge, data: st.DataObject) -> None:
    """Write rows with Spark and with ours, and compare all there is to compare."""
    table = local.create(fresh("same"), data.draw(schemas(IN_SPARK)))
    schema = table.schema
    batch = data.draw(batches(schema))
    insert(table, batch)
    (theirs,) = table.files()
    (file,) = write(table.target(), batch)
    assert metrics_of(json.loads(file.descriptor)) == metrics_of(theirs)
    check_against_footer(table, file, long_fields=long_fields(schema, batch))
    table.append([file.descriptor])
    assert rows_of(table, file.location) == rows_of(table, theirs["file-path"])


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_metrics_and_rows_are_those_of_an_insert_by_spark(
    local: Bridge, data: st.DataObject
) -> None:
    check_like_an_insert(local, data)


@pytest.mark.deep
def test_metrics_and_rows_are_those_of_many_inserts_by_spark(local: Bridge) -> None:
    # A comparison takes about a second; shrinking a failure takes what it takes.
    budget = int(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) // 4

    @settings(max_examples=budget, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def compare(data: st.DataObject) -> None:
        check_like_an_insert(local, data)

    compare()


def test_many_row_groups_have_the_metrics_and_offsets_that_iceberg_reads(local: Bridge) -> None:
    kinds = [each for each in SAMPLES if each != P.UUID]
    fields = [Field(index, f"c{index}", type_) for index, type_ in enumerate(kinds, 2)]
    table = local.create(fresh("groups"), Schema(0, (ID, *fields)))
    batch = batch_of(table.schema, [list(range(9)), *(SAMPLES[type_] for type_ in kinds)])
    insert(table, batch)
    (file,) = write(replace(table.target(), row_group_rows=2), batch)
    ours = json.loads(file.descriptor)
    assert len(ours["split-offsets"]) == 5
    assert ours["split-offsets"] == table.split_offsets(file)
    assert metrics_of(ours) == metrics_of(table.files()[0])
    check_against_footer(table, file)


def test_null_structs_count_as_nulls_of_the_floats_inside(local: Bridge) -> None:
    inner = Struct((Field(3, "f", P.DOUBLE), Field(4, "i", P.INT, required=True)))
    table = local.create(fresh("nulls"), Schema(0, (ID, Field(2, "s", inner))))
    batch = batch_of(table.schema, [[0, 1], [None, {"f": 1.0, "i": 1}]])
    insert(table, batch)
    (file,) = write(table.target(), batch)
    assert metrics_of(json.loads(file.descriptor)) == metrics_of(table.files()[0])
    table.append([file.descriptor])
    found = local.spark.sql(f"select id from {table.name} where s.f is null")
    assert [row.id for row in found.collect()] == [0, 0]


def test_types_that_spark_does_not_know_are_read_by_pyiceberg(local: Bridge) -> None:
    types = {"t": P.TIME, "n": P.TIMESTAMP_NS, "z": P.TIMESTAMPTZ_NS}
    fields = [Field(index, name, type_) for index, (name, type_) in enumerate(types.items(), 2)]
    table = local.create(fresh("foreign"), Schema(0, (ID, *fields)), version=3)
    values = [1, None, -(10**18), 10**18 + 1]
    batch = batch_of(table.schema, [[0, 1, 2, 3], [0, None, 86_399_999_999, 1], values, values])
    (file,) = write(table.target(), batch)
    check_against_footer(table, file)
    table.append([file.descriptor])
    found = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    for name in types:
        assert (
            found.column(name).cast(pa.int64()).to_pylist()
            == batch.column(name).cast(pa.int64()).to_pylist()
        )


# Each transform on each type that Spark can write, none of them twice on one column.
TRANSFORMS: dict[Scalar, list[str]] = {
    P.BOOLEAN: ["identity"],
    P.INT: ["identity", "bucket[7]", "truncate[10]", "void"],
    P.LONG: ["identity", "bucket[7]", "truncate[1000]"],
    P.FLOAT: ["identity"],
    P.DOUBLE: ["identity"],
    P.DATE: ["identity", "year", "month", "day", "bucket[7]"],
    P.TIMESTAMP: ["identity", "year", "month", "day", "hour", "bucket[7]"],
    P.TIMESTAMPTZ: ["identity", "year", "month", "day", "hour", "bucket[7]"],
    P.STRING: ["identity", "bucket[7]", "truncate[3]"],
    P.UUID: ["identity", "bucket[7]"],
    P.BINARY: ["identity", "bucket[7]", "truncate[3]"],
    Fixed(5): ["identity", "bucket[7]"],
    Decimal(9, 2): ["identity", "bucket[7]", "truncate[50]"],
    Decimal(30, 4): ["identity", "bucket[7]", "truncate[50]"],
}


def partitioned() -> tuple[Schema, PartitionSpec]:
    """A column for every transform, and every transform in one spec."""
    columns, parts = [ID], []
    for source, transforms in TRANSFORMS.items():
        for text in transforms:
            field_id = len(columns) + 1
            columns.append(Field(field_id, f"c{field_id}", source))
            transform = parse_transform(text)
            parts.append(PartitionField(field_id, 998 + field_id, f"p {field_id}", transform))
    return Schema(0, tuple(columns)), PartitionSpec(0, tuple(parts))


LEAST, MOST = FIRST_DAY * MICROS_A_DAY, LAST_DAY * MICROS_A_DAY
MOMENTS = [LEAST, MOST, 0, -1, 1, -MICROS_A_DAY, MICROS_A_DAY + 5000, 1_700_000_000_123_456, None]
TEXTS = ["", "a", "a b/c", "\U0001f9ca\U0010ffff\ud7ff", "ab", "~*+%=", "\x00", "Ä\u0800x", None]
BYTES = [b"", b"\x00", b"\xff\xff\xff\xff", b"abc", b"abcd", b"a", b"\x80", b"12345", None]
# Java before 19 prints some numbers with more digits than they need: these are not among them.
REALS = [0.0, -0.0, 1e7, -1e-5, 0.125, -99.5, 3.0, 1e30, None]
CENTS = [0, 1, -1, 4999, -5000, 12_345_678, -999_000, 50, None]
SAMPLES: dict[Scalar, list[Any]] = {
    P.BOOLEAN: [True, False, None] * 3,
    P.INT: [0, 1, -1, 9, -11, 2**31 - 1, -(2**31), 1234567, None],
    P.LONG: [0, 1, -1, 999, -1001, 2**63 - 1, -(2**63) + 10**4, 10**15, None],
    P.FLOAT: REALS,
    P.DOUBLE: REALS,
    P.DATE: [FIRST_DAY, LAST_DAY, 0, -1, 1, -365, 18_000, -719_000, None],
    P.TIMESTAMP: MOMENTS,
    P.TIMESTAMPTZ: MOMENTS,
    P.STRING: TEXTS,
    P.UUID: [*map(uuid_of, (0, 1, 2**127, 2**128 - 1, 7 * 2**90, 99, 2**64, 2**63)), None],
    P.BINARY: BYTES,
    Fixed(5): [None if each is None else each.ljust(5, b"\xfe") for each in BYTES],
    Decimal(9, 2): [None if each is None else D(each).scaleb(-2) for each in CENTS],
    Decimal(30, 4): [None if each is None else D(each * 10**17).scaleb(-4) for each in CENTS],
}


def partition_rows(schema: Schema) -> pa.RecordBatch:
    """The samples of each type, turned against each other so that rows differ in many ways."""
    columns = [
        SAMPLES[field.type][turn % 9 :] + SAMPLES[field.type][: turn % 9]
        for turn, field in enumerate(schema.fields[1:])
        if not isinstance(field.type, Struct | List | Map)
    ]
    return batch_of(schema, [list(range(9)), *columns])


def test_partition_values_and_paths_are_sparks(local: Bridge) -> None:
    schema, spec = partitioned()
    # Paths of so many fields are longer than a file system likes: hashed paths leave them out.
    short = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": "false",
        "write.spark.fanout.enabled": "true",
    }
    table = local.create(fresh("parts"), schema, spec, properties=short)
    batch = partition_rows(table.schema)
    insert(table, batch)
    written = write(table.target(), batch)
    table.append(file.descriptor for file in written)
    partitions = {file["file-path"]: file["partition"] for file in table.files()}
    frame = local.spark.table(table.name)
    text = struct_of(*frame.columns).cast("string").alias("text")
    rows = frame.select("id", "_file", text).collect()
    ours = {file.location for file in written}
    found = {row.id: partitions[row._file] for row in rows if row._file in ours}
    for row in rows:
        assert dict(zip(spec.fields, found[row.id], strict=True)) == dict(
            zip(spec.fields, partitions[row._file], strict=True)
        )
    assert all(len({row.text for row in rows if row.id == key}) == 1 for key in found)
    parser, specs = local.iceberg.ContentFileParser, table.java.specs()
    mapper, target = local.iceberg.util.JsonUtil.mapper(), table.target()
    for file in written:
        parsed = parser.fromJson(mapper.readTree(file.descriptor), specs)
        expected = specs.get(0).partitionToPath(parsed.partition())
        assert partition_path(target, file.partition) == expected


def test_paths_are_those_of_icebergs_location_providers(local: Bridge) -> None:
    spec = PartitionSpec(0, (PartitionField(1, 1000, "id", parse_transform("identity")),))
    for name, changes in {
        "plain": {},
        "hashed": {"write.object-storage.enabled": "true"},
        "unfolded": {
            "write.object-storage.enabled": "true",
            "write.object-storage.partitioned-paths": "false",
        },
        "elsewhere": {"write.data.path": "file:/elsewhere/data/"},
        "hashed_elsewhere": {
            "write.object-storage.enabled": "true",
            "write.data.path": "file:/elsewhere/data",
        },
    }.items():
        schema = Schema(0, (Field(1, "id", P.INT),))
        table = local.create(fresh(name), schema, spec, properties=changes)
        data = local.iceberg.data.GenericRecord.create(table.java.schema())
        data.setField("id", 5)
        key = local.iceberg.PartitionKey(table.java.spec(), table.java.schema())
        key.partition(data)
        provider = table.java.locationProvider()
        expected = provider.newDataLocation(table.java.spec(), key, "name.parquet")
        assert file_location(table.target(), (5,), "name.parquet") == expected, name


@pytest.mark.parametrize(
    "properties", [{}, {"write.metadata.metrics.max-inferred-column-defaults": "3"}]
)
def test_modes_are_those_icebergs_own_configuration_gives(
    local: Bridge, properties: dict[str, str]
) -> None:
    inner = Struct((Field(3, "a", P.INT), Field(4, "b", Struct((Field(5, "c", P.INT),)))))
    columns = (ID, Field(2, "s", inner), Field(6, "l", list_of(7, P.INT)), Field(8, "z", P.STRING))
    properties = {**properties, "write.metadata.metrics.column.s.b.c": "counts"}
    table = local.create(fresh("modes"), Schema(0, columns), properties=properties)
    config = local.iceberg.MetricsConfig.forTable(table.java)
    modes = {None: "none", 0: "counts", 16: "truncate(16)"}
    ours = dict(table.target().bound_lengths)
    for leaf in table.schema.leaves():
        expected = config.columnMode(leaf.name).toString()
        assert modes[ours.get(leaf.field.id)] == expected, leaf.name


def test_a_task_writes_to_the_store_and_knows_the_position_of_every_row(
    remote: Bridge, object_store: ObjectStore, s3_catalog: RestCatalog
) -> None:
    columns = (ID, Field(2, "name", P.STRING), Field(3, "at", P.TIMESTAMPTZ))
    spec = PartitionSpec(0, (PartitionField(1, 1000, "b", parse_transform("bucket[3]")),))
    table = remote.create(fresh("tasks"), Schema(0, columns), spec, version=3)
    target = table.target(properties={"write.target-file-size-bytes": "20000"})

    def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
        seen = []
        for batch in batches:
            placement = writer.write(batch)
            seen.append((batch.column("id").to_pylist(), placement))
        files = writer.close()
        for ids, placement in seen:
            names = [files[ordinal].location for ordinal in placement.file]
            positions = placement.position.tolist()
            nothing = [None] * len(ids)
            yield pa.RecordBatch.from_pydict(
                {"id": ids, "file": names, "pos": positions, "descriptor": nothing},
                schema=FOUND,
            )
        for file in files:
            yield pa.RecordBatch.from_pydict(
                {"id": [None], "file": [None], "pos": [None], "descriptor": [file.descriptor]},
                schema=FOUND,
            )

    spark = remote.spark
    rows = spark.range(0, 5000, numPartitions=2).selectExpr(
        "id", "sha2(cast(id as string), 256) as name", "timestamp_micros(id) as at"
    )
    results = rows.mapInArrow(work, "id long, file string, pos long, descriptor string").collect()
    table.append(row.descriptor for row in results if row.descriptor is not None)
    assert len(table.files()) > 6
    positions = {row.id: (row.file, row.pos) for row in results if row.descriptor is None}
    frame = spark.table(table.name)
    found = frame.select("id", "_file", "_pos").collect()
    assert positions == {row.id: (row._file, row._pos) for row in found}
    assert frame.select(*rows.columns).exceptAll(rows).count() == 0
    catalog = load_catalog(
        "reader", type="rest", uri=s3_catalog.uri, **object_store.io_properties()
    )
    try:
        read = catalog.load_table(table.name.removeprefix("lake.")).scan().to_arrow()
    finally:
        catalog.close()
    assert sorted(read.column("id").to_pylist()) == list(range(5000))


@pytest.mark.parametrize("version", [2, 3])
def test_files_in_a_folder_are_read_by_spark_and_pyiceberg(local: Bridge, version: int) -> None:
    spec = PartitionSpec(0, (PartitionField(2, 1000, "day", parse_transform("day")),))
    columns = (ID, Field(2, "at", P.TIMESTAMP), Field(3, "tags", list_of(4, P.STRING)))
    table = local.create(fresh("both"), Schema(0, columns), spec, version=version)
    days = [None, 0, 86_400_000_000, -1]
    batch = batch_of(table.schema, [[0, 1, 2, 3], days, [["a"], None, [], ["b", None]]])
    files = write(table.target(), batch)
    table.append(file.descriptor for file in files)
    expected = batch.to_pylist()
    found = local.spark.table(table.name).orderBy("id").toArrow().to_pylist()
    assert found == expected
    read = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    assert read.sort_by("id").to_pylist() == expected
