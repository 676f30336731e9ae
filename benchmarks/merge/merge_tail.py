"""No merge pays for upkeep: the slowest of forty, into a mirror that was loaded in eight merges."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import SEED, rows_text
from benchmarks.merge.merge_flat import MILLION
from benchmarks.support.bench_lake import Shape, print_progress
from benchmarks.support.maintained_mirror import MaintainedMirror
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Report, Series

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.maintained_mirror import Upkept
    from benchmarks.support.setting import Setting

_AT_MOST = 3.0
_LOADS = 8
# JVM and caches are cold in the first merges.
_WARM_UPS = 3
# Much more often than anybody would: everything that can be due is done in these merges.
_INTERVAL_SECONDS = 1.0


def measure(setting: Setting) -> Report:
    """Each size alone: what is compared are merges of one mirror among themselves."""
    sizes = setting.pick(small=(2_000, 4_000), full=(MILLION, 40 * MILLION))
    if setting.rows is not None:
        sizes = (MILLION, setting.rows)
    merges, changes = setting.pick(small=(4, 100), full=(40, 10_000))
    with setting.open_lake() as lake:
        tails = [_Tail(lake, rows) for rows in sizes]
        for tail in tails:
            tail.run(merges, changes)
    return Report(
        tuple(tail.comparison(changes) for tail in tails),
        facts={"seed": SEED, **{rows_text(tail.rows): tail.facts for tail in tails}},
        broken=tuple(error for tail in tails for error in tail.errors),
    )


class _Tail:
    """Merges of one mirror, one after the other, with maintenance beside them."""

    def __init__(self, lake: BenchLake, rows: int) -> None:
        self._lake = lake
        self.rows = rows
        self._mirror = MaintainedMirror(lake, Shape(rows=rows), seed=SEED)
        self._usages: list[Usage] = []
        self._phases: list[Mapping[str, float]] = []
        self.facts: dict[str, object] = {}
        self.errors: list[str] = []

    def run(self, merges: int, changes: int) -> None:
        """Load the rows, then merge; what is loaded leaves all its upkeep to these merges."""
        mirror = self._mirror
        mirror.load(_LOADS)
        for _ in range(_WARM_UPS):
            mirror.append(changes)
            mirror.merge()
        with mirror.maintained(_INTERVAL_SECONDS) as upkept:
            for number in range(merges):
                mirror.append(changes)
                report, usage = measure_call(mirror.merge)
                if report.rows_read != changes:
                    message = f"expected {changes} changes, found {report.rows_read}"
                    raise AssertionError(message)
                self._usages.append(usage)
                self._phases.append({each.value: spent for each, spent in report.phases.items()})
                print_progress(f"{mirror.shape.name}: merge {number + 1}, {usage.seconds:.2f} s")
        self._note(upkept)

    def _note(self, upkept: Upkept) -> None:
        found = self._lake.session.table(self._mirror.tables.mirror.quoted).count()
        if found != self._mirror.feed.live:
            message = f"expected {self._mirror.feed.live} rows, found {found}"
            raise AssertionError(message)
        at = max(range(len(self._usages)), key=lambda number: self._usages[number].seconds)
        self.errors = upkept.errors
        self.facts = {
            "set_up_seconds": self._mirror.tables.made,
            "maintenance": upkept.facts,
            "slowest_merge": at + 1,
            "phases_of_the_slowest": {
                name: round(spent, 3) for name, spent in self._phases[at].items()
            },
        }

    def comparison(self, changes: int) -> Comparison:
        """The slowest merge and the median of all."""
        name = f"merges of {changes:,} into {rows_text(self.rows)}"
        every = Series.of(f"{name}, all", self._usages, self._phases)
        slowest = max(each.seconds for each in self._usages)
        return Comparison(
            Series(f"{name}, the slowest", (slowest,)),
            every,
            f"at most {_AT_MOST} times the median {median(every.seconds):.2f} s",
            at_most=_AT_MOST,
        )
