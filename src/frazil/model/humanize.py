"""Sizes, counts and times as people read them: the same in every message, table and page."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

UNKNOWN: Final = "–"

# Below it a tenth matters, above it none is shown.
_WITH_A_TENTH: Final = 10
_KIBI: Final = 1024
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TIMES: Final = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s"))


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
    if count is None:
        return UNKNOWN
    amount, unit = float(max(count, 0)), 0
    # As soon as rounding would print 1024.
    while round(amount) >= _KIBI and unit < len(_SIZES) - 1:
        amount, unit = amount / _KIBI, unit + 1
    tenth = unit > 0 and round(amount, 1) < _WITH_A_TENTH
    return f"{amount:.1f} {_SIZES[unit]}" if tenth else f"{amount:.0f} {_SIZES[unit]}"


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
    return _rounded((now - since).total_seconds())


def ago(at: datetime, now: datetime) -> str:
    """``4 s ago``."""
    passed = (now - at).total_seconds()
    return "just now" if passed < 1 else f"{_rounded(passed)} ago"


def until(at: datetime, now: datetime) -> str:
    """``in 12 s``, or ``now`` when it is due."""
    left = (at - now).total_seconds()
    return "now" if left < 1 else f"in {_rounded(left)}"


def _rounded(seconds: float) -> str:
    # Seconds of an age change while they are read; a tenth of one says nothing.
    return duration(float(round(seconds))).replace(".0 s", " s")


def _short(seconds: float) -> str:
    if round(seconds, 3) >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
