"""Compactions between merges: the mirror is what the model says after every landing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from benchmarks.support.busy_compaction import BusyCompaction
from frazil import errors
from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.config import load_config
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, TableState
from frazil.maintain.compaction.index_runs import land_runs, merge_index_runs
from frazil.maintain.compaction.landing import Abandoned, Landed, land
from frazil.maintain.compaction.landing_queue import LandingQueue
from frazil.maintain.compaction.running import TableCompaction
from frazil.maintain.compaction.sites import MirrorSite
from frazil.maintain.jobs import CompactJob, IndexJob
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings
from frazil.model.marker import Marker
from frazil.model.policy import JobKind
from frazil.model.table_facts import SnapshotOperation
from frazil.model.table_name import TableName
from frazil.pipeline.maintenance import PipelineUpkeep
from tests.support.lake.catalogs import Kind
from tests.support.lake.mirrored import (
    QUICKLY,
    Mirrored,
    attach_files,
    attach_lake,
    files_catalog,
    settings_for,
    write_document,
)
from tests.support.maintain.compacting import CompactingWorld
from tests.support.maintain.rewritten import Compacted, rewritten
from tests.support.merge.histories import SHAPES, make_history
from tests.support.merge.world import World
from tests.support.sampling import a_seed, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.maintain.compaction.sites import MirrorVersion
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

# Both format versions, with partitions, every order, foreign compactions and a change of the spec.
CI_SEEDS = frozenset({25, 38})
_ORDERS = "mirror: shop.orders, changelog: shop.orders_changelog"


@pytest.fixture
def compacted(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> Callable[..., CompactingWorld]:
    """A history, not yet performed."""
    case = lake_of(Kind.SQLITE_FILE)

    def made(seed: int, length: int = 3) -> CompactingWorld:
        name = f"c_{uuid4().hex[:12]}"
        history = make_history(seed, length=length)
        return CompactingWorld(World(spark, case.lake, case.catalog, history, tmp_path, name), seed)

    return made


@pytest.mark.parametrize("seed", sampled(range(SHAPES), ci=CI_SEEDS))
def test_mirrors_are_what_the_model_says_after_every_landing(
    seed: int, compacted: Callable[[int], CompactingWorld]
) -> None:
    world = compacted(seed)
    world.run()
    assert world.landed or world.abandoned


@pytest.mark.deep
def test_mirrors_of_random_histories_are_what_the_model_says_after_every_landing(
    compacted: Callable[..., CompactingWorld],
) -> None:
    until = time.monotonic() + float(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) / 2
    seed, landed = a_seed(), 0
    while time.monotonic() < until:
        print(f"seed {seed}")  # noqa: T201
        world = compacted(seed, 3 + seed % 4)
        world.run()
        landed += len(world.landed)
        seed += 1
    assert landed


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("compaction"))


@dataclass
class RacedSite:
    """A site on which another process is faster, once."""

    site: MirrorSite
    race: Callable[[], object]
    loads: int = 0

    def load(self) -> MirrorVersion:
        version = self.site.load()
        self.loads += 1
        if self.loads == 1:
            self.race()
        return version


@pytest.mark.parametrize("version", [2, 3])
def test_what_merges_delete_meanwhile_is_deleted_in_the_new_files(
    version: int, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path, young_entries=4, max_runs=3)
    table = Mirrored.create(spark, lake, index=index, format_version=version)
    begun = Compacted.begin(table)
    table.change_and_merge({0: None, 7: "late", 30: "new"})
    # Of this file nothing is left: the merge removes it.
    table.change_and_merge({20: None, 21: "moved"})
    site = RacedSite(begun.site, lambda: table.change_and_merge({1: None, 8: "in a race"}))
    landed = land(begun.rewrite, site, QUICKLY)
    assert isinstance(landed, Landed)
    assert (landed.files_added, landed.files_removed, site.loads) == (1, 2, 2)
    # Rows 0, 1, 7, 8, 20 and 21.
    assert landed.late_deletes == 6
    assert table.head().operation is SnapshotOperation.REPLACE
    table.check()
    # It is done: nothing is left of the old files.
    assert isinstance(land(begun.rewrite, begun.site, QUICKLY), Abandoned)
    report = table.change_and_merge({2: "after", 9: None, 31: "after"})
    assert report.repairs == ()
    table.check()
    # A file whose rows are all gone is all that was deleted: no delete file goes for it.
    table.change_and_merge({50: "alone"})
    again = Compacted(table, rewritten(table))
    clean = land(again.rewrite, again.site, QUICKLY)
    assert isinstance(clean, Landed)
    third = Compacted.begin(table)
    table.change_and_merge({20: None, 21: None})
    unbalanced = land(third.rewrite, third.site, QUICKLY)
    assert isinstance(unbalanced, Landed)
    table.check()
    assert table.change_and_merge({0: "again", 7: None}).repairs == ()
    # The new files have more rows than the old ones that are left, deleted as they are.
    assert isinstance(land(rewritten(table), third.site, QUICKLY), Landed)
    table.change_and_merge({70: "short-lived"})
    larger = rewritten(table)
    table.change_and_merge({70: None, 2: None})
    assert isinstance(land(larger, third.site, QUICKLY), Landed)
    assert table.head().operation is SnapshotOperation.OVERWRITE
    table.check()


def test_what_others_do_meanwhile_is_kept_or_ends_the_rewrite(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path, young_entries=4, max_runs=3)
    table = Mirrored.create(spark, lake, index=index, partition_by=("city",))
    begun = Compacted.begin(table)
    table.sql("alter table {mirror} set tblproperties ('write.delete.mode'='merge-on-read')")
    table.sql("delete from {mirror} where id in (3, 8)")
    del table.expected[3], table.expected[8]
    assert isinstance(land(begun.rewrite, begun.site, QUICKLY), Landed)
    table.check()
    assert table.change_and_merge({4: None, 3: "back"}).repairs == ()
    table.check()
    truncated = rewritten(table)
    table.truncate()
    table.change_and_merge({60: "after the truncate", 61: "deleted later"})
    assert isinstance(land(truncated, begun.site, QUICKLY), Abandoned)
    table.check()
    # A table that was rolled back waits for its operator, whatever wants to land.
    table.change_and_merge({61: None})
    late = rewritten(table)
    table.call("rollback_to_snapshot", arguments=f"snapshot_id => {table.head().parent}")
    with pytest.raises(errors.RolledBackError):
        land(late, begun.site, QUICKLY)


def test_merges_land_what_waits_and_leave_large_runs_to_the_background(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path, young_entries=2, max_runs=3, upkeep_entries=1)
    table = Mirrored.create(spark, lake, index=index)
    begun = Compacted.begin(table)
    queue = LandingQueue(str(table.settings.mirror), pause_seconds=0.0)
    done = queue.put(lambda retry: land(begun.rewrite, begun.site, retry))
    merger = Merger(spark, lake, table.settings, retry=QUICKLY, between=queue.land_next)
    table.change({1: "merged first", 2: None})
    merger.merge()
    assert isinstance(done.result(timeout=0), Landed)
    assert table.head().operation is SnapshotOperation.REPLACE
    for number in range(4):
        table.change_and_merge(dict.fromkeys(range(number, number + 3), f"run {number}"))
    before = table.manifest().runs
    assert len(before) > index.max_runs
    merged = merge_index_runs(spark, lake, table.settings)
    assert merged is not None
    table.change_and_merge({5: "meanwhile", 6: None, 40: "meanwhile"})
    assert isinstance(land_runs(merged, begun.site, QUICKLY), Landed)
    assert len(table.manifest().runs) < len(before)
    table.check()
    assert isinstance(land_runs(merged, begun.site, QUICKLY), Abandoned)
    assert table.change_and_merge({5: "after", 40: None}).repairs == ()
    table.check()


def test_runs_that_merges_did_not_merge_meanwhile_still_land(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path, young_entries=1, max_runs=3, upkeep_entries=0)
    table = Mirrored.create(spark, lake, index=index)
    for number in range(5):
        table.change_and_merge(dict.fromkeys(range(number, number + 10), f"run {number}"))
    merged = merge_index_runs(spark, lake, table.settings)
    assert merged is not None
    replaced = {run.name for run in merged.replaced}
    assert len(replaced) > 3
    # This merge merges some of the same runs itself.
    index = replace(index, upkeep_entries=20)
    table.settings = replace(table.settings, index=index)
    table.change_and_merge({50: "new"})
    left = replaced & {run.name for run in table.manifest().runs}
    assert 2 <= len(left) < len(replaced)
    site = MirrorSite(spark, lake, table.settings)
    assert isinstance(land_runs(merged, site, QUICKLY), Landed)
    names = {run.name for run in table.manifest().runs}
    assert merged.run.name in names
    assert not names & replaced
    assert table.change_and_merge({0: "after", 5: None, 9: "after"}).repairs == ()
    table.check()


@pytest.mark.parametrize(
    ("merges", "pause"),
    [
        pytest.param(25, 0.0, id="briefly"),
        pytest.param(600, 1.0, id="ten minutes", marks=[pytest.mark.deep, pytest.mark.timeout(0)]),
    ],
)
def test_one_process_merges_and_compacts_all_the_time(
    merges: int, pause: float, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    index = IndexSettings(cache_dir=tmp_path, young_entries=8, max_runs=3)
    table = Mirrored.create(spark, lake, index=index)
    table.change_and_merge({key: f"first {key}" for key in range(40)})
    queue = LandingQueue(str(table.settings.mirror), pause_seconds=0.0)
    # One attempt only: a merge that met a landing would fail.
    once = RetryPolicy(attempts=1)
    merger = Merger(spark, lake, table.settings, retry=once, between=queue.land_next)
    compaction = TableCompaction(
        session=spark,
        lake=lake,
        table=table.settings.mirror,
        settings=table.settings,
        queue=queue,
    )
    with BusyCompaction(compaction).running() as busy:
        for number in range(merges):
            began = time.monotonic()
            table.change({number % 40: f"now {number}", 100 + number: "new", number - 20: None})
            assert merger.merge().repairs == ()
            busy.merged += 1
            time.sleep(max(0.0, began + pause - time.monotonic()))
        busy.stop.set()
        while busy.is_running:
            merger.merge()
            time.sleep(0.01)
    assert busy.errors == []
    # Whatever was rewritten landed, and merges went on meanwhile.
    assert busy.landed > 1
    assert busy.abandoned == []
    assert busy.merges_meanwhile > 0
    table.check()


def test_a_ledger_is_compacted_under_its_writer(
    lake_of: Callable[[Kind], LakeCase], spark: SparkSession
) -> None:
    case = lake_of(Kind.SQLITE_FILE)
    name = TableName(case.catalog, ("model",), f"ledger_{uuid4().hex[:8]}")
    case.lake.ensure_namespace(name)
    ledger = Ledger.ensure(case.lake, name)
    for number in range(1, 4):
        state = TableState(table=f"a.t{number}", identity="oid", state=Copying())
        goal = Marker(pipeline="p", source="s", position=str(number), batch=f"b{number}")
        start = str(number - 1) if number > 1 else None
        receipt = ledger.record([], start=start, goal=goal, table_states=[state])
    states, written = ledger.table_states(), receipt.marker.snapshot
    assert written is not None
    head = ledger.table.load_state().head
    assert head is not None
    files = [each.location for each in ledger.table.load_live_files(head.id)]
    compaction = TableCompaction(session=spark, lake=case.lake, table=name, is_ledger=True)
    report = compaction.compact(files)
    assert isinstance(report.landing, Landed)
    assert (report.landing.files_removed, report.landing.files_added) == (3, 1)
    assert ledger.table_states() == states
    assert not ledger.has_new_states(written)
    goal = Marker(pipeline="p", source="s", position="4", batch="b4")
    ledger.record([], start="3", goal=goal)
    assert ledger.table_states() == states


def test_the_upkeep_of_a_pipeline_compacts_its_mirrors_and_merges_their_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    document = write_document(tmp_path, files_catalog(tmp_path))
    text = document.read_text().replace("mirror: a.b, changelog: a.c", _ORDERS)
    document.write_text(f"{text}\nmaintenance: {{compact: {{min_files: 3}}}}\n")
    lake = attach_lake(spark, document)
    config = load_config(document, environ={}).config
    index = IndexSettings(cache_dir=tmp_path, young_entries=1, max_runs=8, upkeep_entries=0)
    table = Mirrored(spark, lake, settings_for(config.catalog.name, "orders", index=index))
    lake.ensure_namespace(table.settings.changelog)
    table.sql(
        "create table {changelog} (id bigint, name string, city string, "
        "cdc_operation string, cdc_sequence_number bigint) using iceberg"
    )
    for number in range(8):
        table.change_and_merge({number: "new", number + 1: "changed", number + 20: None})
    before = table.manifest()
    upkeep = PipelineUpkeep(spark, config, kinds=[JobKind.COMPACT])
    (kept,) = [each for each in upkeep.load_tables() if each.name == table.settings.mirror]
    plan = upkeep.load_plan(kept)
    assert plan is not None
    assert [type(job) for job in plan.jobs] == [CompactJob, IndexJob]
    outcomes = list(upkeep.perform(plan, stop=lambda: False))
    assert all(each.is_done for each in outcomes)
    # All but the last one, of which no row is deleted.
    assert (outcomes[0].files_removed, outcomes[0].files_added) == (len(before.files) - 1, 1)
    after = table.manifest()
    assert len(after.runs) < len(before.runs)
    table.check()
    again = upkeep.load_plan(kept)
    assert again is not None
    assert again.jobs == ()
    assert table.change_and_merge({1: "after", 2: None}).repairs == ()
    table.check()
