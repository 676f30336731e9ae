"""``frazil status`` without a running process: what ledger and tables tell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.changelog.layout import changelog_schema
from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import UnsupportedSchemaChangeError
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.mirror.table import MirrorTable
from frazil.model.cause import Cause
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.table_name import TableName
from frazil.pipeline.offline_status import load_offline_status
from frazil.pipeline.status.json_form import status_from_json
from frazil.pipeline.status.values import Phase
from tests.support.lake.files import SCHEMA, FileWriter
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config
    from frazil.ledger.table_state import State
    from frazil.pipeline.status.values import PipelineStatus, TableStatus

pytestmark = pytest.mark.spark

DOCUMENT = """
pipeline: shop
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
{work}
telemetry: {{pages: false}}
spark:
  master: 'local[1]'
  conf: {{spark.driver.memory: 1g, spark.driver.extraJavaOptions: '{java}'}}
"""
SOURCE = "source: {kind: postgres, dsn: 'postgresql://nobody@127.0.0.1:1/shop'}"
TABLES = """
tables:
  - {mirror: public.live, changelog: public.live_changelog, key: [id]}
  - {mirror: public.new, changelog: public.new_changelog, key: [id]}
"""
INCOMPATIBLE = UnsupportedSchemaChangeError(
    "column total changed from numeric to text.",
    table="public.held",
    next_step="frazil resync public.held",
)


@dataclass(frozen=True)
class Stand:
    """A lake that a pipeline has left, and the two documents that speak of it."""

    lake: Lake
    spark: SparkSession
    folder: Path
    changelog: LakeTable
    mirror: LakeTable

    def config(self, work: str) -> Config:
        return load_config(self.document(work), environ={}).config

    def document(self, work: str) -> Path:
        file = self.folder / "frazil.yaml"
        catalog = self.changelog.name.catalog
        file.write_text(
            DOCUMENT.format(folder=self.folder, catalog=catalog, work=work, java=QUICK_JAVA)
        )
        return file

    def load(self, work: str) -> PipelineStatus:
        return load_offline_status(self.lake, self.config(work))

    def roll_back(self, table: LakeTable) -> None:
        _, older = table.load_ancestry()
        self.spark.sql(
            f"call {table.name.catalog}.system.rollback_to_snapshot('public.live', {older.id})"
        )


def fill(table: LakeTable, role: MarkerRole, source: str, *positions: str) -> list[str]:
    """A commit with two rows for each position; returns the snapshots."""
    location, start, snapshots = table.load_state().location, None, []
    for position in positions:
        goal = Marker(pipeline="shop", source=source, position=position, batch=position)
        added = FileChanges(added=(FileWriter().write(location, [1, 2]),))
        receipt = table.commit(StrictCommit(move=MarkerMove(role, start, goal), changes=added))
        assert receipt.marker.snapshot is not None
        snapshots.append(str(receipt.marker.snapshot.id))
        start = position
    return snapshots


@pytest.fixture(scope="module")
def stand(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stand:
    folder = tmp_path_factory.mktemp("offline")
    # A name of its own, because a session keeps every catalog it has met.
    catalog = f"c_{folder.name}"
    document = folder / "first.yaml"
    document.write_text(
        DOCUMENT.format(folder=folder, catalog=catalog, work=TABLES, java=QUICK_JAVA)
    )
    session = attach_session(spark, load_config(document, environ={}).config)
    lake = Lake(session, catalog)

    def name(table: str, namespace: str = "public") -> TableName:
        return TableName(catalog, (namespace,), table)

    schema = changelog_schema(SCHEMA.fields, ["id"])
    changelog = ChangelogTable.ensure(lake, name("live_changelog"), schema=schema).table
    mirror = MirrorTable.ensure(lake, name("live"), TableDefinition(schema=SCHEMA)).table
    snapshots = fill(changelog, MarkerRole.INGEST, "a server", "0/1", "0/2")
    fill(mirror, MarkerRole.MERGE, changelog.load_state().uuid, *snapshots)
    states: dict[str, State] = {
        "public.live": Streaming(),
        "public.held": Paused("0/5", Cause.of(INCOMPATIBLE)),
        "public.copying": Copying(),
        "public.failed": Copying(Cause("FRZ-LAK-02", "the store refused. Next: frazil check")),
        "public.lost": ResyncRequired("0/9", "its row filter changed"),
    }
    Ledger.ensure(lake, name("shop_ledger", "frazil")).note(
        [],
        pipeline="shop",
        batch="b",
        table_states=[
            TableState(table=table, identity=table, state=state) for table, state in states.items()
        ],
    )
    return Stand(lake, spark, folder, changelog, mirror)


def by_name(status: PipelineStatus) -> Mapping[str, TableStatus]:
    return {each.table: each for each in status.tables}


def test_the_ledger_tells_how_captured_tables_stand(stand: Stand) -> None:
    status = stand.load(SOURCE)
    assert not status.is_live
    assert status.started_at is None
    assert status.source is not None
    assert status.source.kind == "postgres"
    # Nobody answers there.
    assert (status.source.health, status.source.trouble) == (None, None)
    assert status.source.unknown_since == status.at
    tables = by_name(status)
    assert {name: each.phase for name, each in tables.items()} == {
        "public.copying": Phase.COPYING,
        "public.failed": Phase.STOPPED,
        "public.held": Phase.STOPPED,
        "public.live": Phase.WAITING,
        "public.lost": Phase.STOPPED,
    }
    live, held = tables["public.live"], tables["public.held"]
    assert (live.changelog, live.mirror) == ("public.live_changelog", "public.live")
    assert (live.changelog_rows, live.mirror_rows, live.is_first_load) == (4, 4, False)
    assert tables["public.copying"].is_first_load
    assert tables["public.copying"].mirror_rows is None
    heads = [table.load_state().head for table in (stand.mirror, stand.changelog)]
    assert [(each.role, each.lake_table, each.rows) for each in live.commits] == [
        ("merge", "public.live", 2),
        ("merge", "public.live", 2),
        ("ingest", "public.live_changelog", 2),
        ("ingest", "public.live_changelog", 2),
    ]
    assert heads[0] is not None
    assert heads[1] is not None
    assert [live.commits[0].snapshot_id, live.commits[2].snapshot_id] == [
        heads[0].id,
        heads[1].id,
    ]
    assert datetime.now(UTC) - live.commits[0].at < timedelta(minutes=5)
    assert datetime.now(UTC) - live.since < timedelta(minutes=5)
    assert held.trouble is not None
    assert held.trouble.code == INCOMPATIBLE.code
    assert held.trouble.remedy == "frazil resync public.held"
    assert held.trouble.since == held.since
    lost = tables["public.lost"].trouble
    assert lost is not None
    assert lost.reason.endswith("the table has to be copied again: its row filter changed.")
    assert lost.remedy == "frazil resync public.lost"


def test_without_a_source_mirrors_and_changelogs_tell(stand: Stand) -> None:
    status = stand.load(TABLES)
    assert status.source is None
    live, new = status.tables
    assert (live.table, live.phase, live.trouble) == ("public.live", Phase.WAITING, None)
    assert {each.lake_table for each in live.commits} == {"public.live", "public.live_changelog"}
    assert live.since == live.commits[0].at
    assert (new.table, new.phase, new.commits) == ("public.new", Phase.WAITING, ())


def test_before_anything_was_captured_there_are_no_tables(stand: Stand) -> None:
    other = SOURCE + "\nledger: {table: another_ledger}"
    status = stand.load(other)
    assert status.tables == ()
    assert not status.is_live


def test_the_command_reads_the_lake_and_exits_3(stand: Stand) -> None:
    done = run_on(stand.spark, "status", "-o", "json", "-c", str(stand.document(SOURCE)))
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[0].endswith("reading the lake instead")
    shown = status_from_json(json.loads(done.stdout))
    assert {each.table for each in shown.stopped} == {"public.failed", "public.held", "public.lost"}


# The last one: what the others look at is changed.
def test_a_mirror_that_was_set_back_requires_action(stand: Stand) -> None:
    stand.roll_back(stand.mirror)
    set_back = by_name(stand.load(SOURCE))["public.live"]
    assert set_back.phase is Phase.STOPPED
    assert set_back.trouble is not None
    assert set_back.trouble.code == "FRZ-LAK-10"
    assert [each.table for each in stand.load(TABLES).stopped] == ["public.live"]
