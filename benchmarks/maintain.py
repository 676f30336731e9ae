"""Compaction: our rewrite, with its landing and its index, beside Spark's of the same files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bench_lake import Shape, print_progress
from benchmarks.merge_contest import Contest, facts, rows_text
from benchmarks.process_tree import Usage, measure_call
from benchmarks.report import Comparison, Report, Series
from frazil.maintain.compaction.compactor import RewriteOptions
from frazil.maintain.compaction.landing import Landed
from frazil.maintain.compaction.running import TableCompaction

if TYPE_CHECKING:
    from benchmarks.bench_lake import BenchLake
    from benchmarks.setting import Setting
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.table_name import TableName

# As many bytes a second as 1.3 times Spark.
_AT_MOST = round(1 / 1.3, 2)
_SLOTS = 2


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
    name = f"{rows_text(rows)} in {merges + 1} commits"
    comparison = Comparison(
        Series.of(f"compaction of {name}", ours),
        Series.of(f"rewrite_data_files of {name}", theirs),
        f"at most {_AT_MOST}",
        at_most=_AT_MOST,
    )
    return Report((comparison,), facts=facts([contest]))


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
