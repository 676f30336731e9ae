"""Five million changes into forty million rows, in no more memory than was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import Contest, facts, rows_text
from benchmarks.support.bench_lake import Shape
from benchmarks.support.report import Figure, Report

if TYPE_CHECKING:
    from benchmarks.support.setting import Setting

_MIB = 2**20
# Of all Python workers together; the JVM has a heap of four gigabytes and can take no more.
_WORKERS_MUST = 2 * 1024
# The driver holds bitmaps and descriptors, whatever the table has.
_DRIVER_MUST = 1024


def measure(setting: Setting) -> Report:
    """The most that the driver and the workers had in any of the merges."""
    rows, changes, turns = setting.pick(small=(4_000, 1_000, 1), full=(40_000_000, 5_000_000, 2))
    with setting.open_lake() as lake:
        contest = Contest(lake, Shape(rows=rows), ())
        for _ in range(turns):
            contest.run(changes, is_warm_up=False)
        contest.check()
    what = f"{rows_text(changes)} changes into {rows_text(rows)} rows"
    usages = contest.ours.usages
    driver = max(each.driver_bytes for each in usages) / _MIB
    workers = max(each.worker_bytes for each in usages) / _MIB
    return Report(
        figures=(
            Figure(f"one merge of {what}", min(each.seconds for each in usages), "s"),
            Figure(
                f"all Python workers, {what}", workers, "MiB", "under 2 GiB", at_most=_WORKERS_MUST
            ),
            Figure(
                f"Python of the driver, {what}", driver, "MiB", "under 1 GiB", at_most=_DRIVER_MUST
            ),
        ),
        facts={**facts([contest]), "jvm": "driver and executors in one JVM with a heap of 4 GiB"},
    )
