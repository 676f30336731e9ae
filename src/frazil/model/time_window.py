"""A window of the day in which upkeep may run, as the configuration writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

WINDOW_WORDS = "a window such as 22:00-06:00 Europe/Berlin; without a zone it is UTC"
_WINDOW = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})(?: +([A-Za-z0-9_+/-]{1,64}))?")
_HOURS, _MINUTES = 24, 60


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From one time of the day to another in a zone; it may go past midnight."""

    start: time
    end: time
    zone: str = "UTC"

    def contains(self, moment: datetime) -> bool:
        """Whether a moment with a zone is in it; its end is not."""
        local = moment.astimezone(ZoneInfo(self.zone)).time()
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end

    def seconds_until(self, moment: datetime) -> float:
        """How long until it opens; 0 while it is open. Exact but for a change of the clocks."""
        if self.contains(moment):
            return 0.0
        local = moment.astimezone(ZoneInfo(self.zone))
        opens = local.replace(
            hour=self.start.hour, minute=self.start.minute, second=0, microsecond=0
        )
        if opens <= local:
            opens += timedelta(days=1)
        return (opens - local).total_seconds()


def parse_window(text: str) -> TimeWindow:
    """Read ``22:00-06:00 Europe/Berlin``; raises ValueError on anything else."""
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(WINDOW_WORDS)
    hours, minutes = (int(match[1]), int(match[3])), (int(match[2]), int(match[4]))
    if max(hours) >= _HOURS or max(minutes) >= _MINUTES:
        raise ValueError(WINDOW_WORDS)
    zone = match[5] or "UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(WINDOW_WORDS) from None
    start, end = (time(hour, minute) for hour, minute in zip(hours, minutes, strict=True))
    if start == end:
        raise ValueError(WINDOW_WORDS)
    return TimeWindow(start, end, zone)


def seconds_until_open(windows: Sequence[TimeWindow], moment: datetime) -> float:
    """How long until the first of them opens; without any it is always open."""
    return min((each.seconds_until(moment) for each in windows), default=0.0)
