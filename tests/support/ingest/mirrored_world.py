"""A source in memory with a changelog and a mirror in a real catalog, for faults of the lake."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from frazil.clients.iceberg.lake import Lake
from frazil.errors import FrazilError
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import Limit
from frazil.testing.in_memory_database import DeleteRow, InMemoryDatabase, InsertRow, UpdateRow
from frazil.testing.in_memory_source import InMemorySource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.faults.proxy import Match

TABLE = "shop.users"
ROOMY = 1 << 30


def asking(method: str, path: str) -> Match:
    """Requests of these methods whose path has this in it."""
    methods, pattern = re.compile(method), re.compile(path)
    return lambda verb, where, _: bool(methods.fullmatch(verb) and pattern.search(where))


@dataclass
class World:
    """A source, its changelog and its mirror; by default each step is one of a new process."""

    spark: SparkSession
    catalog: str
    folder: Path
    namespace: str = "shop"
    database: InMemoryDatabase = field(default_factory=InMemoryDatabase)
    written: int = 0

    def __post_init__(self) -> None:
        columns = {"id": Primitive.LONG, "name": Primitive.STRING}
        self.database.add_table(TABLE, columns, key=["id"])

    def name(self, table: str) -> TableName:
        return TableName(self.catalog, (self.namespace,), table)

    def change(self) -> None:
        """A row more, another one changed, and one gone."""
        self.written += 3
        new = [self.written + each for each in range(3)]
        rows = [InsertRow(TABLE, {"id": each, "name": "new"}) for each in new]
        self.database.transact(*rows)
        self.database.transact(
            UpdateRow(TABLE, (new[0],), {"id": new[0], "name": f"after {self.written}"}),
            DeleteRow(TABLE, (new[1],)),
        )

    def new_ingester(self) -> Ingester:
        """As a process makes one, and keeps it while it lives."""
        lake = Lake(self.spark, self.catalog)
        return Ingester(
            self.spark,
            lake,
            InMemorySource(self.database),
            Ledger.ensure(lake, self.name("ledger")),
            settings=IngestSettings(
                pipeline="faults", limit=Limit(1000, ROOMY), held_bytes=ROOMY, may_pass=may_pass
            ),
            captures=lambda _: CaptureSettings(changelog=self.name("users_changelog")),
        )

    def ingest(self, ingester: Ingester | None = None) -> None:
        ingester = ingester or self.new_ingester()
        while ingester.copy_tables() is not None:
            pass
        while ingester.step() is not None:
            pass

    def merge(self, lake: Lake | None = None) -> None:
        settings = MergeSettings(
            changelog=self.name("users_changelog"),
            mirror=self.name("users"),
            key=("id",),
            # A run for every merge, and an empty cache each time: the index is read from the store.
            index=IndexSettings(cache_dir=self.folder / uuid4().hex, young_entries=1),
        )
        Merger(self.spark, lake or Lake(self.spark, self.catalog), settings).merge()

    def work(self) -> FrazilError | None:
        """One run of everything; what it stopped with, if it did. Anything else is a defect."""
        try:
            self.ingest()
            self.merge()
        except FrazilError as stopped:
            return stopped
        return None

    def seen(self) -> dict[str, list[tuple[str, int]]]:
        """The files that readers of each table are sent to."""
        return {
            table: sorted(
                (row.file_path, row.record_count)
                for row in self.spark.sql(
                    f"select * from {self.name(table).quoted}.files"
                ).collect()
            )
            for table in ("users", "users_changelog")
        }

    def check(self) -> None:
        """The mirror is what the source is, and every change is in the changelog once."""
        expected = {int(str(row["id"])): row["name"] for row in self.database.contents(TABLE)}
        found = self.spark.table(self.name("users").quoted).collect()
        assert sorted((row.id, row.name) for row in found) == sorted(expected.items())
        changes = self.spark.table(self.name("users_changelog").quoted).collect()
        sequences = [row.cdc_sequence_number for row in changes if row.cdc_operation != "READ"]
        assert len(set(sequences)) == len(sequences)
