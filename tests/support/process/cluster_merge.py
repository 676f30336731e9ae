"""A process of its own that merges on whatever master its document names.

``python cluster_merge.py DOCUMENT FOLDER``: merges in many tasks, loses one of them on the way, has
another one done twice by speculation, and prints what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark import TaskContext

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from frazil.hooks import SystemClock
from frazil.merge import assembly
from frazil.merge.planning import plan
from frazil.merge.planning.settings import IndexSettings
from frazil.merge.writing.task import MergeJob
from tests.support.lake.mirrored import Mirrored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from frazil.merge.report import MergeReport


# A file by which the copy of a task signals the first one; executors inherit it.
FOLDER_OF_COPIES = Path(os.environ.get("FOLDER_OF_COPIES", "."))
# Any task that takes longer than the shortest one is worth a copy.
SPECULATION = {
    "FRAZIL__SPARK__CONF__spark.speculation": "true",
    "FRAZIL__SPARK__CONF__spark.speculation.interval": "100ms",
    "FRAZIL__SPARK__CONF__spark.speculation.multiplier": "1.01",
    "FRAZIL__SPARK__CONF__spark.speculation.quantile": "0.5",
    "FRAZIL__SPARK__CONF__spark.speculation.minTaskRuntime": "1s",
}
# No process may have it on its command line.
SECRET = {"FRAZIL__SPARK__CONF__spark.hadoop.example.password": "canary-of-conf"}


class DyingJob(MergeJob):
    """Its second task does all of its work, and dies before it returns a result."""

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = list(MergeJob.run_task(self, batches))
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from results


class SlowJob(MergeJob):
    """Its second task is so slow that Spark starts a copy of it; both do all of the work."""

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = list(MergeJob.run_task(self, batches))
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            copied = FOLDER_OF_COPIES / "copied"
            if context.attemptNumber() == 0:
                while not copied.exists():
                    SystemClock().sleep(0.05)
            copied.touch()
        yield from results


def summary(report: MergeReport) -> dict[str, object]:
    """The facts about a merge that the test checks."""
    (commit,) = report.commits
    return {
        "counts": {action.value: count for action, count in commit.counts.items() if count},
        "files": commit.files_added,
        "repairs": [repair.reason.value for repair in commit.repairs],
    }


def command_lines() -> Iterator[str]:
    """Of all processes: executors are no children of their driver."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield " ".join(process.cmdline())


def work(document: Path, folder: Path) -> dict[str, object]:
    """What this process does."""
    # As if some hundreds of rows were millions.
    plan._ROWS_OF_ONE_TASK, plan._ROWS_PER_TASK = 50, 64
    config = load_config(document, environ={**SPECULATION, **SECRET}).config
    with open_session(config) as spark:
        lake = Lake(spark, config.catalog.name)
        index = IndexSettings(cache_dir=folder / "cache", young_entries=64)
        table = Mirrored.create(spark, lake, index=index)
        first = table.change_and_merge(dict.fromkeys(range(400), "first"))
        assembly.MergeJob = DyingJob  # type: ignore[attr-defined]
        table.change({key: None if key % 5 == 0 else "second" for key in range(0, 500, 2)})
        tasks = plan.plan_bits(rows=250, size=0)
        second = table.merge()
        assembly.MergeJob = MergeJob  # type: ignore[attr-defined]
        table.check()
        table.index_head().unlink()
        third = table.change_and_merge({1: "third", 2: None, 1000: "third"})
        table.check()
        assembly.MergeJob = SlowJob  # type: ignore[attr-defined]
        table.change(dict.fromkeys(range(0, 400, 2), "fourth"))
        fourth = table.merge()
        assembly.MergeJob = MergeJob  # type: ignore[attr-defined]
        table.check()
        executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
        return {
            # The driver is among them.
            "executors": len(executors) - 1,
            "tasks": 2**tasks,
            "leaks": [each for each in command_lines() if "canary-of-conf" in each],
            "merges": [summary(each) for each in (first, second, third, fourth)],
            "written": len(list(table.index_head().parents[1].glob("data/*.parquet"))),
        }


if __name__ == "__main__":
    done = work(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(json.dumps(done) + "\n")
