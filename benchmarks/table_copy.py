"""The copy of a Postgres table, compared with Spark JDBC and with a bare COPY."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import rows_text
from benchmarks.support.bench_lake import print_progress
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from benchmarks.support.source_server import open_source_server, require_equal
from frazil.pipeline.capture import build_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.support.setting import Setting
    from benchmarks.support.source_server import SourceServer
    from frazil.config import Config

_MILLION = 1_000_000
_MIB = 2**20
# Times as fast as Spark's JDBC source: aimed for, and required.
_JDBC_GOAL, _JDBC_MUST = 1.5, 1.0
# Of the rate of a COPY whose output is discarded.
_LIMIT_GOAL = 0.5
PYTHON_MIB_MUST = 3 * 1024
_FETCH_ROWS = 10_000
_TABLE = "orders"
_COLUMNS = (
    "id bigint primary key, quantity integer, amount numeric(12, 2) not null, name text, "
    "placed_at timestamptz not null, is_paid boolean, score double precision, token uuid"
)
_ROWS = """
insert into orders
select n,
       case when n % 11 <> 0 then (n * 7919 % 100000)::integer end,
       (n * 104729 % 1000000000) / 100.0,
       case when n % 17 <> 0 then substr(md5(n::text), 1, 20) end,
       timestamptz '2024-01-01 00:00:00+00' + n * interval '1.000001 seconds',
       n % 3 = 0,
       (n % 1000) / 8.0,
       md5(n::text)::uuid
from generate_series(1::bigint, {rows}) as n
"""
# Every sum is exact in both engines, so that they agree to the last digit or not at all.
_AT_SOURCE = """
select count(*), sum(id), sum(quantity), sum(amount), sum(crc32(convert_to(name, 'UTF8'))),
       sum((extract(epoch from placed_at) * 1000000)::bigint), count(*) filter (where is_paid),
       sum(score), sum(crc32(convert_to(token::text, 'UTF8')))
from orders
"""
_IN_LAKE = """
select count(*), sum(id), sum(quantity), sum(amount), sum(crc32(name)),
       sum(cast(unix_micros(placed_at) as decimal(20, 0))), count_if(is_paid),
       sum(score), sum(crc32(token))
from {table}
"""
_PAGES = f"select relpages from pg_class where oid = '{_TABLE}'::regclass"  # noqa: S608
_RANGE = "copy (select * from {table} where {some}) to stdout {form}"
_LAYOUT = (
    "Each turn is a first copy: ours has a new pipeline with a slot, a publication, a ledger and a "
    "changelog of its own, and its clock goes from building the pipeline to the last commit; "
    "Spark's goes from reading the table's schema to the commit of a new Iceberg table. Both have "
    "as many connections as the session has tasks, and so has COPY, whose bytes go to /dev/null. "
    "JDBC reads ranges of the key, 10,000 rows at a time, and leaves the uuid as text. Turns "
    "alternate, and so does who goes first."
)


@dataclass(slots=True)
class _Side:
    """One way to copy, and what it took so far, warm-up left out."""

    name: str
    copy: Callable[[str], None]
    usages: list[Usage] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    # Seconds of the parts of the last turn.
    parts_seconds: dict[str, float] = field(default_factory=dict)

    def series(self) -> Series:
        return Series.of(self.name, self.usages, self.parts)

    def seconds(self) -> Series:
        """Without memory, for programs that are none of ours."""
        return Series(self.name, tuple(each.seconds for each in self.usages))


class _Contest:
    """One table at the source and all programs that copy it."""

    def __init__(self, source: SourceServer, rows: int) -> None:
        self._source = source
        self._session = source.lake.session
        self._rows = rows
        print_progress(f"making {rows:,} rows")
        source.run(
            f"create table {_TABLE} ({_COLUMNS})",
            _ROWS.format(rows=rows),
            f"vacuum (freeze, analyze) {_TABLE}",
        )
        self._truth = source.query_row(_AT_SOURCE)
        what = rows_text(rows)
        self.ours = _Side(f"frazil, {what} rows", self._copy_ours)
        self.jdbc = _Side(f"Spark JDBC + Iceberg append, {what} rows", self._copy_jdbc)
        self.binary = _Side(f"psql, COPY in binary form to nowhere, {what} rows", self._copy_binary)
        self.text = _Side(f"psql, COPY in text form to nowhere, {what} rows", self._copy_text)
        self._configs: dict[str, Config] = {}

    def run(self, number: int, *, is_warm_up: bool) -> None:
        """One turn of each; another one starts each time."""
        sides = [self.ours, self.jdbc, self.binary, self.text]
        at = number % len(sides)
        name = f"copy_{number}"
        self._configs[name] = self._source.config(name, [f"public.{_TABLE}"])
        self._session.sql(f"create namespace if not exists lake.{name}")
        results = []
        for side in (*sides[at:], *sides[:at]):
            self._source.lake.settle()
            before = self._source.cpu_seconds
            _, usage = measure_call(lambda side=side: side.copy(name))  # type: ignore[misc]
            server = self._source.cpu_seconds - before
            if not is_warm_up:
                side.usages.append(usage)
                side.parts.append({**side.parts_seconds, "the server's processor": server})
            results.append(f"{side.name.partition(',')[0]} {usage.seconds:.2f} s")
        self._check(f"lake.{name}.{_TABLE}_changelog", "where cdc_operation = 'READ'")
        self._check(f"lake.{name}.{_TABLE}_jdbc")
        self._clear(name)
        print_progress(f"copy: {', '.join(results)}{' (warm-up)' if is_warm_up else ''}")

    def _copy_ours(self, name: str) -> None:
        began = time.perf_counter()
        ingester = build_capture(self._session, self._configs[name]).ingester
        rows = 0
        try:
            ingester.start()
            self.ours.parts_seconds["founding the pipeline"] = time.perf_counter() - began
            while (report := ingester.copy_tables()) is not None:
                if report.failures:
                    raise AssertionError(dict(report.failures))
                rows += report.rows
        finally:
            ingester.close()
        if rows != self._rows:
            message = f"expected {self._rows} rows, found {rows}"
            raise AssertionError(message)

    def _copy_jdbc(self, name: str) -> None:
        server = self._source.server
        rows = self._session.read.jdbc(
            f"jdbc:postgresql://{server.host}:{server.port}/{server.database}",
            _TABLE,
            column="id",
            lowerBound=1,
            upperBound=self._rows + 1,
            numPartitions=self._source.connections,
            properties={
                "user": server.user,
                "password": server.password,
                "driver": "org.postgresql.Driver",
                "fetchsize": str(_FETCH_ROWS),
            },
        )
        # As our changelogs: the format version decides how rows are written, too.
        table = rows.writeTo(f"lake.{name}.{_TABLE}_jdbc").tableProperty("format-version", "3")
        table.create()

    def _copy_binary(self, _word: str) -> None:
        self._copy_to_nowhere("(format binary)")

    def _copy_text(self, _word: str) -> None:
        self._copy_to_nowhere("")

    def _copy_to_nowhere(self, form: str) -> None:
        (pages,) = self._source.query_row(_PAGES)
        count = self._source.connections
        edges = [number * int(str(pages)) // count for number in range(count)]
        ranges = [
            f"ctid >= '({first},0)'" + ("" if past is None else f" and ctid < '({past},0)'")
            for first, past in zip(edges, [*edges[1:], None], strict=True)
        ]
        copies = (_RANGE.format(table=_TABLE, some=some, form=form) for some in ranges)
        self._source.run_programs(*(("psql", "-Xq", "-c", each) for each in copies))

    def _check(self, table: str, where: str = "") -> None:
        self._session.sql(f"refresh table {table}")
        (found,) = self._session.sql(f"{_IN_LAKE.format(table=table)} {where}").collect()
        require_equal(table, tuple(found), self._truth)

    def _clear(self, name: str) -> None:
        self._source.end_pipeline(name)
        for table in (f"{_TABLE}_changelog", f"{_TABLE}_jdbc"):
            self._session.sql(f"drop table lake.{name}.{table} purge")


def measure(setting: Setting) -> Report:
    """All take turns on one table; results are compared with it before anything is said."""
    rows = setting.pick(small=3_000, full=5 * _MILLION)
    warm_ups, turns = setting.pick(small=(0, 1), full=(1, 4))
    with setting.open_lake() as lake, open_source_server(lake) as source:
        started = time.perf_counter()
        contest = _Contest(source, rows)
        made = time.perf_counter() - started
        for number in range(warm_ups + turns):
            contest.run(number, is_warm_up=number < warm_ups)
    return _report(contest, rows, made)


def _report(contest: _Contest, rows: int, made: float) -> Report:
    ours = contest.ours.series()
    comparisons = [
        Comparison(
            ours,
            contest.jdbc.series(),
            goal=f"at least {_JDBC_GOAL} times as fast (required {_JDBC_MUST:.0f})",
            at_most=1 / _JDBC_GOAL,
            must=1 / _JDBC_MUST,
        )
    ]
    comparisons += [
        Comparison(
            ours,
            contest.text.seconds(),
            goal=f"at least {_LIMIT_GOAL:.0%} of its rate",
            at_most=1 / _LIMIT_GOAL,
        ),
        Comparison(ours, contest.binary.seconds(), goal="none; the form in which we read"),
    ]
    what = rows_text(rows)
    python = max(each.python_bytes for each in contest.ours.usages) / _MIB
    figures = (
        Figure(f"frazil, copy of {what} rows", rows / ours.middle, "rows/s"),
        Figure(f"Spark JDBC, {what} rows", rows / contest.jdbc.series().middle, "rows/s"),
        Figure(
            f"driver and Python workers, copy of {what} rows",
            python,
            "MiB",
            "under 3 GiB",
            at_most=PYTHON_MIB_MUST,
        ),
    )
    return Report(
        tuple(comparisons), figures, {"layout": _LAYOUT, "set_up_seconds": round(made, 1)}
    )
