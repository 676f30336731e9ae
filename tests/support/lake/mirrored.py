"""A changelog with its mirror in a real catalog, and the expected rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.iceberg.gateway import FileIntake
from frazil.clients.iceberg.lake import Lake
from frazil.clients.iceberg.write.arrow_schema import arrow_schema
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.session import attach_session
from frazil.codec.key_index.entries import Entries
from frazil.codec.key_index.head import read_head
from frazil.codec.key_index.run import decode_run
from frazil.config import load_config
from frazil.hooks import SystemClock, SystemRandomness
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import MergeSettings
from frazil.mirror.deleted_rows import load_deleted
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.mirror.index.run_merging import fetch_bucket, merge_entries
from frazil.mirror.table import MirrorTable
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName
from tests.support.codec.key_hash import hash_key
from tests.support.process.jvms import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.merge.report import MergeReport
    from frazil.model.key_index import IndexedFile, IndexManifest

DOCUMENT = """
pipeline: mirrors
catalog: {{name: {name}, {catalog}}}
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
spark:
  master: '{master}'
  conf:
    spark.driver.memory: 512m
    spark.driver.extraJavaOptions: '{java}'
    spark.executor.extraJavaOptions: '{java}'
"""
# Arguments of Iceberg's procedures; a time in the future, so that no snapshot is too young.
EVERYTHING = "options => map('rewrite-all', 'true')"
ALL_BUT_THE_LAST = "older_than => timestamp '2099-01-01 00:00:00', retain_last => 1"
# Never waits for long, and gives up while a test is still being watched.
QUICKLY = RetryPolicy(attempts=3, base_seconds=0.01, longest_seconds=0.05)

# A name, a name and a city, or nothing for a delete.
NewRow = str | tuple[str, str | None] | None
Row = tuple[str, str | None]


def files_catalog(folder: Path) -> str:
    """A catalog in SQLite over files, as a document names it."""
    return f"kind: sql, uri: 'sqlite:///{folder}/c.db', warehouse: 'file://{folder}/wh'"


def write_document(folder: Path, catalog: str, master: str = "local[1]") -> Path:
    """A configuration whose catalog has a name of its own, for all share one session here."""
    document = folder / "frazil.yaml"
    name = f"m_{uuid4().hex[:8]}"
    text = DOCUMENT.format(name=name, catalog=catalog, master=master, java=QUICK_JAVA)
    document.write_text(text)
    return document


def attach_lake(spark: SparkSession, document: Path) -> Lake:
    """The catalog of a document, in the session of the tests."""
    config = load_config(document, environ={}).config
    attach_session(spark, config)
    return Lake(spark, config.catalog.name)


def attach_files(spark: SparkSession, folder: Path) -> Lake:
    """A catalog over files."""
    return attach_lake(spark, write_document(folder, files_catalog(folder)))


def settings_for(catalog: str, table: str, **settings: object) -> MergeSettings:
    """A mirror of that name and its changelog."""
    made = MergeSettings(
        changelog=TableName(catalog, ("shop",), f"{table}_changelog"),
        mirror=TableName(catalog, ("shop",), table),
        key=("id",),
    )
    return replace(made, **settings)  # type: ignore[arg-type]


@dataclass
class Mirrored:
    """One changelog and one mirror; ``expected`` is the mirror as a dictionary would be merged."""

    spark: SparkSession
    lake: Lake
    settings: MergeSettings
    expected: dict[int, Row] = field(default_factory=dict)
    at: int = 0

    @classmethod
    def create(cls, spark: SparkSession, lake: Lake, **settings: object) -> Mirrored:
        """A changelog without rows, and no mirror yet."""
        made = settings_for(lake._name, f"t_{uuid4().hex[:8]}", **settings)
        table = cls(spark, lake, made)
        lake.ensure_namespace(table.settings.changelog)
        table.sql(
            "create table {changelog} (id bigint, name string, city string, "
            "cdc_operation string, cdc_sequence_number bigint) using iceberg"
        )
        return table

    @property
    def merger(self) -> Merger:
        """One that knows nothing of earlier merges."""
        return Merger(self.spark, self.lake, self.settings, retry=QUICKLY)

    @property
    def mirror(self) -> MirrorTable:
        """The mirror, opened again."""
        return MirrorTable.open(self.lake, self.settings.mirror)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """A statement of another engine, with ``{mirror}`` and ``{changelog}``."""
        names = self.settings.mirror, self.settings.changelog
        mirror, changelog = (name.quoted for name in names)
        text = statement.format(mirror=mirror, changelog=changelog)
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def call(self, procedure: str, table: str = "mirror", arguments: str = "") -> None:
        """One of Iceberg's maintenance procedures."""
        name = self.settings.mirror if table == "mirror" else self.settings.changelog
        rest = f", {arguments}" if arguments else ""
        self.sql(f"call {name.catalog}.system.{procedure}(table => 'shop.{name.table}'{rest})")

    def change(self, changes: Mapping[int, NewRow]) -> None:
        """One more snapshot of the changelog, and the same in ``expected``."""
        rows: list[tuple[object, ...]] = []
        for key, new in changes.items():
            row = (new, f"p{key % 3}") if isinstance(new, str) else new
            if row is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = row
            self.at += 1
            rows.append((key, *(row or (None, None)), "UPDATE" if row else "DELETE", self.at))
        self._append(rows)

    def truncate(self) -> None:
        """A TRUNCATE at the source."""
        self.at += 1
        self.expected.clear()
        self._append([(None, None, None, "TRUNCATE", self.at)])

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        """Without a Spark job, because most of what these tests do is this."""
        table = self.lake.open(self.settings.changelog)
        target = table.load_write_target()
        writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
        columns = zip(*rows, strict=True)
        named = zip(arrow_schema(target.schema), columns, strict=True)
        arrays = {each.name: pa.array(values, each.type) for each, values in named}
        writer.write(pa.RecordBatch.from_pydict(arrays))
        append = table._table.newAppend()
        descriptors = [file.descriptor for file in writer.close()]
        specs = table._table.specs()
        table._gateway.apply_files(append, FileIntake.APPEND, descriptors, specs)
        append.commit()

    def merge(self) -> MergeReport:
        """Everything that is pending."""
        return self.merger.merge()

    def change_and_merge(self, changes: Mapping[int, NewRow]) -> MergeReport:
        """One snapshot, merged."""
        self.change(changes)
        return self.merge()

    def rows(self) -> dict[int, Row]:
        """The mirror as Spark reads it; a key that is there twice is a failure."""
        self.sql("refresh table {mirror}")
        found = self.sql("select id, name, city from {mirror}")
        rows = {key: (name, city) for key, name, city in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows  # type: ignore[return-value]

    def check(self) -> None:
        """Rows and position are right, and the index finds every row."""
        self.check_rows()
        marker = self.mirror.position()
        assert marker is not None
        assert marker.position == str(self.changelog_head())
        self.check_index()

    def check_rows(self) -> None:
        """Every row is there, and no other."""
        assert self.rows() == self.expected

    def check_index(self) -> None:
        """The index has every live row under the hash of its key, and nothing else."""
        manifest, young = read_head(self.index_head().read_bytes())
        inputs = InputFiles({})
        parts = [Entries.empty() if young is None else decode_run(young)]
        parts += [each for run in manifest.runs for each in fetch_bucket(run, 0, 0, inputs)]
        entries = merge_entries(parts, files=manifest.files, inputs=inputs)
        entries = entries.take(entries.file >= 0)
        columns = (entries.hi, entries.file, entries.position)
        indexed = set(zip(*(each.tolist() for each in columns), strict=True))
        assert indexed == {row for file in manifest.files for row in _rows_of(file, inputs)}

    def head(self) -> SnapshotFacts:
        """The mirror's current snapshot."""
        head = self.mirror.table.load_state().head
        assert head is not None
        return head

    def changelog_head(self) -> int:
        """The changelog's current snapshot."""
        head = self.lake.open(self.settings.changelog).load_state().head
        assert head is not None
        return head.id

    def index_head(self) -> Path:
        """The head of the index that the current snapshot names."""
        return local_path(self.head().summary[HEAD_PROPERTY])

    def index_head_of_parent(self) -> Path:
        """The same of the snapshot before."""
        _, parent, *_ = self.mirror.table.load_ancestry()
        return local_path(parent.summary[HEAD_PROPERTY])

    def manifest(self) -> IndexManifest:
        """What that head says."""
        return read_head(self.index_head().read_bytes())[0]


def local_path(location: str) -> Path:
    """A file of a warehouse of files."""
    return Path(urlsplit(location).path)


def _rows_of(file: IndexedFile, inputs: InputFiles) -> Iterator[tuple[int, int, int]]:
    """Hash, file and row of each live row, read by nothing but Arrow."""
    deleted = load_deleted(file, inputs)
    ids = pq.read_table(local_path(file.location), columns=["id"])["id"].to_pylist()
    for row, key in enumerate(ids):
        if row not in deleted:
            yield hash_key([key], [Primitive.LONG])[0], file.ordinal, row
