"""What a strict commit costs compared with Iceberg's append, on a young table and on an old one."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from benchmarks.support.report import Comparison, Report, Series
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.gateway import FileIntake, IcebergGateway
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.schema.types import Field, Primitive, Schema
from frazil.model.table_name import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.support.setting import Setting
    from frazil.clients.iceberg.gateway import JavaObject
    from frazil.clients.iceberg.table import LakeTable

DOCUMENT = """
pipeline: bench
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: ./wh}
tables: [{mirror: a.b, changelog: a.c, key: [id]}]
spark: {master: 'local[2]', conf: {spark.driver.memory: 2g}}
"""
SCHEMA = Schema(0, (Field(1, "id", Primitive.LONG, required=True),))
REPETITIONS = 15


class Numbers:
    """A table with both ways to append to it."""

    def __init__(self, spark: SparkSession) -> None:
        name = TableName("lake", ("bench",), f"t_{uuid4().hex[:8]}")
        self.table: LakeTable = Lake(spark, "lake").ensure_table(
            name, TableDefinition(schema=SCHEMA)
        )
        self.gateway = IcebergGateway(spark)
        catalog = self.gateway.load_catalog("lake")
        self.java: JavaObject = catalog.loadTable(
            self.gateway.identifier(name.namespace, name.table)
        )
        self.target = self.table.load_write_target()
        self.position: int | None = None

    def file(self) -> str:
        """A real file with one row."""
        writer = TaskWriter(self.target, clock=SystemClock(), randomness=SystemRandomness())
        writer.write(pa.record_batch({"id": pa.array([1], pa.int64())}))
        return writer.close()[0].descriptor

    def strict(self, files: tuple[str, ...]) -> float:
        """Seconds of one commit of ours."""
        goal = 0 if self.position is None else self.position + 1
        start = None if self.position is None else str(self.position)
        marker = Marker(pipeline="bench", source="s", position=str(goal), batch=f"b{goal}")
        commit = StrictCommit(
            move=MarkerMove(MarkerRole.INGEST, start, marker), changes=FileChanges(added=files)
        )
        started = time.perf_counter()
        self.table.commit(commit)
        seconds = time.perf_counter() - started
        self.position = goal
        return seconds

    def plain(self, files: tuple[str, ...]) -> float:
        """Seconds of Iceberg's own append of such files, through the same gateway."""
        self.java.refresh()
        started = time.perf_counter()
        append = self.java.newAppend()
        self.gateway.apply_files(append, FileIntake.APPEND, files, self.java.specs())
        append.commit()
        return time.perf_counter() - started

    def rows(self) -> int:
        """What the table holds."""
        return self.table.read().count()


def measure(setting: Setting) -> Report:
    """A commit on a table of two thousand commits, and one of a thousand files."""
    commits, files = setting.pick(small=(5, 10), full=(2000, 1000))
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "frazil.yaml"
        document.write_text(DOCUMENT)
        with open_session(load_config(document, environ={}).config) as spark:
            return Report((_old_table(spark, commits), _many_files(spark, files)))


def _old_table(spark: SparkSession, commits: int) -> Comparison:
    table = Numbers(spark)
    for _ in range(commits):
        table.strict((table.file(),))
    pairs = [
        (table.strict((table.file(),)), table.plain((table.file(),))) for _ in range(REPETITIONS)
    ]
    if table.rows() != commits + 2 * REPETITIONS:
        raise AssertionError("rows were lost or doubled")
    ours, baseline = zip(*pairs, strict=True)
    return Comparison(
        Series(f"strict commit after {commits:,} commits", ours),
        Series("plain Iceberg append on the same table", baseline),
        goal="at most 1.2",
    )


def _many_files(spark: SparkSession, files: int) -> Comparison:
    table = Numbers(spark)
    one = json.loads(table.file())

    def copies() -> tuple[str, ...]:
        # A thousand paths of one content: what is measured is the commit, not the writing.
        original = one["file-path"].removeprefix("file://")
        descriptors = []
        for _ in range(files):
            path = f"{Path(original).parent}/{uuid4()}.parquet"
            shutil.copyfile(original, path)
            descriptors.append(json.dumps({**one, "file-path": f"file://{path}"}))
        return tuple(descriptors)

    table.strict(())
    pairs = [(table.strict(copies()), table.plain(copies())) for _ in range(4)][1:]
    if table.rows() != 8 * files:
        raise AssertionError("rows were lost or doubled")
    ours, baseline = zip(*pairs, strict=True)
    return Comparison(
        Series(f"strict commit of {files:,} files", ours),
        Series(f"plain Iceberg append of {files:,} files", baseline),
        goal="under 2 s",
    )
