"""Our bytes before other readers, and other writers' bytes before ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile as ForeignPuffin
from pyspark.errors import UnsupportedOperationException

from frazil.codec.deletes.deletion_vector import (
    DeletionVector,
    FilePartition,
    decode_deletion_vector,
    delete_file_descriptors,
    deletion_vector_puffin,
    encode_deletion_vector,
)
from frazil.codec.deletes.position_deletes import (
    decode_position_deletes,
    encode_position_deletes,
    position_delete_descriptor,
)
from frazil.codec.puffin import Blob, BlobCompression, read_blob, read_footer, write_puffin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, RestCatalog

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ROWS_OF_A_FILE = 1000


@dataclass(frozen=True)
class Java:
    """Iceberg itself, through the session's gateway."""

    spark: SparkSession
    iceberg: Any
    wrap: Any

    def table(self, name: str) -> Any:
        return self.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, name)

    def delete_file(self, descriptor: str, table: Any) -> Any:
        tree = self.iceberg.util.JsonUtil.mapper().readTree(descriptor)
        return self.iceberg.ContentFileParser.fromJson(tree, table.specs())

    def index(self, vector: DeletionVector, table: Any) -> Any:
        """Iceberg's own set of positions, filled from our blob."""
        blob = encode_deletion_vector(vector)
        # An empty one is not made for files, but Iceberg must open it all the same.
        facts = {
            "content-offset": 4,
            "content-size-in-bytes": len(blob),
            "referenced-data-file": "f",
        }
        file = describe(table, len(blob), vector.cardinality, facts, self)
        return self.iceberg.deletes.PositionDeleteIndex.deserialize(blob, file)


def describe(table: Any, size: int, rows: int, facts: dict[str, object], java: Java) -> Any:
    builder = java.iceberg.FileMetadata.deleteFileBuilder(table.specs().get(0))
    builder = builder.ofPositionDeletes().withPath("x.puffin").withFormat("PUFFIN")
    return (
        builder.withPartitionPath("part=0")
        .withFileSizeInBytes(size)
        .withRecordCount(rows)
        .withReferencedDataFile(facts["referenced-data-file"])
        .withContentOffset(facts["content-offset"])
        .withContentSizeInBytes(facts["content-size-in-bytes"])
        .build()
    )


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Java:
    jvm: Any = spark.sparkContext._jvm
    return Java(spark, jvm.org.apache.iceberg, jvm.java.nio.ByteBuffer.wrap)


@pytest.fixture
def foreign_reader(s3_catalog: RestCatalog, object_store: ObjectStore) -> Iterator[Any]:
    catalog = load_catalog(
        "reader", type="rest", uri=s3_catalog.uri, **object_store.io_properties()
    )
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[int, str]:
    """A partitioned table of three files for either format version."""
    spark.sql("create namespace if not exists lake.codec")
    names = {}
    for version in (2, 3):
        names[version] = f"lake.codec.v{version}"
        spark.sql(
            f"create table {names[version]} (id bigint, part int) using iceberg "
            "partitioned by (part) tblproperties ("
            f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', "
            "'write.delete.granularity' = 'file')"
        )
        spark.range(0, 3 * ROWS_OF_A_FILE, numPartitions=1).selectExpr(
            "id", f"cast(id div {ROWS_OF_A_FILE} as int) as part"
        ).writeTo(names[version]).append()
    return names


def put(table: Any, name: str, data: bytes) -> str:
    location = f"{table.location()}/data/{name}"
    stream = table.io().newOutputFile(location).createOrOverwrite()
    stream.write(data)
    stream.close()
    return location


def fetched(table: Any, location: str) -> bytes:
    stream = table.io().newInputFile(location).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def data_files(spark: SparkSession, name: str) -> dict[int, str]:
    rows = spark.table(name).select("part", "_file").distinct().collect()
    return {row.part: row._file for row in rows}


def rows_where(spark: SparkSession, name: str, condition: str) -> dict[str, DeletionVector]:
    rows = spark.table(name).where(condition).select("_file", "_pos").toArrow()
    files = rows.column("_file").to_numpy()
    positions = rows.column("_pos").to_numpy()
    return {
        str(file): DeletionVector.from_positions(positions[files == file])
        for file in np.unique(files)
    }


def identities(spark: SparkSession, name: str) -> list[int]:
    return sorted(int(row.id) for row in spark.table(name).select("id").collect())


def commit(
    table: Any, *, added: Iterable[Any], removed: Iterable[Any] = (), files: Iterable[str]
) -> None:
    delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId())
    for file in added:
        delta = delta.addDeletes(file)
    for file in removed:
        delta = delta.removeDeletes(file)
    delta.validateDataFilesExist(list(files)).validateDeletedFiles().commit()


def awkward_vectors() -> dict[str, DeletionVector]:
    """Sets at the borders where a container changes its kind."""
    chance = np.random.default_rng(4711)
    spread = {
        f"{count} of {within}": chance.integers(0, within, count)
        for count in (1, 2, 3, 100, 4096, 4097, 50_000)
        for within in (200, 65_536, 1_000_000, 2**32)
    }
    runs = {
        f"runs of {length}": np.concatenate(
            [np.arange(start, start + length) for start in range(0, 300_000, length + gap)]
        )
        for length in (1, 2, 3, 7, 500)
        for gap in (1, 2, 500)
    }
    shapes = {
        "empty": np.array([], dtype=np.int64),
        "everything": np.arange(200_000),
        "two keys": np.array([1, 2**32 + 1]),
        "edges": np.array([0, 65_535, 65_536, 2**32 - 1]),
        # A run container of n runs and an array of m members can be equally long.
        **{f"tie {size}": np.arange(size) for size in range(1, 8)},
    }
    return {
        name: DeletionVector.from_positions(positions)
        for name, positions in {**spread, **runs, **shapes}.items()
    }


def test_a_puffin_file_of_ours_is_read_by_iceberg(java: Java, tables: dict[int, str]) -> None:
    table = java.table(tables[3])
    contents = [b"plain", b"zst" * 1000, b""]
    blobs = [
        Blob("frazil-å", contents[0], (1, 2), 7, 8, properties={"key": "wärts"}),
        Blob("frazil-b", contents[1], codec=BlobCompression.ZSTD),
        Blob("frazil-c", contents[2]),
    ]
    file = write_puffin(blobs, {"created-by": "frazil"})
    source = table.io().newInputFile(put(table, "ours.puffin", file.data))
    reader = (
        java.iceberg.puffin.Puffin.read(source)
        .withFileSize(len(file.data))
        .withFooterSize(file.footer_size)
        .build()
    )
    metadata = reader.fileMetadata()
    assert dict(metadata.properties()) == {"created-by": "frazil"}
    seen = list(metadata.blobs())
    assert [(each.type(), each.offset(), each.length()) for each in seen] == [
        (blob.type, blob.offset, blob.length) for blob in file.blobs
    ]
    assert list(seen[0].inputFields()) == [1, 2]
    assert (seen[0].snapshotId(), seen[0].sequenceNumber()) == (7, 8)
    assert dict(seen[0].properties()) == {"key": "wärts"}
    read = []
    pairs = reader.readAll(metadata.blobs()).iterator()
    while pairs.hasNext():
        buffer = pairs.next().second()
        read.append(bytes(buffer.array())[buffer.arrayOffset() :][: buffer.remaining()])
    assert read == contents
    reader.close()


def test_a_puffin_file_of_icebergs_is_read_by_us(java: Java, tables: dict[int, str]) -> None:
    table = java.table(tables[3])
    puffin = java.iceberg.puffin
    location = f"{table.location()}/data/theirs.puffin"
    writer = puffin.Puffin.write(table.io().newOutputFile(location)).createdBy("them").build()
    content = b"hello" * 50
    for codec in (None, puffin.PuffinCompressionCodec.ZSTD):
        writer.write(puffin.Blob("some", [1, 2], 7, 8, java.wrap(content), codec, {"k": "v"}))
    writer.close()
    data = fetched(table, location)
    footer = read_footer(data, file_size=len(data))
    assert footer.size == writer.footerSize()
    assert footer.properties == {"created-by": "them"}
    assert [blob.codec for blob in footer.blobs] == [BlobCompression.NONE, BlobCompression.ZSTD]
    for blob in footer.blobs:
        assert (blob.fields, blob.snapshot_id, blob.sequence_number) == ((1, 2), 7, 8)
        assert read_blob(blob, data[blob.offset : blob.end]) == content
    assert data == (GOLDEN / "blobs.puffin").read_bytes()


def test_iceberg_has_no_lz4_so_our_footers_are_never_compressed(
    java: Java, tables: dict[int, str]
) -> None:
    table = java.table(tables[3])
    target = table.io().newOutputFile(f"{table.location()}/data/never.puffin")
    with pytest.raises(UnsupportedOperationException, match="Unsupported codec: LZ4"):
        java.iceberg.puffin.Puffin.write(target).compressFooter().build().finish()


def test_vectors_are_byte_for_byte_what_iceberg_writes(java: Java, tables: dict[int, str]) -> None:
    table = java.table(tables[3])
    different = []
    for name, vector in awkward_vectors().items():
        index = java.index(vector, table)
        assert index.cardinality() == vector.cardinality, name
        theirs = bytes(index.serialize().array())
        if theirs != encode_deletion_vector(vector):
            different.append(name)
        assert decode_deletion_vector(theirs) == vector, name
    assert different == []


def test_the_golden_vectors_are_what_iceberg_writes(java: Java, tables: dict[int, str]) -> None:
    table = java.table(tables[3])
    written = {
        "empty": [],
        "runs": [(0, 1000), (70_000, 200_000)],
        "mixed": [(5, 6), (9, 10), (65_536, 131_000), (2**33 + 7, 2**33 + 8)],
    }
    for name, ranges in written.items():
        index = java.index(DeletionVector(), table)
        for start, end in ranges:
            index.delete(start, end)
        theirs = bytes(index.serialize().array())
        assert theirs == (GOLDEN / f"{name}.deletion-vector").read_bytes(), name


def test_deletes_that_spark_wrote_are_decoded_to_the_deleted_rows(
    java: Java, spark: SparkSession, tables: dict[int, str]
) -> None:
    for version, name in tables.items():
        condition = "id % 7 = 0 or id between 1100 and 1300"
        expected = rows_where(spark, name, condition)
        assert sum(vector.cardinality for vector in expected.values()) > 500
        before = java.table(name).currentSnapshot().snapshotId()
        spark.sql(f"delete from {name} where {condition}")
        table = java.table(name)
        decoded: dict[str, DeletionVector] = {}
        for row in spark.table(f"{name}.delete_files").collect():
            data = fetched(table, row.file_path)
            if version == 2:
                decoded |= decode_position_deletes(data, record_count=row.record_count)
                continue
            blob = data[row.content_offset : row.content_offset + row.content_size_in_bytes]
            vector = decode_deletion_vector(blob, cardinality=row.record_count)
            decoded[row.referenced_data_file] = vector
            assert encode_deletion_vector(vector) == blob
            assert blob in [
                data[each.offset : each.end]
                for each in read_footer(data, file_size=len(data)).blobs
            ]
        assert decoded == expected
        table.manageSnapshots().rollbackTo(before).commit()


def test_vectors_of_ours_delete_rows_for_spark_and_pyiceberg(
    java: Java, spark: SparkSession, tables: dict[int, str], foreign_reader: Any
) -> None:
    name = tables[3]
    table = java.table(name)
    paths = data_files(spark, name)
    placements = {path: FilePartition(0, {1000: part}) for part, path in paths.items()}
    first = {
        paths[0]: DeletionVector.from_positions([0, 1, 2, 999]),
        paths[2]: DeletionVector.from_positions(np.arange(0, 1000, 3)),
    }
    file = deletion_vector_puffin(first)
    location = put(table, "first-deletes.puffin", file.data)
    descriptors = delete_file_descriptors(location, file, placements)
    old = [java.delete_file(descriptor, table) for descriptor in descriptors]
    commit(table, added=old, files=first)
    gone = {0, 1, 2, 999} | set(range(2000, 3000, 3))
    assert identities(spark, name) == sorted(set(range(3000)) - gone)

    # The next one of a file holds the old one's rows and replaces it.
    second = {paths[0]: first[paths[0]].union(DeletionVector.from_positions([500]))}
    file = deletion_vector_puffin(second)
    location = put(table, "second-deletes.puffin", file.data)
    table.refresh()
    new = [
        java.delete_file(each, table)
        for each in delete_file_descriptors(location, file, placements)
    ]
    commit(table, added=new, removed=old[:1], files=second)
    expected = sorted(set(range(3000)) - gone - {500})
    assert identities(spark, name) == expected
    seen = foreign_reader.load_table("codec.v3").scan().to_arrow()
    assert sorted(seen.column("id").to_pylist()) == expected


def test_position_deletes_of_ours_delete_rows_for_spark_and_pyiceberg(
    java: Java, spark: SparkSession, tables: dict[int, str], foreign_reader: Any
) -> None:
    name = tables[2]
    table = java.table(name)
    paths = data_files(spark, name)
    added = []
    for part, positions in {0: np.array([0, 7, 999]), 1: np.arange(1000)}.items():
        vector = DeletionVector.from_positions(positions)
        data = encode_position_deletes(paths[part], vector)
        descriptor = position_delete_descriptor(
            put(table, f"{part}-deletes.parquet", data),
            data,
            data_file=paths[part],
            vector=vector,
            placement=FilePartition(0, {1000: part}),
        )
        file = java.delete_file(descriptor, table)
        assert java.iceberg.util.ContentFileUtil.isFileScoped(file)
        added.append(file)
    commit(table, added=added, files=[paths[0], paths[1]])
    expected = sorted(set(range(3000)) - {0, 7, 999} - set(range(1000, 2000)))
    assert identities(spark, name) == expected
    seen = foreign_reader.load_table("codec.v2").scan().to_arrow()
    assert sorted(seen.column("id").to_pylist()) == expected


def test_a_descriptor_loses_nothing_on_its_way_through_iceberg(
    java: Java, tables: dict[int, str]
) -> None:
    table = java.table(tables[2])
    vector = DeletionVector.from_positions([3, 2**40])
    # Longer than the sixteen characters to which Iceberg cuts the bounds of other texts.
    path = f"{table.location()}/data/ünïcode and long.parquet"
    data = encode_position_deletes(path, vector)
    descriptor = position_delete_descriptor(
        "s3://b/d.parquet",
        data,
        data_file=path,
        vector=vector,
        placement=FilePartition(0, {1000: 5}),
    )
    file = java.delete_file(descriptor, table)
    fields = {"path": 2147483546, "pos": 2147483545}
    for bounds, position in ((file.lowerBounds(), 3), (file.upperBounds(), 2**40)):
        assert bytes(bounds.get(fields["path"]).array()).decode() == path
        assert int.from_bytes(bytes(bounds.get(fields["pos"]).array()), "little") == position
    assert str(file.content()) == "POSITION_DELETES"
    assert str(file.referencedDataFile()) == path
    assert (file.recordCount(), file.fileSizeInBytes()) == (2, len(data))
    assert list(file.splitOffsets()) == [4]
    assert file.columnSizes().get(fields["pos"]) > 0
    assert file.valueCounts() is None


def test_pyiceberg_reads_a_puffin_file_of_ours() -> None:
    vectors = {
        "s3://bucket/a.parquet": DeletionVector.from_positions([1, 5, 70_000]),
        "s3://bucket/b.parquet": DeletionVector.from_positions(np.arange(100_000)),
        # Our vectors leave keys out that have no rows; the reader fills them in.
        "s3://bucket/c.parquet": DeletionVector.from_positions([3, 2**34 + 3]),
    }
    foreign = deletion_vectors_from_puffin_file(ForeignPuffin(deletion_vector_puffin(vectors).data))
    assert {
        each.referenced_data_file: each.to_vector().to_numpy().tolist() for each in foreign
    } == {path: vector.positions().tolist() for path, vector in vectors.items()}
