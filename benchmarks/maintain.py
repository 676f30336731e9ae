"""Compaction: beside Spark's rewrite of the same files, and beside a merge every second."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import SEED, Contest, facts, rows_text
from benchmarks.support.bench_lake import Shape, print_progress
from benchmarks.support.maintained_mirror import MaintainedMirror
from benchmarks.support.process_tree import measure_call
from benchmarks.support.report import Comparison, Report, Series
from frazil.hooks import SystemClock
from frazil.maintain.compaction.compactor import RewriteOptions
from frazil.maintain.compaction.landing import Landed
from frazil.maintain.compaction.running import TableCompaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.busy_compaction import BusyCompaction
    from benchmarks.support.process_tree import Usage
    from benchmarks.support.setting import Setting
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.table_name import TableName

# As many bytes a second as 1.3 times Spark.
_AT_MOST = round(1 / 1.3, 2)
_SLOTS = 2
_P99_AT_MOST = 1.3


def measure(setting: Setting) -> Report:
    """All files of a mirror that has seen merges are written again, in turns."""
    rows, merges, changes = setting.pick(small=(4_000, 3, 100), full=(4_000_000, 16, 12_500))
    turns = setting.pick(small=1, full=4)
    ours: list[Usage] = []
    theirs: list[Usage] = []
    with setting.open_lake() as lake:
        contest = Contest(lake, Shape(rows=rows), ())
        for _ in range(merges):
            contest.run(changes, is_warm_up=False)
        mirror = contest.tables.mirror
        for turn in range(turns + 1):
            copies = [lake.copy(mirror, f"{mirror.table}_{side}{turn}") for side in ("a", "b")]
            lake.settle()
            settings = replace(lake.settings(contest.tables), mirror=copies[0])
            _, usage = measure_call(partial(_compact, lake, settings))
            ours += [usage] if turn else []
            lake.settle()
            _, usage = measure_call(partial(_rewrite_by_spark, lake, copies[1]))
            theirs += [usage] if turn else []
            _check(contest, copies)
            print_progress(f"turn {turn} of {turns}")
        beside = _Beside(lake, setting)
        beside.run()
    name = f"{rows_text(rows)} in {merges + 1} commits"
    comparison = Comparison(
        Series.of(f"compaction of {name}", ours),
        Series.of(f"rewrite_data_files of {name}", theirs),
        f"at most {_AT_MOST}",
        at_most=_AT_MOST,
    )
    return Report(
        (comparison, *beside.comparisons()),
        facts={**facts([contest]), "beside_merges": beside.facts},
        broken=tuple(map(str, beside.errors)),
    )


class _Beside:
    """A merge every second, with compactions beside it that never pause, and without, by turns."""

    def __init__(self, lake: BenchLake, setting: Setting) -> None:
        rows, self._changes = setting.pick(small=(2_000, 100), full=(1_000_000, 1_000))
        self._rounds, self._merges = setting.pick(small=(1, 3), full=(3, 25))
        self._pause = setting.pick(small=0.0, full=1.0)
        self._mirror = MaintainedMirror(lake, Shape(rows=rows), seed=SEED)
        # Until the merge was committed, and until a rewrite that waited has landed, too.
        self._merged: dict[bool, list[float]] = {False: [], True: []}
        self._usages: dict[bool, list[Usage]] = {False: [], True: []}
        self.errors: list[Exception] = []
        self.facts: dict[str, object] = {}
        self._landed = self._meanwhile = 0
        self._abandoned: list[str] = []

    def run(self) -> None:
        """The first merges warm up."""
        self._mirror.load(2)
        for _ in range(3):
            self._merge()
        for _ in range(self._rounds):
            self._merge_often(None)
            with self._mirror.compacting().running() as busy:
                self._merge_often(busy)
                busy.stop.set()
                while busy.is_running:
                    self._mirror.merge()
                    SystemClock().sleep(0.05)
            self.errors += busy.errors
            self._landed += busy.landed
            self._abandoned += busy.abandoned
            self._meanwhile += busy.merges_meanwhile
        self.facts = {
            "landed": self._landed,
            "given_up": self._abandoned,
            "merges_while_one_was_rewritten": self._meanwhile,
            "merges_each": len(self._usages[True]),
        }

    def _merge_often(self, busy: BusyCompaction | None) -> None:
        clock, is_compacting = SystemClock(), busy is not None
        for _ in range(self._merges):
            began = clock.monotonic()
            seconds, usage = self._merge()
            self._merged[is_compacting].append(seconds)
            self._usages[is_compacting].append(usage)
            if busy is not None:
                busy.merged += 1
            clock.sleep(max(0.0, began + self._pause - clock.monotonic()))

    def _merge(self) -> tuple[float, Usage]:
        self._mirror.append(self._changes)
        report, usage = measure_call(self._mirror.merge)
        if report.rows_read != self._changes:
            message = f"expected {self._changes} changes, found {report.rows_read}"
            raise AssertionError(message)
        return report.seconds, usage

    def comparisons(self) -> tuple[Comparison, ...]:
        """The 99th percentiles of merges; for the record medians, and with landings."""
        name = f"merges of {self._changes:,}"
        names = {True: f"{name} beside compactions", False: f"{name} without"}
        merged = {key: Series(names[key], tuple(spent)) for key, spent in self._merged.items()}
        calls = {
            key: Series.of(f"{names[key]}, with landings", used)
            for key, used in self._usages.items()
        }
        return (
            Comparison(
                _late(merged[True]),
                _late(merged[False]),
                f"at most {_P99_AT_MOST}",
                at_most=_P99_AT_MOST,
            ),
            Comparison(merged[True], merged[False], "none; for the record"),
            Comparison(_late(calls[True]), _late(calls[False]), "none; for the record"),
        )


def _late(series: Series) -> Series:
    return Series(f"p99 of {series.name}", (percentile(series.seconds, 99),))


def percentile(seconds: Sequence[float], percent: int) -> float:
    """By nearest rank: of fewer than a hundred the 99th is the highest."""
    ordered = sorted(seconds)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _compact(lake: BenchLake, settings: MergeSettings) -> None:
    table = lake.lake.open(settings.mirror)
    head = table.load_state().head
    files = [] if head is None else [each.location for each in table.load_live_files(head.id)]
    compaction = TableCompaction(
        session=lake.session, lake=lake.lake, table=settings.mirror, settings=settings
    )
    report = compaction.compact(files, RewriteOptions(slots=_SLOTS))
    if not isinstance(report.landing, Landed):
        message = f"expected a compaction, found {report.landing}"
        raise TypeError(message)


def _rewrite_by_spark(lake: BenchLake, copy: TableName) -> None:
    lake.session.sql(
        f"call lake.system.rewrite_data_files(table => '{copy}', "
        "options => map('rewrite-all', 'true'))"
    )


def _check(contest: Contest, copies: list[TableName]) -> None:
    found = {contest.digest(copy) for copy in copies}
    if len(found) != 1:
        message = f"expected the same rows, found {found}"
        raise AssertionError(message)
