"""A million changes from a slot: into changelogs, next to the bare stream, and into mirrors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import rows_text
from benchmarks.support.bench_lake import print_progress
from benchmarks.support.live_pipeline import LIVE_RATE_MUST, run_live
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from benchmarks.support.setting import Size
from benchmarks.support.source_changes import OPERATIONS, ROWS_A_TRANSACTION, TABLES, SourceChanges
from benchmarks.support.source_server import open_source_server
from benchmarks.table_copy import PYTHON_MIB_MUST
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.support.live_pipeline import Lived
    from benchmarks.support.setting import Setting
    from benchmarks.support.source_server import SourceServer
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.next_step import NextStep

_MILLION = 1_000_000
_MIB = 2**20
# Of the rate of pg_recvlogical: aimed for, and required.
_GOAL, _MUST = 0.7, 0.6
_PIPELINE, _LIMIT_SLOT = "stream", "bare_stream"
_LAYOUT = (
    "Every turn has changes of its own, which are in the log before they are read; ours and "
    "pg_recvlogical (the same publication and options, its own slot, bytes to /dev/null) read the "
    "same log one after the other, and who goes first alternates. Our clock goes from the start of "
    "the stream until every table, the ledger and the slot are where the log ended; the other one "
    "from its start to the position where the log ended. The live part has ingest and merges in "
    "one process, while a writer keeps some changes ahead of them; its clock stops when the last "
    "one is in its mirror, and mirrors are compared with their tables."
)


@dataclass(slots=True)
class _Contest:
    """One pipeline, and a slot for the bare stream."""

    source: SourceServer
    changes: SourceChanges
    ours: list[Usage] = field(default_factory=list)
    server: list[dict[str, float]] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Copy the tables, so that from here on there are only changes."""
        ingest, _ = self._ready()
        ingest()
        self.source.run(f"select pg_create_logical_replication_slot('{_LIMIT_SLOT}', 'pgoutput')")

    def run(self, number: int, count: int, *, is_warm_up: bool) -> None:
        """Write changes, and read them twice."""
        self.changes.write(count)
        (end,) = self.source.query_row("select pg_current_wal_lsn()")
        sides = (partial(self._run_ours, count), partial(self._run_bare, str(end)))
        for side in sides if number % 2 else sides[::-1]:
            self.source.lake.settle()
            side()
        print_progress(
            f"stream: ours {self.ours[-1].seconds:.2f} s, pg_recvlogical {self.bare[-1]:.2f} s"
        )
        if is_warm_up:
            for kept in (self.ours, self.server, self.bare, self.batches):
                kept.clear()

    def _run_ours(self, count: int) -> None:
        ingest, reports = self._ready()
        before = self.source.cpu_seconds
        _, usage = measure_call(ingest)
        self.ours.append(usage)
        self.server.append({"the server's processor": self.source.cpu_seconds - before})
        self.batches.append(len(reports))
        found: Counter[str] = Counter()
        for report in reports:
            for table in report.tables:
                found.update(table.operations)
        share = count // ROWS_A_TRANSACTION
        wanted = {operation: rows * share for operation, rows in OPERATIONS.items()}
        if found != wanted:
            message = f"expected {wanted}, found {dict(found)}"
            raise AssertionError(message)

    def _run_bare(self, end: str) -> None:
        _, usage = measure_call(
            lambda: self.source.run_programs(
                (
                    *("pg_recvlogical", "--start", "--no-loop", "--slot", _LIMIT_SLOT),
                    *("--endpos", end, "--file", "/dev/null"),
                    *("-o", "proto_version=2", "-o", f"publication_names={_PIPELINE}_frazil"),
                    *("-o", "messages=true"),
                )
            )
        )
        self.bare.append(usage.seconds)

    def _ready(self) -> tuple[Callable[[], object], list[BatchReport]]:
        """A pipeline that is ready to stream, and the list of its reports."""
        config = self.source.config(_PIPELINE, [f"public.{name}" for name in TABLES])
        capture = build_capture(self.source.lake.session, config)
        capture.ingester.start()
        reports: list[BatchReport] = []
        loop = build_ingest_loop(
            self.source.lake.session,
            config,
            capture,
            stop=StopRequest(),
            on_report=reports.append,
            on_error=_fail,
        )
        return partial(loop.run, once=True), reports


def _fail(error: Exception, _step: NextStep) -> None:
    raise AssertionError("the ingest failed") from error


def measure(setting: Setting) -> Report:
    """The bare stream and ours by turns, then the live part; all results are checked."""
    count = setting.pick(small=1_000, full=_MILLION)
    rows = setting.pick(small=2_000, full=100_000)
    warm_ups, turns = setting.pick(small=(0, 1), full=(1, 3))
    seconds = setting.pick(small=1.0, full=60.0)
    with setting.open_lake() as lake, open_source_server(lake) as source:
        contest = _Contest(source, SourceChanges(source, rows=rows))
        contest.begin()
        for number in range(warm_ups + turns):
            is_warm_up = number < warm_ups
            contest.run(number, count // (5 if is_warm_up else 1), is_warm_up=is_warm_up)
        source.run(f"select pg_drop_replication_slot('{_LIMIT_SLOT}')")
        config = source.config(_PIPELINE, [f"public.{name}" for name in TABLES])
        lived = run_live(source, config, contest.changes, seconds=seconds)
        contest.changes.check(f"lake.{_PIPELINE}")
    report = _report(contest, count, lived)
    if setting.size is Size.FULL and lived.rate <= LIVE_RATE_MUST:
        slow = f"from source to mirror are {lived.rate:,.0f} changes a second"
        report = replace(report, broken=(slow,))
    return report


def _report(contest: _Contest, count: int, lived: Lived) -> Report:
    what = rows_text(count)
    ours = Series.of(f"frazil, {what} changes into changelogs", contest.ours, contest.server)
    bare = Series(f"pg_recvlogical to nowhere, {what} changes", tuple(contest.bare))
    comparison = Comparison(
        ours,
        bare,
        goal=f"at least {_GOAL:.0%} of its rate (required {_MUST:.0%})",
        at_most=1 / _GOAL,
        must=1 / _MUST,
    )
    streaming = max(each.python_bytes for each in contest.ours) / _MIB
    living = lived.usage.python_bytes / _MIB
    figures = (
        Figure(f"frazil, {what} changes into changelogs", count / ours.middle, "changes/s"),
        Figure(f"pg_recvlogical, {what} changes", count / bare.middle, "changes/s"),
        Figure(
            f"from source to mirror, {lived.usage.seconds:.0f} s with a writer",
            lived.rate,
            "changes/s",
            f"above {LIVE_RATE_MUST:,}",
            at_least=LIVE_RATE_MUST,
        ),
        _memory(f"{what} changes into changelogs", streaming),
        _memory("from source to mirror", living),
    )
    facts = {
        "layout": _LAYOUT,
        "batches": contest.batches,
        "live": lived.facts,
    }
    return Report((comparison,), figures, facts)


def _memory(what: str, mib: float) -> Figure:
    name = f"driver and Python workers, {what}"
    return Figure(name, mib, "MiB", "under 3 GiB", at_most=PYTHON_MIB_MUST)
