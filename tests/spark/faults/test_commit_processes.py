"""Processes that are killed or paused while they commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.model.marker import MarkerRole
from tests.support.process import append_worker
from tests.support.process.jvms import QUICK_JAVA
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.demo.services import RestCatalog

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(append_worker.__file__)
# Each costs a JVM; a merge is killed at other points in test_merge_crashes, and a batch is cut with
# its files written in test_postgres_faults.
POINTS = ("file.opened", "file.closed", "commit.planned", "commit.staged", "commit.landed")


def document(folder: Path, catalog: str) -> Path:
    """A configuration whose catalog has a name of its own, for all share one session here."""
    file = folder / "worker.yaml"
    file.write_text(
        f"pipeline: races\ncatalog: {{name: races_{uuid4().hex[:8]}, {catalog}}}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n"
        "spark:\n  master: 'local[1]'\n  conf:\n    spark.driver.memory: 512m\n"
        f"    spark.driver.extraJavaOptions: '{QUICK_JAVA}'\n"
    )
    return file


def start(config: Path, who: str, goal: int, failpoints: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, WORKER, config, who, str(goal)],
        env={**os.environ, "FRAZIL_FAILPOINTS": failpoints, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(worker: subprocess.Popen[str]) -> dict[str, object]:
    output, errors = worker.communicate(timeout=180)
    assert worker.returncode == 0, errors
    report: dict[str, object] = json.loads(output)
    return report


def wait_until_ready(worker: subprocess.Popen[str]) -> None:
    assert worker.stderr is not None
    assert worker.stderr.readline() == "ready\n"


def numbers(spark: SparkSession, config_file: Path) -> LakeTable:
    """The table of the workers, opened in this process."""
    config = load_config(config_file, environ={}).config
    attach_session(spark, config)
    return append_worker.ensure_numbers(spark, config.catalog.name)


def contents(table: LakeTable) -> tuple[list[int], str]:
    """The numbers in the table and the marker's position."""
    marker = table.load_marker(MarkerRole.INGEST)
    assert marker is not None
    return sorted(row.id for row in table.read().collect()), str(marker.position)


@pytest.mark.fault("K3", "K4", "K5")
@pytest.mark.parametrize("point", sampled(POINTS, ci={"commit.landed"}))
def test_a_process_killed_at_any_step_of_a_commit_is_taken_up_by_the_next(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    catalog = f"kind: sql, uri: 'sqlite:///{tmp_path}/c.db', warehouse: 'file://{tmp_path}/wh'"
    config = document(tmp_path, catalog)
    killed = start(config, "killed", 5, f"{point}=kill@3")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    table = numbers(spark, config)
    before = 3 if point == "commit.landed" else 2
    assert contents(table) == (list(range(before)), str(before - 1))
    report = append_worker.append_until(table, "next", 5)
    assert report == {"who": "next", "committed": 6 - before, "fenced": []}
    assert contents(table) == (list(range(6)), "5")


@pytest.mark.fault("C1", "C3")
def test_two_processes_race_and_one_is_paused_in_the_middle(
    spark: SparkSession, tmp_path: Path, file_catalog: RestCatalog
) -> None:
    catalog = f"kind: rest, uri: '{file_catalog.uri}', warehouse: 'file:///unused'"
    config = document(tmp_path, catalog)
    goal = 99
    workers = [start(config, who, goal) for who in ("first", "second")]
    for worker in workers:
        wait_until_ready(worker)
    time.sleep(2)
    os.kill(workers[0].pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(workers[0].pid, signal.SIGCONT)
    reports = [ended(worker) for worker in workers]
    assert contents(numbers(spark, config)) == (list(range(goal + 1)), str(goal))
    committed = [int(str(report["committed"])) for report in reports]
    assert sum(committed) == goal + 1
    for report in reports:
        for reason in report["fenced"]:  # type: ignore[attr-defined]
            assert "marker was moved by batch" in reason
