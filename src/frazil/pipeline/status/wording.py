"""Quantities of a status as people read them, the same in the terminal and on the page; pure."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

from frazil.model.sizes import format_size
from frazil.pipeline.status.values import Phase, longest_lag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from frazil.pipeline.status.values import (
        CommitStatus,
        PipelineStatus,
        SourceStatus,
        TableStatus,
    )

UNKNOWN: Final = "–"

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TIMES: Final = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s"))
# Below it a tenth matters, above it none is shown.
_WITH_A_TENTH: Final = 10


def duration(seconds: float | None) -> str:
    """``420 ms``, ``4.2 s``, ``3 min 20 s``, ``2 h 5 min`` or ``3 d 4 h``."""
    if seconds is None:
        return UNKNOWN
    rounded = round(seconds)
    # What would be rounded up to the next unit is in that unit.
    if round(seconds, 1) < _WITH_A_TENTH:
        return _short(max(seconds, 0.0))
    for unit, name, smaller, smaller_name in _TIMES:
        if rounded >= unit:
            first, rest = divmod(rounded, unit)
            second = rest // smaller
            return f"{first} {name} {second} {smaller_name}" if second else f"{first} {name}"
    return f"{rounded} s"


def size(count: int | None) -> str:
    """``512 B``, ``1.5 KiB``, ``340 MiB``."""
    return UNKNOWN if count is None else format_size(count)


def number(count: int) -> str:
    """``12,345``."""
    return f"{count:,}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """``1 table``, ``12 tables``."""
    return f"{number(count)} {one if count == 1 else many or f'{one}s'}"


def rate(per_second: float) -> str:
    """``0.4/s``, ``1,204/s``."""
    tenth = per_second > 0 and round(per_second, 1) < _WITH_A_TENTH
    return f"{per_second:.1f}/s" if tenth else f"{per_second:,.0f}/s"


def clock_time(at: datetime, now: datetime) -> str:
    """The time of day in UTC; with the date, and without seconds, when it was another day."""
    there, here = at.astimezone(UTC), now.astimezone(UTC)
    return f"{there:%H:%M:%S}" if there.date() == here.date() else f"{there:%d %b %H:%M}"


def elapsed(since: datetime, now: datetime) -> str:
    """``4 s``: how long something has gone on."""
    return _whole((now - since).total_seconds())


def ago(at: datetime, now: datetime) -> str:
    """``4 s ago``."""
    passed = (now - at).total_seconds()
    return "just now" if passed < 1 else f"{_whole(passed)} ago"


def until(at: datetime, now: datetime) -> str:
    """``in 12 s``, or ``now`` when it is due."""
    left = (at - now).total_seconds()
    return "now" if left < 1 else f"in {_whole(left)}"


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


def _whole(seconds: float) -> str:
    # Seconds of an age change while they are read; a tenth of one says nothing.
    return duration(float(round(seconds))).replace(".0 s", " s")


def _short(seconds: float) -> str:
    if round(seconds, 3) >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
