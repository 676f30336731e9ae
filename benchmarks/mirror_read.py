"""What readers pay for merges: a mirror after a hundred of them, maintained, compacted, before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import SEED, Contest, facts, rows_text
from benchmarks.support.bench_lake import Shape, print_progress
from benchmarks.support.maintained_mirror import maintain_once
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Report, Series

if TYPE_CHECKING:
    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.setting import Setting
    from frazil.model.table_name import TableName

_AT_MOST = 1.3
AFTER, BEFORE, COMPACTED = "after the merges", "before any merge", "freshly compacted"
MAINTAINED = "after the merges and maintenance"


def measure(setting: Setting) -> Report:
    """Full scans and point reads, in turns; and whether the merges themselves grew slower."""
    rows, merges, changes = setting.pick(small=(4_000, 4, 100), full=(10_000_000, 100, 10_000))
    turns, points = setting.pick(small=(1, 2), full=(5, 20))
    with setting.open_lake() as lake:
        contest = Contest(lake, Shape(rows=rows), ())
        tables = {BEFORE: lake.copy(contest.tables.mirror, f"{contest.tables.mirror.table}_before")}
        for number in range(merges):
            contest.run(changes, is_warm_up=False)
            print_progress(f"merge {number + 1} of {merges}")
        tables[AFTER] = contest.tables.mirror
        tables[COMPACTED] = _compacted(lake, contest.tables.mirror)
        tables[MAINTAINED] = lake.copy(tables[AFTER], f"{tables[AFTER].table}_maintained")
        done = maintain_once(lake, replace(contest.tables, mirror=tables[MAINTAINED]))
        _check(contest, tables)
        reads = _Reads(lake, contest, tables)
        comparisons = [
            comparison
            for name, keys in (("full scan", 0), (f"{points} point reads", points))
            for comparison in reads.compare(f"{name} of {rows_text(rows)}", keys, turns)
        ]
    comparisons.append(_drift(contest, merges))
    return Report(
        tuple(comparisons), facts={**facts([contest]), "seed_of_reads": SEED, "maintenance": done}
    )


def _compacted(lake: BenchLake, mirror: TableName) -> TableName:
    copy = lake.copy(mirror, f"{mirror.table}_compacted")
    lake.session.sql(
        f"call lake.system.rewrite_data_files(table => '{copy}', "
        "options => map('rewrite-all', 'true'))"
    )
    return copy


def _check(contest: Contest, tables: dict[str, TableName]) -> None:
    found = {name: contest.digest(tables[name]) for name in (AFTER, COMPACTED, MAINTAINED)}
    if len(set(found.values())) != 1 or found[AFTER][0] != contest.feed.live:
        message = f"expected {contest.feed.live} rows, alike in all; found {found}"
        raise AssertionError(message)


class _Reads:
    """Readers of the tables, which take turns."""

    def __init__(self, lake: BenchLake, contest: Contest, tables: dict[str, TableName]) -> None:
        self._lake = lake
        self._contest = contest
        self._tables = tables
        for table in tables.values():
            lake.session.sql(f"refresh table {table.quoted}")

    def compare(self, name: str, points: int, turns: int) -> list[Comparison]:
        """Without points everything is read; the first turn is the warm-up."""
        measured: dict[str, list[Usage]] = {each: [] for each in self._tables}
        for number in range(turns + 1):
            keys = self._keys(points)
            for table in self._tables:
                self._lake.settle()
                usage = self._read(table, keys)
                measured[table] += [usage] if number else []
        series = {table: Series.of(f"{name}, {table}", used) for table, used in measured.items()}
        print_progress(", ".join(f"{each.name} {each.middle:.2f} s" for each in series.values()))
        return [
            Comparison(series[ours], series[other], f"at most {_AT_MOST}", at_most=_AT_MOST)
            for ours in (MAINTAINED, AFTER)
            for other in (COMPACTED, BEFORE)
        ]

    def _keys(self, points: int) -> list[int]:
        """Rows that all tables have."""
        if not points:
            return []
        live = self._contest.feed.draw_live(2 * points)
        return [int(key) for key in live if key < self._contest.shape.rows][:points]

    def _read(self, table: str, keys: list[int]) -> Usage:
        name = self._tables[table].quoted
        session = self._lake.session
        if not keys:
            rows = session.table(name)
            _, usage = measure_call(lambda: rows.write.format("noop").mode("overwrite").save())
            return usage

        def read() -> int:
            statement = f"select * from {name} where id = "  # noqa: S608
            return sum(len(session.sql(f"{statement}{key}").collect()) for key in keys)

        found, usage = measure_call(read)
        if found != len(keys):
            message = f"expected {len(keys)} rows, found {found} in {table}"
            raise AssertionError(message)
        return usage


def _drift(contest: Contest, merges: int) -> Comparison:
    """The last fifth of the merges compared with the second: the first one warms the JVM up."""
    usages, phases = contest.ours.usages, contest.ours.phases
    part = max(merges // 5, 1)
    return Comparison(
        Series.of("merges 81 to 100 of a hundred", usages[-part:], phases[-part:]),
        Series.of("merges 21 to 40", usages[part : 2 * part], phases[part : 2 * part]),
        goal="none; for the record",
    )
