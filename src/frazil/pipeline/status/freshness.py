"""How old the state is that readers are sure to see.

The end of the source's log is read again and again. When everything up to there is captured, the
changelogs are as fresh as the question was; a mirror is, once a merge has taken what came for it.
Of a log by partition, those count that this process reads. Not thread-safe: its owner is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from frazil.sources.health import HealthFacts, LogPlace, SourceHealth

# At one a second, an hour of a source that is not captured; older ones are thinned out.
MOST_LOOKS = 3600
# The state of a server that did not answer for so long is unknown.
ANSWER_SECONDS = 5.0
# However many partitions each of them has.
_FEWEST_LOOKS = 600


def _has_reached(position: LogPlace | None, goal: LogPlace | None) -> bool:
    """Whether nothing before the goal is missing; a partition that is not there is not read."""
    if isinstance(goal, Mapping):
        known = position if isinstance(position, Mapping) else {}
        return all(known.get(name, at) >= at for name, at in goal.items())
    return goal is None or (isinstance(position, int) and position >= goal)


class _Track:
    """Observations of a source that a position has not reached yet, and the newest that it has."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, LogPlace]] = deque()
        self.position: LogPlace | None = None
        self.through: float | None = None

    def observe(self, at: float, newest: LogPlace) -> None:
        self._looks.append((at, newest))
        partitions = len(newest) if isinstance(newest, Mapping) else 1
        if len(self._looks) > max(_FEWEST_LOOKS, MOST_LOOKS // max(1, partitions)):
            self._looks = deque(list(self._looks)[::2])
        self._settle()

    def reach(self, position: LogPlace) -> None:
        # Partitions come and go with their leases.
        if isinstance(position, Mapping) or _has_reached(position, self.position):
            self.position = position
        self._settle()

    def restart(self) -> None:
        self._looks.clear()
        self.position = None

    def _settle(self) -> None:
        if self.position is None:
            return
        while self._looks and _has_reached(self.position, self._looks[0][1]):
            self.through = self._looks.popleft()[0]


class CaptureFreshness:
    """Changelogs and their source; times are seconds of one clock."""

    def __init__(self) -> None:
        self._captured, self._received = _Track(), _Track()
        self._newest: LogPlace | None = None
        # Tables without a change on its way, and the time through which that is known.
        self._idle: dict[str, float] = {}
        # Copied, and behind the others until the stream has caught up with them.
        self._joining: set[str] = set()

    @property
    def through(self) -> float | None:
        """Everything committed at the source by then is captured; None while unknown."""
        return self._captured.through

    @property
    def reached(self) -> LogPlace | None:
        """The position up to which everything is captured."""
        return self._captured.position

    def through_of(self, table: str) -> float | None:
        """The same of one table: an idle one does not wait for the batches of others."""
        captured = None if table in self._joining else self.through
        known = [each for each in (captured, self._idle.get(table)) if each is not None]
        return max(known) if known else None

    @property
    def lag_bytes(self) -> int | None:
        """The log that is not captured yet; offsets of partitions are no bytes."""
        reached = self._captured.position
        if not isinstance(self._newest, int) or not isinstance(reached, int):
            return None
        return max(0, self._newest - reached)

    def observe(self, at: float, newest: LogPlace) -> None:
        """The source's log was this far."""
        if not _has_reached(newest, self._newest):
            # Positions start again: another server, to which none of before means anything.
            self._captured.restart()
            self._received.restart()
        self._newest = newest
        self._captured.observe(at, newest)
        self._received.observe(at, newest)

    def reach(self, position: LogPlace, tables: Iterable[str] = ()) -> None:
        """Everything of these tables up to here is captured."""
        if _has_reached(position, self._captured.position):
            self._joining.difference_update(tables)
        self._captured.reach(position)

    def receive(self, position: LogPlace, idle: Iterable[str]) -> None:
        """Everything up to here was received, and nothing of the idle tables is to be written."""
        # A stream that starts again has to catch up before it says anything.
        is_caught_up = _has_reached(position, self._received.position)
        self._received.reach(position)
        if is_caught_up and self._received.through is not None:
            self._idle |= dict.fromkeys(idle, self._received.through)

    def join(self, table: str) -> None:
        """The table was copied: what happened since its snapshot comes with the stream."""
        self._idle.pop(table, None)
        self._joining.add(table)


class MirrorFreshness:
    """Mirrors compared with their changelogs; a time of None is unknown.

    ``base`` of every query is the time through which the changelogs are complete.
    """

    def __init__(self) -> None:
        # Mirrors that lack something, and how fresh each was before it came.
        self._lacking: dict[str, float | None] = {}
        # The same of what a running merge is about to take.
        self._merging: dict[str, float | None] = {}

    def expect(self, mirrors: Iterable[str], base: float | None) -> None:
        """These may lack something."""
        for mirror in mirrors:
            self._lacking.setdefault(mirror, base)

    def dismiss(self, mirror: str) -> None:
        """There is no such mirror."""
        self._lacking.pop(mirror, None)

    def begin_merge(self, mirror: str) -> None:
        """What is in the changelog now is being taken."""
        if mirror in self._lacking:
            self._merging[mirror] = self._lacking.pop(mirror)

    def end_merge(self, mirror: str) -> None:
        """It was taken."""
        self._merging.pop(mirror, None)

    def fail_merge(self, mirror: str, base: float | None) -> None:
        """It was not, or that is unknown."""
        self._lacking.setdefault(mirror, base)
        if mirror in self._merging:
            self._lacking[mirror] = self._merging.pop(mirror)

    def lacks(self, mirror: str) -> bool:
        """Whether something is on its way there."""
        return mirror in self._lacking or mirror in self._merging

    def through(self, mirror: str, base: float | None) -> float | None:
        """Readers of the mirror see everything that was committed by then."""
        for waiting in (self._merging, self._lacking):
            if mirror in waiting:
                return waiting[mirror]
        return base


class SourceAnswers:
    """The last answer; before the first one, the state is unknown since ``started_at``."""

    def __init__(self, started_at: datetime) -> None:
        self._at = started_at
        self._asked: float | None = None
        self._can_ask = True
        self._health: HealthFacts | None = None

    def record(self, health: SourceHealth, *, asked: float, at: datetime) -> None:
        """The server answered a query of this moment of the monotonic clock."""
        self._health = health.facts
        self._asked, self._at, self._can_ask = asked, at, True

    def fail(self) -> None:
        """The server did not answer."""
        self._can_ask = False

    def unknown_since(self, now: float) -> datetime | None:
        """When it answered last, if that is not now."""
        is_late = self._asked is not None and now - self._asked > ANSWER_SECONDS
        return self._at if is_late or not self._can_ask else None

    def health(self, now: float) -> HealthFacts | None:
        """What the source says of itself; None while that is unknown."""
        return self._health if self.unknown_since(now) is None else None
