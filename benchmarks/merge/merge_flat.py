"""Ten thousand changes into tables of one, ten and forty million rows: time must not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import COPY_ON_WRITE, MERGE_ON_READ, Contest, facts, rows_text
from benchmarks.support.bench_lake import Shape
from benchmarks.support.report import Comparison, Figure, Report

if TYPE_CHECKING:
    from benchmarks.support.setting import Setting

MILLION = 1_000_000
# How many times as fast as merge-on-read: aimed for, and required.
_GOALS: dict[int, tuple[int, int | None]] = {10 * MILLION: (12, None), 40 * MILLION: (50, 30)}
_COPY_ON_WRITE_UP_TO = 10 * MILLION
_FLAT, _FLAT_MUST = 1.2, 1.3
_SECONDS = 0.5
# Spark ends Python workers that had nothing to do for a minute.
_IDLE_SECONDS = 70.0


def measure(setting: Setting) -> Report:
    """All sizes take turns, so that a busy moment or a warmer JVM favours none."""
    sizes = setting.pick(small=(2_000, 4_000), full=(MILLION, 10 * MILLION, 40 * MILLION))
    count = setting.pick(small=100, full=10_000)
    warm_ups, turns = setting.pick(small=(1, 2), full=(3, 5))
    idle = setting.pick(small=0.0, full=_IDLE_SECONDS)
    with setting.open_lake() as lake:
        contests = [Contest(lake, Shape(rows=rows), _modes(rows)) for rows in sizes]
        for number in range(warm_ups + turns):
            for contest in contests:
                contest.run(count, is_warm_up=number < warm_ups)
        for _ in range(max(turns - 2, 1)):
            contests[-1].run_after_idle(count, idle)
        for contest in contests:
            contest.check()
    return _report(contests, count)


def _modes(rows: int) -> tuple[str, ...]:
    copies = rows <= _COPY_ON_WRITE_UP_TO
    return (MERGE_ON_READ, COPY_ON_WRITE) if copies else (MERGE_ON_READ,)


def _report(contests: list[Contest], count: int) -> Report:
    ours = {each.shape.rows: each.ours.series(_name(each, count)) for each in contests}
    comparisons = []
    for each in contests:
        rows = each.shape.rows
        for mode, turns in each.theirs.items():
            goal, must = _GOALS.get(rows, (None, None)) if mode == MERGE_ON_READ else (None, None)
            text = "none; for the record" if goal is None else f"at least {goal} times as fast"
            comparisons.append(
                Comparison(
                    ours[rows],
                    turns.series(f"MERGE INTO, {mode}, {rows_text(rows)}"),
                    goal=text,
                    at_most=None if goal is None else 1 / goal,
                    must=None if must is None else 1 / must,
                )
            )
    smallest, largest = contests[0].shape.rows, contests[-1].shape.rows
    comparisons.append(
        Comparison(
            ours[largest],
            ours[smallest],
            goal=f"at most {_FLAT} (required {_FLAT_MUST})",
            at_most=_FLAT,
            must=_FLAT_MUST,
        )
    )
    after_idle = contests[-1].ours_after_idle.series(
        f"frazil, {count:,} changes into {rows_text(largest)}, after an idle minute"
    )
    comparisons.append(Comparison(after_idle, ours[largest], goal="none; for the record"))
    figures = tuple(
        Figure(
            f"one merge of {count:,} into {rows_text(rows)}", series.middle, "s", "0.5 s", _SECONDS
        )
        for rows, series in ours.items()
    )
    return Report(tuple(comparisons), figures, facts(contests))


def _name(contest: Contest, count: int) -> str:
    return f"frazil, {count:,} changes into {rows_text(contest.shape.rows)}"
