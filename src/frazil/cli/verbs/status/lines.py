"""A status as lines for a terminal or a file; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from frazil.model import humanize
from frazil.pipeline.status import wording
from frazil.pipeline.status.values import Phase

if TYPE_CHECKING:
    from datetime import datetime

    from frazil.pipeline.status.values import PipelineStatus, ProblemStatus, TableStatus

HEADER: Final = ("TABLE", "PHASE", "LAG", "ROWS", "LAST COMMIT", "SNAPSHOT", "NEXT RUN")
PARTITION_HEADER: Final = ("PARTITION", "OFFSET", "NEWEST", "LAG", "HELD BY")


def heading(status: PipelineStatus) -> str:
    """Pipeline, version and roles."""
    facts = [status.pipeline, f"frazil {status.version}"]
    if status.roles:
        facts.append(" + ".join(status.roles))
    if status.started_at is not None:
        facts.append(f"up {humanize.elapsed(status.started_at, status.at)}")
    return "  ".join(facts)


def sentence(status: PipelineStatus) -> str:
    """The headline."""
    seen = wording.freshness(status)
    return wording.headline(status) if seen is None else f"{wording.headline(status)}. {seen}"


def source_line(status: PipelineStatus) -> str | None:
    """Where changes come from and how healthy its slot is; None without a source."""
    source = status.source
    if source is None:
        return None
    facts = [f"source {source.kind}"]
    if source.lag_seconds is not None or source.lag_bytes is not None:
        facts.append(f"{_lag(source.lag_seconds, source.lag_bytes)} behind")
    if source.health is not None:
        said = (source.health.summary, wording.partitions(source.health))
        facts += [each for each in said if each]
    if source.unknown_since is not None:
        facts.append(f"unknown since {humanize.ago(source.unknown_since, status.at)}")
    if source.standby is not None:
        facts.append(f"standby: {source.standby}")
    if source.is_paused:
        facts.append("reading paused until what was read is written")
    if source.next_run is not None:
        facts.append(f"next batch {humanize.until(source.next_run, status.at)}")
    return "  ".join(facts)


def table_row(table: TableStatus, status: PipelineStatus) -> tuple[str, ...]:
    """One table under ``HEADER``."""
    commit = wording.last_commit(table)
    return (
        table.table,
        _phase(table),
        wording.lag(table) if table.is_first_load else _lag(table.lag_seconds, table.lag_bytes),
        wording.rows(table),
        humanize.UNKNOWN if commit is None else humanize.ago(commit.at, status.at),
        humanize.UNKNOWN if commit is None else str(commit.snapshot_id or humanize.UNKNOWN),
        _next_run(table, status.at),
    )


def partition_rows(status: PipelineStatus) -> list[tuple[str, ...]]:
    """The partitions of the source under ``PARTITION_HEADER``; of many those furthest behind."""
    source = status.source
    if source is None or source.health is None:
        return []
    rows: list[tuple[str, ...]] = [
        (
            each.partition,
            humanize.UNKNOWN if each.offset is None else str(each.offset),
            str(each.newest),
            humanize.UNKNOWN if each.lag is None else str(each.lag),
            each.holder or humanize.UNKNOWN,
        )
        for each in wording.shown_partitions(source.health)
    ]
    more = len(source.health.partitions) - len(rows)
    if more:
        rows.append((f"and {more} more", *[""] * (len(PARTITION_HEADER) - 1)))
    return rows


def problem_lines(status: PipelineStatus) -> list[str]:
    """What went wrong and what to do about it, the source first; none when all is well."""
    lines: list[str] = []
    source = status.source
    if source is not None and source.trouble is not None:
        about = "nothing is captured" if source.action_required else "the source cannot be read"
        lines += _problem(about, source.trouble, status.at)
    for table in status.tables:
        if table.trouble is not None:
            is_stopped = table.phase is Phase.STOPPED
            about = f"{table.table} {'is stopped' if is_stopped else 'is tried again'}"
            lines += _problem(about, table.trouble, status.at)
    return [*lines, *wording.upkeep_problems(status)]


def status_lines(status: PipelineStatus) -> list[str]:
    """Everything but the table itself, which comes between the two parts."""
    upkeep = wording.upkeep(status)
    lines = (heading(status), sentence(status), source_line(status), upkeep)
    return [line for line in lines if line]


def _problem(about: str, problem: ProblemStatus, now: datetime) -> list[str]:
    code = "" if problem.code is None else f" ({problem.code})"
    when = f"since {humanize.ago(problem.since, now)}"
    if problem.retry_at is not None:
        when += f", next try {humanize.until(problem.retry_at, now)}"
    return [f"{about} {when}{code}", f"  {problem.reason}", f"  Next: {problem.remedy}"]


def _phase(table: TableStatus) -> str:
    if table.copy is not None and table.phase is Phase.COPYING:
        left = table.copy.remaining_seconds
        rest = "" if left is None else f", {humanize.duration(left)} left"
        return f"{table.phase} {table.copy.fraction:.0%}{rest}"
    return f"{table.phase}, retrying" if _is_retried(table) else str(table.phase)


def _is_retried(table: TableStatus) -> bool:
    return table.trouble is not None and table.phase is not Phase.STOPPED


def _lag(seconds: float | None, count: int | None) -> str:
    if not count:
        return humanize.duration(seconds)
    if seconds is None:
        return humanize.size(count)
    return f"{humanize.duration(seconds)}, {humanize.size(count)}"


def _next_run(table: TableStatus, now: datetime) -> str:
    if table.phase is Phase.MERGING:
        return "runs"
    return humanize.UNKNOWN if table.next_run is None else humanize.until(table.next_run, now)
