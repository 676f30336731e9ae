"""A process of its own that merges on whatever master its document names.

``python cluster_merge.py DOCUMENT FOLDER``: merges in many tasks, loses one of them on the way, and
prints what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark import TaskContext

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import open_session
from frazil.config import load_config
from frazil.merge import assembly, plan
from frazil.merge.settings import IndexSettings
from frazil.merge.task import MergeJob
from tests.support.mirrored import Mirrored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from frazil.merge.report import MergeReport


class DyingJob(MergeJob):
    """Its second task does all of its work, and dies before it can tell."""

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told = list(MergeJob.run_task(self, batches))
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from told


def command(process: psutil.Process) -> str:
    """How a process was started; nothing for a worker that ends while it is asked."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def told(report: MergeReport) -> dict[str, object]:
    """Of a merge what the test asks about."""
    (commit,) = report.commits
    return {
        "counts": {action.value: count for action, count in commit.counts.items() if count},
        "files": commit.files_added,
        "repairs": [repair.reason.value for repair in commit.repairs],
    }


def work(document: Path, folder: Path) -> dict[str, object]:
    """What this process does."""
    # As if some hundreds of rows were millions.
    plan._ROWS_OF_ONE_TASK, plan._ROWS_PER_TASK = 50, 64
    config = load_config(document, environ={}).config
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
        family = psutil.Process().children(recursive=True)
        return {
            "executors": sum("CoarseGrainedExecutorBackend" in command(each) for each in family),
            "tasks": 2**tasks,
            "merges": [told(each) for each in (first, second, third)],
            "written": len(list(table.index_head().parents[1].glob("data/*.parquet"))),
        }


if __name__ == "__main__":
    done = work(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(json.dumps(done) + "\n")
