"""Ten thousand changes into a partitioned table, in which a fifth of the updates move their row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import MERGE_ON_READ, Race, run_race
from benchmarks.support.bench_lake import Shape

if TYPE_CHECKING:
    from benchmarks.support.report import Report
    from benchmarks.support.setting import Setting


def measure(setting: Setting) -> Report:
    """A hundred partitions by a column's value; both sides start from the compacted table."""
    race = setting.pick(
        small=Race(Shape(rows=4_000, partitions=5), changes=100, turns=1, times=20),
        full=Race(
            Shape(rows=10_000_000, partitions=100),
            changes=10_000,
            turns=5,
            times=20,
            modes=(MERGE_ON_READ,),
        ),
    )
    return run_race(setting, [race])
