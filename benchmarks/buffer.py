"""Events of a buffer database into tables, next to a COPY of the same rows to nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import rows_text
from benchmarks.support.bench_lake import catalog_document, print_progress
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from benchmarks.support.source_server import open_source_server, require_equal
from frazil.config import load_config
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import Ending, StopRequest

if TYPE_CHECKING:
    from benchmarks.support.setting import Setting
    from benchmarks.support.source_server import SourceServer
    from frazil.config import Config
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.next_step import NextStep

_MIB = 2**20
# Events a second, from the buffer to committed tables.
_RATE_GOAL = 50_000
# What the buffer's own processor takes at most with its defaults: a thousand every five seconds.
_ORIGINAL_RATE = 200
_PYTHON_MIB_GOAL = 1.5 * 1024
_PIPELINE = "buffer_bench"
_DOCUMENT = """
pipeline: {pipeline}
{catalog}
source: {{kind: buffer, dsn: '{dsn}', source_ids: [bench], backpressure: {{enabled: false}}}}
changelog: {{namespace: {pipeline}}}
"""
# As the writer of the buffer makes them.
_TABLES = (
    "create schema philotes",
    "create table philotes.cdc_events (id bigserial primary key, source_id text not null, "
    "schema_name text not null, table_name text not null, operation text not null, "
    "lsn text not null, transaction_id bigint, key_columns jsonb, before_data jsonb, "
    "after_data jsonb, metadata jsonb, event_time timestamptz not null, "
    "created_at timestamptz not null default now(), processed_at timestamptz)",
    "create index on philotes.cdc_events (source_id, created_at) where processed_at is null",
    "create index on philotes.cdc_events (processed_at) where processed_at is not null",
    "create index on philotes.cdc_events (source_id, schema_name, table_name)",
    "create index on philotes.cdc_events (source_id, lsn)",
    "create table philotes.dead_letter_events (id bigserial primary key, "
    "original_event_id bigint, source_id text not null, schema_name text not null, "
    "table_name text not null, operation text not null, event_data jsonb not null, "
    "error_message text not null, error_type text, retry_count int default 0, "
    "created_at timestamptz default now(), last_retry_at timestamptz, expires_at timestamptz)",
    "create index on philotes.dead_letter_events (original_event_id)",
)
# Transactions of ten events, each of another table.
_EVENTS = """
insert into philotes.cdc_events (
    source_id, schema_name, table_name, operation, lsn, transaction_id, key_columns, after_data,
    event_time
)
select 'bench', 'public', 'orders_' || n % {tables}, 'INSERT',
       upper(to_hex((n / 10) >> 32)) || '/' || upper(to_hex((n / 10) & 4294967295)), n / 10,
       '["id"]',
       jsonb_build_object(
           'id', n, 'quantity', n * 7919 % 100000, 'amount', ((n * 104729 % 1000000000) / 100.0),
           'name', substr(md5(n::text), 1, 20), 'placed_at', to_timestamp(n), 'is_paid', n % 3 = 0,
           'token', md5(n::text)::uuid
       ),
       timestamptz '2026-01-01 00:00:00+00' + n * interval '1 ms'
from generate_series({first}::bigint, {last}) as n
"""
_RANGE = "copy (select * from philotes.cdc_events where id between {low} and {high}) to stdout"
_IN_LAKE = "select count(*), coalesce(sum(id), 0), count(distinct id) from {table}"
_LAYOUT = (
    "The buffer is a PostgreSQL on this machine with the indexes that its writer makes, tables are "
    "in a folder. An event is an INSERT of seven columns, about 200 bytes of JSON. Every turn has "
    "events of its own, which are pending before it starts. Our clock goes from the start of the "
    "loop, over claims, tasks, commits of all tables and the ledger, and marking events as "
    "processed, to the plan that finds nothing more. The limit is psql: as many sessions as the "
    "session has tasks COPY the same rows as text to nowhere. Who goes first alternates."
)


@dataclass(slots=True)
class _Contest:
    """One buffer, its pipeline, and what both sides took."""

    source: SourceServer
    events: int
    tables: int
    ours: list[Usage] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    bare: list[Usage] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def run(self, number: int, *, is_warm_up: bool) -> None:
        """One turn of each, with events of its own."""
        first = number * self.events + 1
        last = first + self.events - 1
        events = _EVENTS.format(tables=self.tables, first=first, last=last)
        self.source.run(events, "vacuum analyze philotes.cdc_events")
        sides = (self._run_ours, partial(self._run_bare, first, last))
        for side in sides if number % 2 else sides[::-1]:
            self.source.lake.settle()
            side()
        self._check(last)
        print_progress(
            f"buffer: ours {self.ours[-1].seconds:.2f} s {self.parts[-1]}, COPY alone "
            f"{self.bare[-1].seconds:.2f} s{' (warm-up)' if is_warm_up else ''}"
        )
        if is_warm_up:
            for kept in (self.ours, self.parts, self.bare, self.batches):
                kept.clear()

    def _run_ours(self) -> None:
        session, config = self.source.lake.session, self._config()
        capture = build_capture(session, config)
        reports: list[BatchReport] = []
        loop = build_ingest_loop(
            session,
            config,
            capture,
            stop=StopRequest(),
            on_report=reports.append,
            on_error=_fail,
        )
        before = self.source.cpu_seconds
        try:
            ending, usage = measure_call(partial(loop.run, once=True))
        finally:
            capture.source.close()
            capture.claim.release()
        if ending is not Ending.DONE:
            message = f"the ingest ended with {ending}"
            raise AssertionError(message)
        self.ours.append(usage)
        self.parts.append(
            {
                "its batches": round(sum(each.seconds for each in reports), 3),
                "the server's processor": round(self.source.cpu_seconds - before, 2),
            }
        )
        self.batches.append(len(reports))

    def _run_bare(self, first: int, last: int) -> None:
        count = self.source.connections
        bounds = [first + (last + 1 - first) * at // count for at in range(count + 1)]
        copies = [_RANGE.format(low=low, high=high - 1) for low, high in pairwise(bounds)]
        programs = [("psql", "-Xq", "-c", each) for each in copies]
        _, usage = measure_call(lambda: self.source.run_programs(*programs))
        self.bare.append(usage)

    def _check(self, last: int) -> None:
        """All events of all turns so far, once, and nothing pending."""
        session = self.source.lake.session
        totals = [0, 0, 0]
        for number in range(self.tables):
            table = f"lake.{_PIPELINE}.public_orders_{number}"
            session.sql(f"refresh table {table}")
            (found,) = session.sql(_IN_LAKE.format(table=table)).collect()
            totals = [total + int(each) for total, each in zip(totals, found, strict=True)]
        require_equal("the tables", totals, (last, last * (last + 1) // 2, last))
        pending = "select count(*) from philotes.cdc_events where processed_at is null"
        require_equal("pending events", self.source.query_row(pending), (0,))

    def _config(self) -> Config:
        folder = self.source.lake.folder
        document = folder / f"{_PIPELINE}.yaml"
        document.write_text(
            _DOCUMENT.format(
                pipeline=_PIPELINE,
                catalog=catalog_document(folder),
                dsn=self.source.server.dsn,
            )
        )
        return load_config(document, environ={}).config


def _fail(error: Exception, _step: NextStep) -> None:
    raise AssertionError("the ingest failed") from error


def measure(setting: Setting) -> Report:
    """Both by turns; tables are compared with what was written."""
    events, tables = setting.pick(small=(20_000, 3), full=(1_000_000, 20))
    warm_ups, turns = setting.pick(small=(0, 1), full=(1, 3))
    with setting.open_lake() as lake, open_source_server(lake) as source:
        source.run(*_TABLES)
        contest = _Contest(source, events, tables)
        for number in range(warm_ups + turns):
            contest.run(number, is_warm_up=number < warm_ups)
    return _report(contest)


def _report(contest: _Contest) -> Report:
    what = f"{rows_text(contest.events)} events of {contest.tables} tables"
    ours = Series.of(f"frazil, {what}", contest.ours, contest.parts)
    bare = Series.of(f"psql, COPY to nowhere, {what}", contest.bare)
    rate = contest.events / ours.middle
    return Report(
        (Comparison(ours, bare, goal="none: it parses and writes nothing"),),
        (
            Figure(
                "from the buffer to committed tables",
                rate,
                "events/s",
                "at least 50,000",
                at_least=_RATE_GOAL,
            ),
            Figure(
                "times the most that the buffer's own processor takes with its defaults",
                rate / _ORIGINAL_RATE,
                "×",
            ),
            Figure(
                "driver and Python workers, the most of all turns",
                max(each.python_bytes for each in contest.ours) / _MIB,
                "MiB",
                "under 1.5 GiB",
                at_most=_PYTHON_MIB_GOAL,
            ),
        ),
        {"layout": _LAYOUT, "events": contest.events, "batches": contest.batches},
    )
