"""An in-memory database, its lake, and ingesters that come and go as processes do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import Lake
from frazil.ingest.ingester import Ingester
from frazil.ingest.settings import CaptureSettings, IngestSettings
from frazil.ledger.table import Ledger
from frazil.model.postgres.lsn import parse_lsn
from frazil.model.schema.types import Primitive
from frazil.model.table_name import TableName
from frazil.pipeline.recovery import may_pass
from frazil.sources.protocol import Limit
from frazil.testing.in_memory_database import (
    InMemoryDatabase,
    InsertRow,
)
from frazil.testing.in_memory_source import InMemorySource
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession

    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import Batch, Progress
    from tests.support.lake.catalogs import LakeCase


USERS, ORDERS = "shop.users", "shop.orders"
ROOMY = 1 << 30


class Hooked(InMemorySource):
    """A source during whose next plan, or discovery of tables, something else happens."""

    between: Callable[[], object] | None = None
    while_discovering: Callable[[], object] | None = None
    since: Marker | None = None
    reached: frozenset[Position] = frozenset()

    def discover(self) -> tuple[SourceTable, ...]:
        meanwhile, self.while_discovering = self.while_discovering, None
        if meanwhile is not None:
            meanwhile()
        return super().discover()

    def prepare(
        self, tables: Collection[str], since: Marker | None, reached: Collection[Position] = ()
    ) -> Position:
        self.since, self.reached = since, frozenset(reached)
        return super().prepare(tables, since, reached)

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        batch = super().plan(progress, limit)
        if batch is not None:
            batch = replace(batch, witness=f"up to {batch.end}")
        between, self.between = self.between, None
        if between is not None:
            between()
        return batch


@dataclass
class World:
    """A database, its lake, and ingesters that come and go as processes do."""

    spark: SparkSession
    case: LakeCase
    database: InMemoryDatabase = field(default_factory=InMemoryDatabase)
    namespace: str = field(default_factory=lambda: f"memory_{uuid4().hex[:10]}")
    held_bytes: int = ROOMY
    resyncs_lost: bool = False
    most_rejected_bytes: int = ROOMY
    prefix: str = "cdc_"

    def __post_init__(self) -> None:
        for name in (USERS, ORDERS):
            self.database.add_table(
                name, {"id": Primitive.LONG, "name": Primitive.STRING}, key=["id"]
            )

    def changelog(self, table: str) -> TableName:
        return TableName(self.case.catalog, (self.namespace,), table.replace(".", "_"))

    @property
    def dead_letters(self) -> TableName:
        return TableName(self.case.catalog, (self.namespace,), "dead_letters")

    def letters(self) -> list[tuple[str, bytes]]:
        """Table and payload of every dead letter."""
        found = self.case.lake.open(self.dead_letters).read().collect()
        return sorted((each.table_name, bytes(each.payload)) for each in found)

    def start(
        self, wanted: Collection[str] = ("*",), *, tables_at_once: int | None = None
    ) -> tuple[Ingester, Hooked]:
        """A new process."""
        source = Hooked(self.database, wanted=wanted, tables_at_once=tables_at_once)
        lake = Lake(self.spark, self.case.catalog)
        name = TableName(self.case.catalog, (self.namespace,), "ledger")
        ingester = Ingester(
            self.spark,
            lake,
            source,
            Ledger.ensure(lake, name),
            settings=IngestSettings(
                pipeline="in_memory",
                limit=Limit(1000, ROOMY),
                held_bytes=self.held_bytes,
                may_pass=may_pass,
                resyncs_lost=self.resyncs_lost,
                dead_letters=self.dead_letters,
                most_rejected_bytes=self.most_rejected_bytes,
            ),
            captures=lambda table: CaptureSettings(
                changelog=self.changelog(table), prefix=self.prefix
            ),
        )
        return ingester, source

    def add(self, table: str, *ids: int) -> None:
        self.database.transact(*(InsertRow(table, {"id": each, "name": "new"}) for each in ids))

    def run(self, ingester: Ingester | None = None) -> Ingester:
        """Read and step until nothing is left."""
        ingester = ingester or self.start()[0]
        while ingester.copy_tables() is not None:
            pass
        while ingester.step() is not None or ingester.tables_to_copy:
            while ingester.copy_tables() is not None:
                pass
        self.check_acknowledged(ingester)
        return ingester

    def check_acknowledged(self, ingester: Ingester) -> None:
        """The source never forgot what the ledger does not have."""
        assert self.database.state.begins <= parse_lsn(str(ingester.acknowledged))

    def rows(self, table: str) -> list[tuple[str, str, int, str]]:
        """Sequence, operation and values of every row, in order."""
        found = self.case.lake.open(self.changelog(table)).read().collect()
        return sorted(
            (each.cdc_sequence_number, each.cdc_operation, each.id, each.name) for each in found
        )

    def fold(self, table: str) -> dict[int, str]:
        """What the changelog comes to; no row may be there twice."""
        rows = self.rows(table)
        changes = [row[0] for row in rows if row[1] != "READ"]
        assert len(set(changes)) == len(changes), "a change is in the changelog twice"
        state: dict[int, str] = {}
        for _, operation, key, name in rows:
            if operation == "TRUNCATE":
                state.clear()
            elif operation == "DELETE":
                state.pop(key, None)
            else:
                state[key] = name
        return state

    def check(self, *tables: str) -> None:
        for table in tables:
            expected = {int(str(row["id"])): row["name"] for row in self.database.contents(table)}
            assert self.fold(table) == expected

    def states(self, ingester: Ingester) -> dict[str, object]:
        return {name: each.state for name, each in ingester.table_states.items()}


@pytest.fixture
def world(spark: SparkSession, lake_of: Callable[[Kind], LakeCase]) -> World:
    return World(spark, lake_of(Kind.SQLITE_FILE))


def live(world: World) -> World:
    """Both tables have a row, and are captured."""
    world.add(USERS, 1)
    world.add(ORDERS, 1)
    world.run()
    return world
