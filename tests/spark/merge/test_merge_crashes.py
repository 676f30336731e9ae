"""Merges whose process or task dies at each step, and two of them at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.hooks import FAILPOINTS_VARIABLE
from frazil.merge.planning.settings import IndexSettings
from frazil.mirror.table import MirrorTable
from tests.support.lake.mirrored import Mirrored, attach_lake, files_catalog, write_document
from tests.support.process import merge_worker
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.merge.report import MergeReport
    from frazil.model.marker import Marker

# Four processes with a JVM each start at once.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(merge_worker.__file__)
# The step, and whether the mirror has what was merged when the process dies there.
STEPS = {
    "merge.written": False,
    "index.written": False,
    "commit.staged": False,
    "commit.landed": True,
}
# Each is a process. The histories of test_merge_model fail at all of these steps in one process.
CI_STEPS = {"merge.written", "commit.landed"}
# Killed there, a first merge has made the mirror and nothing in it.
FIRST = "merge.written"
BEFORE = {key: ("first", f"p{key % 3}") for key in range(1, 9)}


@dataclass
class Worked:
    """A table with a process that merges it."""

    table: Mirrored
    document: Path
    process: subprocess.Popen[str] | None = None

    @classmethod
    def create(cls, spark: SparkSession, folder: Path) -> Worked:
        document = write_document(folder, files_catalog(folder))
        index = IndexSettings(cache_dir=folder / "cache")
        return cls(Mirrored.create(spark, attach_lake(spark, document), index=index), document)

    def start(self, failpoints: str) -> subprocess.Popen[str]:
        """A process that merges what is pending."""
        cache = self.document.with_name("cache-of-worker")
        self.process = subprocess.Popen(
            [sys.executable, WORKER, self.document, self.table.settings.mirror.table, cache],
            env={**os.environ, FAILPOINTS_VARIABLE: failpoints, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process


def selected_steps(request: pytest.FixtureRequest) -> Iterator[str]:
    """Those of the tests that will run."""
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            if "step" in parameters:
                yield str(parameters["step"])


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Worked]]:
    """A process for each step, killed there; they run concurrently, on separate tables."""
    victims = {
        step: Worked.create(spark, tmp_path_factory.mktemp(step.replace(".", "-")))
        for step in selected_steps(request)
    }
    for step, victim in victims.items():
        if step != FIRST:
            victim.table.change_and_merge(dict.fromkeys(BEFORE, "first"))
        victim.table.change({1: "second", 2: None, 3: None, 20: "second"})
    processes = [victim.start(f"{step}=kill") for step, victim in victims.items()]
    try:
        for process in processes:
            process.communicate(timeout=240)
        yield victims
    finally:
        for process in processes:
            process.kill()


@pytest.mark.fault("K7", "K8")
@pytest.mark.parametrize("step", sampled(STEPS, ci=CI_STEPS))
def test_a_merge_that_is_killed_at_any_step_is_taken_up_by_the_next(
    killed: dict[str, Worked], step: str
) -> None:
    table, process = killed[step].table, killed[step].process
    assert process is not None
    assert process.returncode == -signal.SIGKILL
    has_landed = STEPS[step]
    before = {} if step == FIRST else BEFORE
    assert table.rows() == (table.expected if has_landed else before)
    assert len(table.merge().commits) == (0 if has_landed else 1)
    table.check()
    # Nothing of the attempt was taken over, and nothing of it is in the way.
    assert table.change_and_merge({1: "third", 20: None, 21: "third"}).repairs == ()
    table.check()


@pytest.mark.fault("K9")
def test_a_task_that_dies_fails_the_merge_and_the_next_one_does_all_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Worked.create(spark, tmp_path).table
    table.change_and_merge(dict.fromkeys(range(1, 9), "first"))
    before = table.rows()
    table.change({1: "second", 2: None, 20: "second"})
    # A worker is started with the environment of the moment; the driver's stays as it is.
    environment = spark.sparkContext.environment
    environment[FAILPOINTS_VARIABLE] = "merge.folded=kill"
    try:
        with pytest.raises(errors.WriteFailedError, match="a Spark task failed while merging"):
            table.merge()
    finally:
        del environment[FAILPOINTS_VARIABLE]
    assert table.rows() == before
    assert table.merge().repairs == ()
    table.check()


def merge_while_suspended(
    worked: Worked, gate: Path, step: str
) -> tuple[MergeReport, dict[str, object]]:
    """Let another process wait at a step, merge here, and let it go on."""
    gate.touch()
    process = worked.start(f"{step}=hold({gate})@1")
    reached = gate.with_name(f"{gate.name}.reached")
    try:
        while not reached.exists() and process.poll() is None:
            time.sleep(0.05)
        report = worked.table.merge()
        gate.unlink()
        output, said = process.communicate(timeout=120)
    finally:
        gate.unlink(missing_ok=True)
        process.kill()
    assert process.returncode == 0, said
    return report, json.loads(output)


# The command does the same in test_merge_verbs.
@pytest.mark.deep
@pytest.mark.fault("C1")
def test_of_two_processes_that_merge_one_table_at_once_only_one_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    worked = Worked.create(spark, tmp_path)
    table = worked.table
    table.change_and_merge(dict.fromkeys(range(1, 9), "first"))
    table.change({1: "second", 2: None, 20: "second"})
    ours, theirs = merge_while_suspended(worked, tmp_path / "gate", "commit.staged")
    assert len(ours.commits) == 1
    assert theirs == {"commits": 0, "error": errors.FencedError.code}
    table.check()
    assert table.change_and_merge({1: "third", 20: None}).repairs == ()
    table.check()


def test_a_first_merge_that_is_overtaken_while_it_is_prepared_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Worked.create(spark, tmp_path).table
    table.change({1: "first"})
    late = table.merger
    plan = late.load_plan()
    assert plan is not None
    position = MirrorTable.position

    def overtaken(mirror: MirrorTable) -> Marker | None:
        """The mirror was still empty when it was read, and is not when its marker is read."""
        monkeypatch.setattr(MirrorTable, "position", position)
        assert len(table.merge().commits) == 1
        return position(mirror)

    monkeypatch.setattr(MirrorTable, "position", overtaken)
    with pytest.raises(errors.CommitConflictError, match="another merge has committed"):
        late.apply(plan)
    table.check()
