"""Our merge compared with Iceberg's MERGE INTO: the same changes into the same files, in turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.support.bench_lake import OPERATION, KeyKind, print_progress
from benchmarks.support.change_feed import ChangeFeed
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Report, Series
from frazil.hooks import SystemClock
from frazil.merge.report import MergeAction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.support.bench_lake import BenchLake, Shape
    from benchmarks.support.setting import Setting
    from frazil.model.table_name import TableName

MERGE_ON_READ, COPY_ON_WRITE = "merge-on-read", "copy-on-write"
SEED = 20261115

LAYOUT = (
    "MERGE INTO starts from the very data files and metadata of our mirror (registered again under "
    "another name), so both have the same number of files, the same sort inside each and format "
    "version 3; its time is that of the SQL statement, ours that of the Merger.merge() call; its "
    "source is the new range of the changelog, in which no key comes twice, so that it needs no "
    "fold. The JVM collects its garbage before each turn, outside of the clock; turns alternate, "
    "and so does who goes first."
)


_ONE_FILE_CHANGES = 100_000
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Race:
    """A contest with what we aim for: so many times as fast as the faster mode of MERGE INTO."""

    shape: Shape
    changes: int
    turns: int
    times: int
    required: int | None = None
    modes: tuple[str, ...] = (MERGE_ON_READ, COPY_ON_WRITE)


@dataclass(slots=True)
class Turns:
    """What one side has done so far, warm-up left out."""

    usages: list[Usage] = field(default_factory=list)
    phases: list[Mapping[str, float]] = field(default_factory=list)

    def series(self, name: str) -> Series:
        """As a report has it."""
        return Series.of(name, self.usages, self.phases)


class Contest:
    """One shape of table, our mirror of it and one rival table for each mode of MERGE INTO."""

    def __init__(
        self, lake: BenchLake, shape: Shape, modes: tuple[str, ...], seed: int = SEED
    ) -> None:
        self._lake = lake
        self.shape = shape
        self.tables = lake.copies(shape)
        self.feed = ChangeFeed(shape.rows, seed)
        self.rivals = {mode: self._rival(mode) for mode in modes}
        self.ours = Turns()
        self.ours_after_idle = Turns()
        self.theirs = {mode: Turns() for mode in modes}
        self._turn = 0

    def run(self, count: int, *, is_warm_up: bool) -> None:
        """One batch of changes for all modes, starting with another one each time."""
        after, through = self.append(count)
        sides = [*self.rivals, None]
        at = self._turn % len(sides)
        self._turn += 1
        timings = []
        for mode in (*sides[at:], *sides[:at]):
            self._lake.settle()
            turns = Turns() if is_warm_up else self.ours if mode is None else self.theirs[mode]
            if mode is None:
                seconds = self._merge_ours(count, turns)
            else:
                seconds = self._merge_into(mode, after, through, turns)
            timings.append(f"{mode or 'ours'} {seconds:.2f} s")
        warm_up = " (warm-up)" if is_warm_up else ""
        print_progress(f"{self.shape.name}: {', '.join(timings)}{warm_up}")

    def run_after_idle(self, count: int, seconds: float) -> None:
        """One batch for all modes, of which only our merge counts, after a pause."""
        after, through = self.append(count)
        SystemClock().sleep(seconds)
        spent = self._merge_ours(count, self.ours_after_idle)
        print_progress(f"{self.shape.name}: ours {spent:.2f} s after {seconds:.0f} s without work")
        for mode in self.rivals:
            self._merge_into(mode, after, through, Turns())

    def append(self, count: int) -> tuple[int, int]:
        """Put the next changes into the changelog; the snapshots before and after."""
        session = self._lake.session
        before = self._changelog_head()
        numbers = session.createDataFrame(self.feed.draw(count))
        rows = self._lake.rows(self.shape, numbers)
        # One ingest is one task and one file, unless it is a large one.
        rows = rows.coalesce(1) if count <= _ONE_FILE_CHANGES else rows
        rows.writeTo(self.tables.changelog.quoted).append()
        return before, self._changelog_head()

    def check(self) -> None:
        """All tables have the same rows, as many as expected."""
        tables = {"ours": self.tables.mirror, **self.rivals}
        found = {name: self.digest(table) for name, table in tables.items()}
        if len(set(found.values())) != 1 or found["ours"][0] != self.feed.live:
            message = f"{self.shape.name}: expected {self.feed.live} rows, all alike; found {found}"
            raise AssertionError(message)

    def digest(self, table: TableName) -> tuple[int, str]:
        """Rows, and a sum over hashes of all their columns."""
        columns = ", ".join(self.shape.columns)
        self._lake.session.sql(f"refresh table {table.quoted}")
        ((count, total),) = self._lake.session.sql(
            f"select count(*), sum(cast(xxhash64({columns}) as decimal(38, 0))) "  # noqa: S608
            f"from {table.quoted}"
        ).collect()
        return count, str(total)

    def merge(self) -> None:
        """Our merge, unmeasured."""
        self._lake.merger(self.tables).merge()

    def _rival(self, mode: str) -> TableName:
        name = f"{self.tables.mirror.table}_{mode.replace('-', '_')}"
        rival = self._lake.copy(self.tables.mirror, name)
        self._lake.session.sql(
            f"alter table {rival.quoted} set tblproperties ('write.merge.mode' = '{mode}')"
        )
        return rival

    def _merge_ours(self, count: int, turns: Turns) -> float:
        report, usage = measure_call(self._lake.merger(self.tables).merge)
        done = Counter(report.counts)
        changed = done[MergeAction.INSERT] + done[MergeAction.UPDATE] + done[MergeAction.DELETE]
        if report.rows_read != count or changed != count:
            message = f"expected {count} changes, found {report.rows_read} and {dict(done)}"
            raise AssertionError(message)
        turns.usages.append(usage)
        turns.phases.append({phase.value: spent for phase, spent in report.phases.items()})
        return usage.seconds

    def _merge_into(self, mode: str, after: int, through: int, turns: Turns) -> float:
        session = self._lake.session
        changelog, rival = self.tables.changelog, self.rivals[mode]
        session.sql(f"refresh table {changelog.quoted}")
        session.sql(f"refresh table {rival.quoted}")
        statement = self._statement(rival, after, through)
        _, usage = measure_call(lambda: session.sql(statement))
        turns.usages.append(usage)
        return usage.seconds

    def _statement(self, rival: TableName, after: int, through: int) -> str:
        # Not a view: Spark fails to plan a MERGE from one over a range.
        changes = (
            f"(select * from {self.tables.changelog.quoted} with "  # noqa: S608
            f"(`start-snapshot-id` = '{after}', `end-snapshot-id` = '{through}'))"
        )
        columns = self.shape.columns
        others = ", ".join(f"t.{name} = s.{name}" for name in columns if name != "id")
        names = ", ".join(columns)
        values = ", ".join(f"s.{name}" for name in columns)
        return (
            f"merge into {rival.quoted} t using {changes} s on t.id = s.id "  # noqa: S608
            f"when matched and s.{OPERATION} = 'DELETE' then delete "
            f"when matched then update set {others} "
            f"when not matched and s.{OPERATION} <> 'DELETE' "
            f"then insert ({names}) values ({values})"
        )

    def _changelog_head(self) -> int:
        state = self._lake.lake.open(self.tables.changelog).load_state()
        if state.head is None:
            raise AssertionError("the changelog is empty")
        return state.head.id


def run_race(setting: Setting, races: Sequence[Race]) -> Report:
    """All of them by turns, checked, and as a report."""
    # JVM and caches are cold in the first turns of each table.
    warm_ups = setting.pick(small=1, full=2)
    with setting.open_lake() as lake:
        contests = [Contest(lake, race.shape, race.modes) for race in races]
        for number in range(warm_ups + max(race.turns for race in races)):
            for race, contest in zip(races, contests, strict=True):
                contest.run(race.changes, is_warm_up=number < warm_ups)
        for contest in contests:
            contest.check()
    comparisons = [
        comparison
        for race, contest in zip(races, contests, strict=True)
        for comparison in _comparisons(race, contest)
    ]
    return Report(tuple(comparisons), facts=facts(contests))


def facts(contests: Sequence[Contest]) -> dict[str, object]:
    """How a contest came about."""
    return {
        "seed": SEED,
        "layout": LAYOUT,
        "set_up_seconds": {each.shape.name: each.tables.made for each in contests},
    }


def rows_text(rows: int) -> str:
    """A number of rows in few characters."""
    return f"{rows // _MILLION} M" if rows >= _MILLION else f"{rows:,}"


def shape_text(shape: Shape) -> str:
    """A short description of a table."""
    parts = f" in {shape.partitions} partitions" if shape.partitions else ""
    key = "" if shape.key is KeyKind.INTEGER else f", {shape.key} key"
    return f"{rows_text(shape.rows)}{parts}{key}"


def _comparisons(race: Race, contest: Contest) -> list[Comparison]:
    where = shape_text(race.shape)
    ours = contest.ours.series(f"frazil, {race.changes:,} changes into {where}")
    required = "" if race.required is None else f" (required {race.required})"
    return [
        Comparison(
            ours,
            turns.series(f"MERGE INTO, {mode}, {where}"),
            goal=f"at least {race.times} times as fast{required}",
            at_most=1 / race.times,
            must=None if race.required is None else 1 / race.required,
        )
        for mode, turns in contest.theirs.items()
    ]
