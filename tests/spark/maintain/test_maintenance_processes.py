"""Maintenance in a process of its own that is killed with its work half done."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.config import load_config
from frazil.maintain.loading import ORPHANS_PROPERTY
from frazil.merge.planning.settings import IndexSettings
from frazil.model.policy import JobKind
from frazil.pipeline.maintenance import PipelineUpkeep
from tests.support.lake.mirrored import (
    attach_lake,
    files_catalog,
    local_path,
    settings_for,
    write_document,
)
from tests.support.lake.other_readers import rows_by_duckdb, rows_by_pyiceberg
from tests.support.maintain.captured_mirror import Captured
from tests.support.merge.shop import FRAZIL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS = "mirror: shop.orders, changelog: shop.orders_changelog"
# Everything that nobody needs is old at once, but for orphans, which are made old.
SECTION = """
maintenance:
  interval: 1s
  compact: {min_files: 3, dead_rows: 100%}
  snapshots: {keep: 1ms, min: 1}
  manifests: {max: 2}
  changelog: {retain: 1ms, compact: false}
  orphans: {older_than: 1h, interval: 1h}
merge: {interval: 1s}
telemetry: {listen: '127.0.0.1:0'}
"""


@dataclass
class Kept:
    """A table that needs every kind of job, and processes that perform them."""

    table: Captured
    document: Path

    @classmethod
    def open(cls, spark: SparkSession, folder: Path) -> Kept:
        document = write_document(folder, files_catalog(folder))
        text = document.read_text().replace("mirror: a.b, changelog: a.c", ORDERS)
        document.write_text(text + SECTION)
        lake = attach_lake(spark, document)
        index = IndexSettings(cache_dir=folder, young_entries=1, max_runs=8, upkeep_entries=0)
        table = Captured(spark, lake, settings_for(lake._name, "orders", index=index))
        lake.ensure_namespace(table.settings.changelog)
        table.sql(
            "create table {changelog} (id bigint, name string, city string, "
            "cdc_operation string, cdc_sequence_number bigint) using iceberg"
        )
        return cls(table, document)

    def change(self) -> None:
        """Merges that leave small files, runs, snapshots and manifests; and old orphans."""
        table = self.table
        for number in range(8):
            table.change_and_merge({number: f"at {table.at}", number + 1: "same", 40: None})
        self.orphan().touch()
        two_hours_ago = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
        for name in ("mirror", "changelog"):
            table.sql(
                f"alter table {{{name}}} set tblproperties ('{ORPHANS_PROPERTY}'='{two_hours_ago}')"
            )
        for each in self.orphans():
            os.utime(each, (1_700_000_000, 1_700_000_000))

    def orphan(self) -> Path:
        folder = local_path(self.table.mirror.table.load_state().location) / "data"
        return folder / f"{uuid4()}-1700000000.parquet"

    def orphans(self) -> list[Path]:
        return list(self.orphan().parent.glob("*-1700000000.parquet"))

    def kill(self, job: JobKind, point: str) -> None:
        """A process that is killed there."""
        finished = self.maintain("--job", job.value, FRAZIL_FAILPOINTS=f"{point}=kill@1")
        assert finished.returncode == -signal.SIGKILL, (job, point, finished.stderr[-2_000:])
        self.check()

    def maintain(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FRAZIL, "maintain", "--once", *arguments, "-c", self.document],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def finish(self) -> None:
        """Once more to the end: nothing is left to do, and merges go on."""
        upkeep = PipelineUpkeep(self.table.spark, load_config(self.document, environ={}).config)
        for _ in range(4):
            plans = [upkeep.load_plan(each) for each in upkeep.load_tables()]
            jobs = [job for plan in plans if plan is not None for job in plan.jobs]
            if not jobs:
                break
            for plan in plans:
                if plan is not None:
                    assert all(each.is_done for each in upkeep.perform(plan, stop=lambda: False))
        assert jobs == []
        assert self.orphans() == []
        self.check()
        assert len(self.table.files("mirror")) <= 3
        # Nothing is repeated and no index is built again.
        repairs = self.table.change_and_merge({1: "after", 2: None}).repairs
        assert not any(each.rebuilt for each in repairs)
        self.table.check()

    def check(self) -> None:
        """Every reader has the rows."""
        self.table.check_rows()
        location = self.table.mirror.table.load_metadata_location()
        for read in (rows_by_pyiceberg, rows_by_duckdb):
            found = read(location).select(["id", "name", "city"]).to_pylist()
            assert {each["id"]: (each["name"], each["city"]) for each in found} == (
                self.table.expected
            )
            assert len(found) == len(self.table.expected)


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> Kept:
    return Kept.open(spark, tmp_path)


def test_a_process_that_is_killed_as_its_rewrite_lands_leaves_nothing_but_time_to_be_made_up(
    kept: Kept,
) -> None:
    kept.change()
    kept.kill(JobKind.COMPACT, "commit.landed")
    kept.finish()
