"""The sentences about a status, the same in the terminal and on the page; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.humanize import UNKNOWN, counted, duration, number, size
from frazil.pipeline.status.values import Phase, longest_lag
from frazil.sources.health import HealthLine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.pipeline.status.values import (
        CommitStatus,
        PipelineStatus,
        SourceStatus,
        TableStatus,
    )
    from frazil.sources.health import HealthFacts, PartitionHealth

# More of them are summed up; a program finds all in the JSON.
MOST_PARTITIONS = 20


def total(counts: Mapping[str, int]) -> int:
    """All of them."""
    return sum(counts.values())


def last_commit(table: TableStatus) -> CommitStatus | None:
    """The newest commit to either of its tables."""
    return table.commits[0] if table.commits else None


def headline(status: PipelineStatus) -> str:
    """How the pipeline is, in one sentence that changes only when that does."""
    tables, stopped = status.tables, len(status.stopped)
    if stopped:
        verb = "needs" if stopped == 1 else "need"
        return f"{stopped} of {counted(len(tables), 'table')} {verb} you"
    if status.source is not None and status.source.action_required:
        return "Nothing is captured until you act"
    if not status.is_live:
        return "Not running"
    if status.source is not None and (unread := _unread(status.source)):
        return unread
    if not tables:
        return "Starting" if status.source is None else "No tables yet"
    return _going(status)


def _unread(source: SourceStatus) -> str | None:
    if source.trouble is not None:
        return "The source cannot be read now"
    return None if source.standby is None else "Standby: another process does the work"


def freshness(status: PipelineStatus) -> str | None:
    """What readers see, in sentences; None where only a running process knows."""
    if not status.is_live or not status.tables:
        return None
    loading = [each for each in status.tables if each.is_first_load]
    readable = [each for each in status.tables if not each.is_first_load]
    stopped = [each for each in readable if each.phase is Phase.STOPPED]
    going = [each for each in readable if each.phase is not Phase.STOPPED]
    known = [each for each in going if each.lag_seconds is not None]
    sentences = []
    if known:
        sentences.append(_seen(known, status, is_all=len(known) == len(status.tables)))
    if len(known) < len(going):
        unknown = counted(len(going) - len(known), "table")
        sentences.append(f"How far readers of {unknown} are behind is not known yet.")
    if stopped:
        which = "the one that is stopped" if len(stopped) == 1 else "those that are stopped"
        longest = longest_lag(stopped)
        behind = "further" if longest is None else f"at least {duration(longest)}"
        sentences.append(f"Readers of {which} are {behind} behind.")
    if loading:
        verb = "is in its" if len(loading) == 1 else "are in their"
        sentences.append(f"{counted(len(loading), 'table')} {verb} first load, without readers.")
    return " ".join(sentences)


def lag(table: TableStatus) -> str:
    """How far readers of a table are behind; of one without readers, how far it is loaded."""
    if not table.is_first_load:
        return duration(table.lag_seconds)
    share = "" if table.copy is None else f" {table.copy.fraction:.0%}"
    return f"first load{share}"


def rows(table: TableStatus) -> str:
    """How many rows readers find."""
    return UNKNOWN if table.rows is None else number(table.rows)


def _seen(known: Sequence[TableStatus], status: PipelineStatus, *, is_all: bool) -> str:
    longest = duration(longest_lag(known))
    if status.source is None:
        # Whether the changelogs have everything is the business of who fills them.
        which = "" if is_all else f" of {counted(len(known), 'table')}"
        return f"Readers{which} see what the changelogs held {longest} ago."
    others = "table" if len(known) == 1 else f"{number(len(known))} tables"
    whose = "Readers" if is_all else f"Readers of the other {others}"
    return f"{whose} see everything up to {longest} ago."


def _going(status: PipelineStatus) -> str:
    tables = status.tables
    tried = sum(each.trouble is not None for each in tables)
    if tried:
        return f"{tried} of {counted(len(tables), 'table')} will be tried again"
    copying = sum(each.phase is Phase.COPYING for each in tables)
    if copying:
        return f"Copying {copying} of {counted(len(tables), 'table')}"
    verb = "Merging" if status.source is None else "Following"
    return f"{verb} {counted(len(tables), 'table')}"


def partitions(health: HealthFacts) -> str:
    """How many there are and how far behind, together; empty without any."""
    if not health.partitions:
        return ""
    found = counted(len(health.partitions), "partition")
    holders = {each.holder for each in health.partitions if each.holder is not None}
    if holders:
        found += f" of {counted(len(holders), 'worker')}"
    lag = health.lag_records
    return found if lag is None else f"{found}, {counted(lag, 'record')} behind"


def shown_partitions(health: HealthFacts) -> tuple[PartitionHealth, ...]:
    """As many as a person reads, the one that is furthest behind first."""
    ordered = sorted(health.partitions, key=lambda each: (-(each.lag or 0), each.partition))
    return tuple(ordered[:MOST_PARTITIONS])


def health_lines(health: HealthFacts) -> tuple[HealthLine, ...]:
    """For the page: what the source says, and every partition or, of too many, what they are."""
    shown = shown_partitions(health)
    if len(health.partitions) > MOST_PARTITIONS:
        first = _partition_line(shown[0])
        where = f"{first.text} {first.note}"
        return (
            *health.lines,
            HealthLine(label="Partitions", text=partitions(health)),
            HealthLine(label="Furthest behind", text=first.label, note=where),
        )
    return (*health.lines, *map(_partition_line, shown))


def _partition_line(partition: PartitionHealth) -> HealthLine:
    lag = partition.lag
    behind = f"of {number(partition.newest)}"
    if lag is not None:
        behind += f", {counted(lag, 'record')} behind"
    if partition.holder is not None:
        behind += f", held by {partition.holder}"
    text = UNKNOWN if partition.offset is None else number(partition.offset)
    return HealthLine(label=partition.partition, text=text, note=behind)


def upkeep(status: PipelineStatus) -> str:
    """The health of all tables of the lake in one line, and the next job; empty before a look."""
    tables = status.upkeep
    if not tables:
        return ""
    files, small = (
        sum(getattr(each, name) for each in tables) for name in ("files", "small_files")
    )
    facts = [
        f"maintenance of {counted(len(tables), 'table')}",
        f"{counted(files, 'file')}, {small:,} small",
        size(sum(each.bytes for each in tables)),
        counted(sum(each.snapshots for each in tables), "snapshot"),
    ]
    waiting = [each for each in tables if each.next_job is not None]
    if waiting:
        facts.append(f"next {waiting[0].table}, {waiting[0].next_job}")
    return "  ".join(facts)


def upkeep_problems(status: PipelineStatus) -> list[str]:
    """Tables that could not be looked after, and mirrors for which changes are kept."""
    found = [
        f"{each.table} is not maintained: {each.problem}"
        for each in status.upkeep
        if each.problem is not None
    ]
    return found + [
        f"{each.table} keeps changes longer than it should, because {mirror} does not merge them"
        for each in status.upkeep
        for mirror in each.lagging
    ]
