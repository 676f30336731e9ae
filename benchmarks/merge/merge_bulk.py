"""A million changes into ten million rows: when most of the table's files are touched anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import Race, run_race
from benchmarks.support.bench_lake import Shape

if TYPE_CHECKING:
    from benchmarks.support.report import Report
    from benchmarks.support.setting import Setting


def measure(setting: Setting) -> Report:
    """Compared with both modes of MERGE INTO."""
    race = setting.pick(
        small=Race(Shape(rows=4_000), changes=1_000, turns=1, times=4, required=3),
        full=Race(Shape(rows=10_000_000), changes=1_000_000, turns=4, times=4, required=3),
    )
    return run_race(setting, [race])
