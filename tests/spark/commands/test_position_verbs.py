"""``frazil position``: what it says of tables in every condition, and how it repairs them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import typer

from frazil import errors
from frazil.changelog.layout import changelog_schema
from frazil.changelog.table import ChangelogTable
from frazil.cli.output import OutputFormat
from frazil.cli.verbs.position.reports import load_reports, report_json, report_row
from frazil.cli.verbs.position.verbs import NOTE, SetRequest, set_in_lake
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.ledger.table import Ledger
from frazil.mirror.table import MirrorTable
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.table_name import TableName
from frazil.telemetry.redaction import Redactor
from tests.support.lake.files import SCHEMA, FileWriter
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.config import Config

pytestmark = pytest.mark.spark

Capture = pytest.CaptureFixture[str]
REDACTOR = Redactor()

DOCUMENT = """
pipeline: shop
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
  - {{mirror: public.gone, changelog: public.gone_changelog, key: [id]}}
spark:
  master: 'local[1]'
  conf: {{spark.driver.memory: 1g, spark.driver.extraJavaOptions: '{java}'}}
"""


@dataclass(frozen=True)
class Shop:
    """A pipeline whose mirror has merged the two batches of its changelog."""

    document: Path
    config: Config
    lake: Lake
    spark: SparkSession
    changelog: ChangelogTable
    mirror: MirrorTable
    ledger: Ledger
    snapshots: tuple[str, str]

    def reports(self, table: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
        found = load_reports(self.lake, self.config, table)
        shown = (report_json(each, REDACTOR) for each in found)
        return {(str(each["table"]), str(each["role"])): each for each in shown}

    def set_marker(self, to: str, **more: Any) -> None:
        request = SetRequest(table="public.users", role=MarkerRole.MERGE, to=to, **more)
        set_in_lake(self.lake, self.config, request, OutputFormat.JSON, REDACTOR)

    def alter(self, table: LakeTable, change: str) -> None:
        self.spark.sql(f"alter table {table.name.quoted} {change}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_on(self.spark, "position", *words, "-c", str(self.document))


def fill(table: LakeTable, role: MarkerRole, source: str, *positions: str) -> tuple[str, str]:
    """A commit with one row for each position; returns the snapshots."""
    location, start, snapshots = table.load_state().location, None, []
    for position in positions:
        goal = Marker(
            pipeline="shop",
            source=source,
            position=position,
            batch=f"batch {position}",
            sequence=f"through {position}",
        )
        added = FileChanges(added=(FileWriter().write(location, [1]),))
        receipt = table.commit(StrictCommit(move=MarkerMove(role, start, goal), changes=added))
        assert receipt.marker.snapshot is not None
        snapshots.append(str(receipt.marker.snapshot.id))
        start = position
    first, second = snapshots
    return first, second


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    # A name of its own, because a session keeps every catalog it has met.
    catalog = f"c_{tmp_path.name}"
    document = tmp_path / "frazil.yaml"
    document.write_text(DOCUMENT.format(folder=tmp_path, catalog=catalog, java=QUICK_JAVA))
    config = load_config(document, environ={}).config
    lake = Lake(attach_session(spark, config), catalog)

    def name(table: str, namespace: str = "public") -> TableName:
        return TableName(catalog, (namespace,), table)

    changelog = ChangelogTable.ensure(
        lake, name("users_changelog"), schema=changelog_schema(SCHEMA.fields, ["id"])
    )
    mirror = MirrorTable.ensure(lake, name("users"), TableDefinition(schema=SCHEMA))
    ledger = Ledger.ensure(lake, name("shop_ledger", "frazil"))
    snapshots = fill(changelog.table, MarkerRole.INGEST, "a server", "0/1", "0/2")
    fill(mirror.table, MarkerRole.MERGE, changelog.table.load_state().uuid, *snapshots)
    return Shop(document, config, lake, spark, changelog, mirror, ledger, snapshots)


def test_show_tells_every_marker_and_what_is_wrong_with_it(shop: Shop) -> None:
    shown = shop.reports()
    assert {key: each["validity"] for key, each in shown.items()} == {
        ("public.users_changelog", "ingest"): "valid",
        ("public.users", "merge"): "valid",
        ("public.gone_changelog", "ingest"): "unknown",
        ("public.gone", "merge"): "unknown",
        ("frazil.shop_ledger", "ingest"): "none",
    }
    marker = shown["public.users_changelog", "ingest"]["marker"]
    assert (marker["position"], marker["batch"]) == ("0/2", "batch 0/2")
    assert marker["snapshot"] == shop.snapshots[1]
    assert shown["public.gone", "merge"]["problem"]["code"] == "FRZ-LAK-01"

    _, older = shop.mirror.table.load_ancestry()
    shop.spark.sql(
        f"call {shop.config.catalog.name}.system.rollback_to_snapshot('public.users', {older.id})"
    )
    shop.alter(shop.changelog.table, "unset tblproperties ('frazil.ingest')")
    shown = shop.reports("public.users_changelog")
    mirror = shown["public.users", "merge"]
    assert (mirror["validity"], mirror["problem"]["code"]) == ("not valid", "FRZ-LAK-10")
    assert mirror["recoverable"]["position"] == shop.snapshots[0]
    changelog = shown["public.users_changelog", "ingest"]
    assert (changelog["validity"], changelog["problem"]["code"]) == ("unknown", "FRZ-LAK-09")
    rows = [report_row(each, REDACTOR) for each in load_reports(shop.lake, shop.config, None)]
    assert f"is that of {shop.snapshots[0]}." in rows[1][-1]


def test_a_dry_run_shows_and_changes_nothing(shop: Shop, capsys: Capture) -> None:
    before = shop.mirror.table.load_state()
    shop.set_marker(shop.snapshots[0], dry_run=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["marker"]["position"] == shop.snapshots[1]
    assert (shown["to"]["position"], shown["applied"]) == (shop.snapshots[0], False)
    assert shop.mirror.table.load_state() == before
    assert shop.ledger.table.load_state().head is None


def test_on_a_terminal_it_asks_for_confirmation(
    shop: Shop, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(typer.Abort):
        shop.set_marker(shop.snapshots[0])
    asked = capsys.readouterr()
    assert shop.snapshots[0] in asked.err
    assert asked.out.strip() == ""
    found = shop.mirror.position()
    assert found is not None
    assert found.position == shop.snapshots[1]


def test_a_marker_that_cannot_be_read_is_repaired(shop: Shop, capsys: Capture) -> None:
    shop.alter(shop.mirror.table, "set tblproperties ('frazil.merge' = 'nonsense')")
    shop.set_marker(shop.snapshots[1], yes=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["validity"], shown["problem"]["code"]) == ("unknown", "FRZ-LAK-09")
    found = shop.mirror.position()
    assert found is not None
    # How far rows were merged was known for this very position.
    assert found.sequence == f"through {shop.snapshots[1]}"


def test_a_position_outside_the_changelogs_history_is_refused(shop: Shop) -> None:
    with pytest.raises(errors.ConfigError, match="42 is no snapshot"):
        shop.set_marker("42", yes=True)


def test_a_lost_marker_is_set_and_shown_by_the_command(shop: Shop) -> None:
    shop.alter(shop.mirror.table, "unset tblproperties ('frazil.merge')")
    with pytest.raises(errors.MarkerLostError):
        shop.mirror.position()
    words = ("public.users", "--role", "merge", "--to", shop.snapshots[0])
    done = shop.run("set", *words, "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "public.users (merge)",
        "  from    - (unknown, FRZ-LAK-09)",
        f"  to      {shop.snapshots[0]}",
        f"  source  {shop.changelog.table.load_state().uuid}",
        "set",
    ]
    found, head = shop.mirror.position(), shop.mirror.table.load_state().head
    assert found is not None
    assert head is not None
    assert found.position == shop.snapshots[0]
    assert (head.count("added-data-files"), head.count("total-records")) == (0, 2)
    (entry,) = shop.ledger.table.read().collect()
    assert (entry.table_name, entry.note, entry.batch) == ("public.users", NOTE, found.batch)
    assert shop.ledger.acknowledged() is None

    listed = shop.run("show", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    shown = {(each["table"], each["validity"]) for each in json.loads(listed.stdout)}
    assert shown == {
        ("public.users_changelog", "valid"),
        ("public.users", "valid"),
        ("public.gone_changelog", "unknown"),
        ("public.gone", "unknown"),
        ("frazil.shop_ledger", "valid"),
    }
