"""Ten thousand changes into tables whose keys are uuids and text: two halves of a hash, not one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import MERGE_ON_READ, Race, run_race
from benchmarks.support.bench_lake import KeyKind, Shape

if TYPE_CHECKING:
    from benchmarks.support.report import Report
    from benchmarks.support.setting import Setting


def measure(setting: Setting) -> Report:
    """Both kinds take turns."""
    rows, changes = setting.pick(small=(2_000, 100), full=(10_000_000, 10_000))
    turns = setting.pick(small=1, full=5)
    return run_race(
        setting,
        [
            Race(
                Shape(rows=rows, key=key),
                changes=changes,
                turns=turns,
                times=20,
                modes=(MERGE_ON_READ,),
            )
            for key in (KeyKind.UUID, KeyKind.TEXT)
        ],
    )
