"""What tests may replace: the clock, randomness, and the points where a process may die.

In production each is a thin pass-through; a failpoint costs one lookup in an empty mapping.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

FAILPOINTS_VARIABLE = "FRAZIL_FAILPOINTS"

# Short enough that a released process goes on at once, long enough not to burn a core.
_HOLD_POLL_SECONDS = 0.02


class Clock(Protocol):
    """The clock that all packages use."""

    def now(self) -> datetime:
        """The wall clock, with zone UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        """Wait for the event, at most so long."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        """The wall clock, with zone UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: TID251 - the one call that really waits

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        """Wait for the event, at most so long."""
        event.wait(seconds)


class ManualClock:
    """A clock that a test moves; sleeping moves it too."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        """The time set so far."""
        return self._now

    def monotonic(self) -> float:
        """Seconds moved so far."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Move time forward instead of waiting."""
        self.advance(seconds)

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        """Move time forward if the event is not set; without a limit, wait for it."""
        if seconds is None:
            event.wait()
        elif not event.is_set():
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds


class Randomness(Protocol):
    """The randomness that all packages use."""

    def uniform(self, low: float, high: float) -> float:
        """A number between the two."""

    def token(self, length: int) -> bytes:
        """That many random bytes, for names that must not meet."""


class SystemRandomness:
    """The operating system's entropy."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        """A number between the two."""
        return self._source.uniform(low, high)

    def token(self, length: int) -> bytes:
        """That many random bytes."""
        return self._source.randbytes(length)


class SeededRandomness:
    """The same chances again for the same seed."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def uniform(self, low: float, high: float) -> float:
        """A number between the two."""
        return self._source.uniform(low, high)

    def token(self, length: int) -> bytes:
        """That many bytes, the same for the same seed."""
        return self._source.randbytes(length)


class Failpoint(StrEnum):
    """Every point where a test may interfere; a point is added in the commit that passes it."""

    SESSION_STARTED = "session.started"
    JARS_FETCHED = "jars.fetched"
    SERVICE_SPAWNED = "service.spawned"
    FILE_OPENED = "file.opened"
    FILE_CLOSED = "file.closed"
    COMMIT_PLANNED = "commit.planned"
    COMMIT_STAGED = "commit.staged"
    COMMIT_LANDED = "commit.landed"
    INGEST_PLANNED = "ingest.planned"
    INGEST_WRITTEN = "ingest.written"
    INGEST_COMMITTED = "ingest.committed"
    INGEST_RECORDED = "ingest.recorded"
    INGEST_ACKNOWLEDGED = "ingest.acknowledged"
    MERGE_FOLDED = "merge.folded"
    MERGE_WRITTEN = "merge.written"
    INDEX_WRITTEN = "index.written"
    COMPACTION_WRITTEN = "compaction.written"
    COMPACTION_TRANSLATED = "compaction.translated"
    MAINTAIN_STAGED = "maintain.staged"
    MAINTAIN_COMMITTED = "maintain.committed"
    MAINTAIN_REMOVED = "maintain.removed"


class InjectedFault(BaseException):
    """Raised by a failpoint with the action ``error``: the process ends here.

    Not an Exception, so that no recovery takes it for an error to judge and try again.
    """


class FailpointAction(StrEnum):
    """What a failpoint does when it is reached."""

    ERROR = "error"
    KILL = "kill"
    HOLD = "hold"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Interference:
    """One armed failpoint: do this, at the ``at``-th passing (0: at every one)."""

    action: FailpointAction
    argument: str
    at: int


_RULE = re.compile(
    r"(?P<name>[a-z.\-]+)=(?P<action>[a-z]+)(?:\((?P<argument>[^()]*)\))?(?:@(?P<at>[1-9][0-9]*))?"
)


def parse_failpoints(text: str) -> dict[Failpoint, Interference]:
    """Read ``name=action(argument)@n`` rules, separated by ``;``.

    ``error``, ``kill``, ``hold(FILE)`` (waits while FILE exists and creates ``FILE.reached``) and
    ``delay(SECONDS)``; ``@n`` acts at the n-th passing only. Raises ValueError on anything else,
    because a misspelt failpoint would make a test pass without testing.
    """
    armed: dict[Failpoint, Interference] = {}
    for rule in filter(None, (part.strip() for part in text.split(";"))):
        match = _RULE.fullmatch(rule)
        if match is None:
            message = f"{FAILPOINTS_VARIABLE}: {rule!r} is not name=action(argument)@n"
            raise ValueError(message)
        action = FailpointAction(match["action"])
        argument = match["argument"] or ""
        if action is FailpointAction.DELAY:
            float(argument)
        if action is FailpointAction.HOLD and not argument:
            message = f"{FAILPOINTS_VARIABLE}: hold needs the file to wait for"
            raise ValueError(message)
        armed[Failpoint(match["name"])] = Interference(action, argument, int(match["at"] or 0))
    return armed


_armed: Mapping[Failpoint, Interference] = parse_failpoints(os.environ.get(FAILPOINTS_VARIABLE, ""))
_passed: dict[Failpoint, int] = {}


@contextmanager
def armed(text: str) -> Iterator[None]:
    """Arm failpoints of this process for a while, as the variable would from its start."""
    global _armed  # noqa: PLW0603 - what is armed belongs to the process, as the variable does
    before, _armed = _armed, parse_failpoints(text)
    _passed.clear()
    try:
        yield
    finally:
        _armed = before


def failpoint(name: Failpoint) -> None:
    """Mark a point where the process may be made to fail; does nothing unless a test armed it."""
    if not _armed:
        return
    interference = _armed.get(name)
    if interference is None:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if interference.at in {0, _passed[name]}:
        _interfere(name, interference)


def _interfere(name: Failpoint, interference: Interference) -> None:
    match interference.action:
        case FailpointAction.ERROR:
            raise InjectedFault(name.value)
        case FailpointAction.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case FailpointAction.DELAY:
            SystemClock().sleep(float(interference.argument))
        case FailpointAction.HOLD:
            gate = Path(interference.argument)
            gate.with_name(f"{gate.name}.reached").touch()
            while gate.exists():
                SystemClock().sleep(_HOLD_POLL_SECONDS)
