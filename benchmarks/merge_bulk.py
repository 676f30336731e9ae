"""A million changes into ten million rows: when most of the table's files are touched anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.bench_lake import Shape
from benchmarks.merge_contest import Race, run_race

if TYPE_CHECKING:
    from benchmarks.report import Report
    from benchmarks.setting import Setting


def measure(setting: Setting) -> Report:
    """Compared with both modes of MERGE INTO."""
    race = setting.pick(
        small=Race(Shape(rows=4_000), changes=1_000, turns=1, times=4, required=3),
        full=Race(Shape(rows=10_000_000), changes=1_000_000, turns=4, times=4, required=3),
    )
    return run_race(setting, [race])
