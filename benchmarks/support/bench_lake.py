"""The lake of a benchmark: tables made once by real merges, and copies of them for each contest."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.jars import POSTGRES_DRIVER, ensure_jars
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.schema.types import Decimal, Field, Primitive, Schema
from frazil.model.table_name import TableName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

DOCUMENT = """
pipeline: bench
{catalog}
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
spark:
  master: 'local[2]'
  conf: {{spark.driver.memory: 4g, spark.local.dir: '{folder}/spark', spark.jars: '{jars}'}}
"""
_CATALOG = (
    "catalog: {{kind: sql, name: lake, uri: 'sqlite:///{folder}/catalog.db', "
    "warehouse: 'file://{folder}/lake'}}"
)
OPERATION, SEQUENCE = "cdc_operation", "cdc_sequence_number"


class KeyKind(StrEnum):
    """What identifies a row."""

    INTEGER = "integer"
    UUID = "uuid"
    TEXT = "text"


# The key of row number n, in Spark's SQL.
_KEYS = {
    KeyKind.INTEGER: "n",
    KeyKind.UUID: "regexp_replace(md5(cast(n as string)), "
    "'^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5')",
    KeyKind.TEXT: "concat('user', n, '@example.com')",
}
_KEY_TYPES = {
    KeyKind.INTEGER: Primitive.LONG,
    KeyKind.UUID: Primitive.UUID,
    KeyKind.TEXT: Primitive.STRING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table: six columns of about a hundred bytes, ``rows`` of them, and what its key is."""

    rows: int
    key: KeyKind = KeyKind.INTEGER
    partitions: int = 0

    @property
    def name(self) -> str:
        """Its short name."""
        parts = f"_in_{self.partitions}" if self.partitions else ""
        return f"{self.key}_{self.rows}{parts}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The mirror's columns."""
        return ("id", "customer", "note", "amount", "region", "updated_at")

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of row number ``n`` in its version ``v``, in Spark's SQL."""
        # Every fifth update moves a row to another region, which may be its partition.
        moves = "case when pmod(xxhash64(n, v), 5) = 0 then v else 0 end"
        return (
            f"{_KEYS[self.key]} as id",
            "concat('customer ', pmod(xxhash64(n), 50000)) as customer",
            "concat(md5(concat_ws('/', n, v)), ' rev ', v) as note",
            "cast(pmod(xxhash64(v, n), 10000000) / 100 as decimal(18, 2)) as amount",
            f"cast(pmod(xxhash64(n) + {moves}, {self.partitions or 100}) as int) as region",
            "timestamp_micros(1700000000000000 + n * 1000 + v) as updated_at",
        )

    @property
    def changelog_schema(self) -> Schema:
        """The changelog's columns."""
        return Schema(
            0,
            (
                Field(1, "id", _KEY_TYPES[self.key], required=True),
                Field(2, "customer", Primitive.STRING),
                Field(3, "note", Primitive.STRING),
                Field(4, "amount", Decimal(18, 2)),
                Field(5, "region", Primitive.INT),
                Field(6, "updated_at", Primitive.TIMESTAMPTZ),
                Field(7, OPERATION, Primitive.STRING, required=True),
                Field(8, SEQUENCE, Primitive.LONG, required=True),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A changelog, the mirror made from it, and how long the making took."""

    shape: Shape
    changelog: TableName
    mirror: TableName
    made: dict[str, float]


def print_progress(text: str) -> None:
    """Print progress."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def catalog_document(folder: Path) -> str:
    """The line of a configuration that names the lake in this folder."""
    return _CATALOG.format(folder=folder)


@contextmanager
def open_bench_lake(folder: Path) -> Iterator[BenchLake]:
    """A lake in the folder, with what an earlier benchmark has left there."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / "frazil.yaml"
    # Not ours: with it Spark reads Postgres as it does without us.
    jars = ",".join(map(str, ensure_jars(POSTGRES_DRIVER)))
    text = DOCUMENT.format(folder=folder, catalog=catalog_document(folder), jars=jars)
    document.write_text(text)
    with open_session(load_config(document, environ={}).config) as session:
        session.sql("create namespace if not exists lake.bench")
        yield BenchLake(session, folder)


class BenchLake:
    """Tables of one benchmark session."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.lake = Lake(session, "lake")
        self.folder = folder

    def settings(self, tables: Tables) -> MergeSettings:
        """How the mirror is merged: with the defaults."""
        return MergeSettings(
            changelog=tables.changelog,
            mirror=tables.mirror,
            key=("id",),
            sequence=SEQUENCE,
            operation=OPERATION,
            partition_by=("region",) if tables.shape.partitions else (),
            index=IndexSettings(cache_dir=self.folder / "cache"),
        )

    def merger(self, tables: Tables) -> Merger:
        """The merge that is measured."""
        return Merger(self.session, self.lake, self.settings(tables))

    def copies(self, shape: Shape) -> Tables:
        """Tables of this shape for one contender; they share files with the first ones."""
        first = self._ensured(shape)
        suffix = uuid4().hex[:8]
        return replace(
            first,
            changelog=self.copy(first.changelog, f"{shape.name}_{suffix}_changelog"),
            mirror=self.copy(first.mirror, f"{shape.name}_{suffix}"),
        )

    def copy(self, table: TableName, name: str) -> TableName:
        """The table again under another name: the same files now, other ones from here on."""
        metadata = self.lake.open(table).load_metadata_location()
        # A table removes old metadata of its own; what two of them start from must not go.
        path = Path(metadata.removeprefix("file:"))
        copied = path.with_name(f"00000-{uuid4()}.metadata.json")
        shutil.copyfile(path, copied)
        other = TableName("lake", ("bench",), name)
        self.session.sql(
            f"call lake.system.register_table(table => 'bench.{name}', "
            f"metadata_file => 'file:{copied}')"
        )
        return other

    def rows(self, shape: Shape, numbers: DataFrame) -> DataFrame:
        """Changes as the changelog has them, from columns n, v, operation and sequence."""
        return numbers.selectExpr(
            *shape.values, f"operation as {OPERATION}", f"sequence as {SEQUENCE}"
        )

    def settle(self) -> None:
        """Let the JVM collect garbage, so that no contender pays for another's."""
        self.session.sparkContext._jvm.System.gc()  # type: ignore[union-attr] # noqa: SLF001

    def _ensured(self, shape: Shape) -> Tables:
        note = self.folder / f"{shape.name}.json"
        tables = Tables(
            shape=shape,
            changelog=TableName("lake", ("bench",), f"{shape.name}_changelog"),
            mirror=TableName("lake", ("bench",), shape.name),
            made={},
        )
        if note.exists():
            return replace(tables, made=json.loads(note.read_text()))
        made = self._make(tables)
        note.write_text(json.dumps(made))
        return replace(tables, made=made)

    def _make(self, tables: Tables) -> dict[str, float]:
        shape = tables.shape
        print_progress(f"making {shape.rows:,} rows with {shape.key} keys")
        started = time.perf_counter()
        definition = TableDefinition(schema=shape.changelog_schema)
        self.lake.ensure_table(tables.changelog, definition)
        numbers = self.session.range(shape.rows).selectExpr(
            "id as n", "0 as v", "'READ' as operation", "id as sequence"
        )
        self.rows(shape, numbers).writeTo(tables.changelog.quoted).append()
        written = time.perf_counter()
        self.merger(tables).merge()
        merged = time.perf_counter()
        made = {"changelog": written - started, "first merge": merged - written}
        if shape.partitions:
            # The first merge leaves a file for each task and partition.
            self.session.sql(
                f"call lake.system.rewrite_data_files(table => '{tables.mirror}', "
                "options => map('rewrite-all', 'true'))"
            )
            made["compaction"] = time.perf_counter() - merged
        spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in made.items())
        print_progress(f"made: {spent}")
        return {name: round(seconds, 3) for name, seconds in made.items()}
