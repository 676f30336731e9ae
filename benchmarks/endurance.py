"""A thousand merges with maintenance on: tables, index and memory stay as they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

import psutil

from benchmarks.merge.merge_contest import SEED, rows_text
from benchmarks.merge.merge_flat import MILLION
from benchmarks.support.bench_lake import Shape, print_progress
from benchmarks.support.maintained_mirror import MaintainedMirror
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from frazil.maintain.facts import KeptRole
from frazil.maintain.loading import load_facts
from frazil.maintain.settings import UpkeepSettings
from frazil.maintain.table_set import KeptTable
from frazil.merge.index_operations import load_current_target
from frazil.mirror.index.loading import KeyIndex, load_index

if TYPE_CHECKING:
    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.setting import Setting
    from frazil.model.table_name import TableName

# Snapshots are kept for a part of the run, as they are for a day of months.
_MAINTENANCE = "{snapshots: {keep: 30s, min: 10}, manifests: {max: 50}}"
_INTERVAL_SECONDS = 5.0
_SAMPLES = 20
# What has grown in the first fifth is what the table needs.
_SETTLED = 5
_MERGES_AT_MOST, _SCAN_AT_MOST, _GROWTH_AT_MOST = 1.2, 1.3, 1.2
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class _Sample:
    """Everything that must not grow."""

    data_files: int
    delete_files: int
    manifests: int
    snapshots: int
    metadata_kib: int
    index_runs: int
    open_files: int
    driver_mib: int
    java_heap_mib: int
    java_mib: int


def measure(setting: Setting) -> Report:
    """One mirror; the changelog is another writer's, who expires its snapshots."""
    rows, merges, changes = setting.pick(small=(2_000, 20, 50), full=(MILLION, 1_000, 1_000))
    merges = setting.merges or merges
    with setting.open_lake() as lake:
        run = _Run(lake, rows, changes)
        run.merge(merges)
        scan = run.compare_scans(setting.pick(small=1, full=5))
    settled = run.samples[max(len(run.samples) // _SETTLED, 1) :]
    return Report(
        (run.drift(), scan),
        tuple(_growth(settled, name) for name in asdict(settled[0])),
        facts={
            "seed": SEED,
            "merges": merges,
            "maintenance": run.maintenance,
            "samples": [asdict(each) for each in run.samples],
        },
        broken=tuple(run.errors),
    )


def _growth(samples: list[_Sample], name: str) -> Figure:
    """The second half compared with the first one: what is periodic has the same median."""
    numbers = [getattr(each, name) for each in samples]
    half = max(len(numbers) // 2, 1)
    first, last = median(numbers[:half]), median(numbers[-half:])
    label = f"{name.replace('_', ' ')}: {first:,.0f}, later {last:,.0f}"
    growth = last / max(first, 1)
    return Figure(label, growth, "×", f"at most {_GROWTH_AT_MOST}", _GROWTH_AT_MOST)


class _Run:
    """The merges of one mirror, its maintenance, and samples of both."""

    def __init__(self, lake: BenchLake, rows: int, changes: int) -> None:
        self._lake = lake
        self._changes = changes
        self._mirror = MaintainedMirror(lake, Shape(rows=rows), seed=SEED, maintenance=_MAINTENANCE)
        self._usages: list[Usage] = []
        self.samples: list[_Sample] = []
        self.maintenance: dict[str, object] = {}
        self.errors: list[str] = []

    def merge(self, merges: int) -> None:
        """Load the rows, then so many merges with samples between them."""
        mirror = self._mirror
        mirror.load(1)
        every = max(merges // _SAMPLES, 1)
        with mirror.maintained(_INTERVAL_SECONDS) as upkept:
            for number in range(1, merges + 1):
                mirror.append(self._changes)
                report, usage = measure_call(mirror.merge)
                if report.rows_read != self._changes or any(
                    each.rebuilt for each in report.repairs
                ):
                    message = f"expected {self._changes} changes, found {report}"
                    raise AssertionError(message)
                self._usages.append(usage)
                if number % every == 0:
                    self._expire_changelog()
                    self.samples.append(self._sample())
                    spent = median(each.seconds for each in self._usages[-every:])
                    print_progress(f"merge {number}: {spent:.2f} s, {self.samples[-1]}")
        self.maintenance = upkept.facts
        self.errors = upkept.errors
        found = self._lake.session.table(mirror.tables.mirror.quoted).count()
        if found != mirror.feed.live:
            message = f"expected {mirror.feed.live} rows, found {found}"
            raise AssertionError(message)

    def drift(self) -> Comparison:
        """The last tenth of the merges compared with the first, whose beginning warms up."""
        part = max(len(self._usages) // 10, 1)
        name = f"merges of {self._changes:,} into {rows_text(self._mirror.shape.rows)}"
        return Comparison(
            Series.of(f"the last {part} {name}", self._usages[-part:]),
            Series.of(f"the first {part}", self._usages[:part]),
            f"at most {_MERGES_AT_MOST}",
            at_most=_MERGES_AT_MOST,
        )

    def compare_scans(self, turns: int) -> Comparison:
        """Full scans of the mirror as it is, and of a copy that was just compacted, in turns."""
        mirror = self._mirror.tables.mirror
        copy = self._lake.copy(mirror, f"{mirror.table}_compacted")
        self._lake.session.sql(
            f"call lake.system.rewrite_data_files(table => '{copy}', "
            "options => map('rewrite-all', 'true'))"
        )
        tables = {"after the merges": mirror, "freshly compacted": copy}
        spent: dict[str, list[Usage]] = {name: [] for name in tables}
        for turn in range(turns + 1):
            for name, table in tables.items():
                self._lake.settle()
                usage = self._scan(table)
                spent[name] += [usage] if turn else []
        ours, fresh = (Series.of(f"full scan, {name}", used) for name, used in spent.items())
        return Comparison(ours, fresh, f"at most {_SCAN_AT_MOST}", at_most=_SCAN_AT_MOST)

    def _scan(self, table: TableName) -> Usage:
        self._lake.session.sql(f"refresh table {table.quoted}")
        rows = self._lake.session.table(table.quoted)
        _, usage = measure_call(lambda: rows.write.format("noop").mode("overwrite").save())
        return usage

    def _expire_changelog(self) -> None:
        self._lake.session.sql(
            f"call lake.system.expire_snapshots(table => '{self._mirror.tables.changelog}', "
            "older_than => timestamp '2099-01-01 00:00:00', retain_last => 10)"
        )

    def _sample(self) -> _Sample:
        name, settings = self._mirror.tables.mirror, self._mirror.merger.settings
        kept = KeptTable(name=name, role=KeptRole.MIRROR, settings=UpkeepSettings())
        facts = load_facts(self._lake.lake, kept)
        target = load_current_target(self._lake.lake, settings)
        index = load_index(target.mirror.table.iter_ancestry(), target.inputs, target.expected)
        if facts is None or not isinstance(index, KeyIndex):
            message = f"expected a mirror with its index, found {facts} and {index}"
            raise AssertionError(message)
        self._lake.settle()
        runtime = self._lake.session.sparkContext._jvm.Runtime.getRuntime()  # type: ignore[union-attr]  # noqa: SLF001
        driver = psutil.Process()
        (java,) = (each for each in driver.children() if each.name() == "java")
        return _Sample(
            data_files=len(facts.files),
            delete_files=facts.delete_files,
            manifests=facts.manifests,
            snapshots=len(facts.snapshots),
            metadata_kib=facts.metadata_bytes // 1024,
            index_runs=len(index.manifest.runs),
            open_files=driver.num_fds() + java.num_fds(),
            driver_mib=driver.memory_info().rss // _MIB,
            java_heap_mib=(runtime.totalMemory() - runtime.freeMemory()) // _MIB,
            java_mib=java.memory_info().rss // _MIB,
        )
