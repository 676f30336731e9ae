"""Readiness: whether everything that the process depends on can be used now."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil.hooks import SystemClock
from frazil.telemetry.redaction import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.hooks import Clock

# Kubernetes gives a probe one second by default, and helm charts commonly raise it to three.
CHECK_SECONDS: Final = 2.0

# However many probes there are, a dependency is checked about once a second.
KEEP_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The dependency answers."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """The dependency cannot be used now, and why."""

    reason: str


State = Ready | NotReady

NO_CHECKS: Final = NotReady("the process is starting")


@dataclass(frozen=True, slots=True)
class ReadinessReport:
    """The state of each dependency at one moment."""

    states: Mapping[str, State]

    @property
    def ready(self) -> bool:
        """Everything answers; nothing registered yet means that the process is starting."""
        return bool(self.states) and all(isinstance(s, Ready) for s in self.states.values())


class Gate:
    """A check that fails until it is opened, for instance by the first pass of the loop."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._open = threading.Event()

    def open(self) -> None:
        """Succeed from now on."""
        self._open.set()

    def __call__(self) -> State:
        """Ready once open."""
        return Ready() if self._open.is_set() else NotReady(self._reason)


class Readiness:
    """Runs registered checks, each in a thread of its own because any of them may hang.

    Answers are kept for a second. A check that has not come back is not started again: its state
    is not ready until it does.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        check_seconds: float = CHECK_SECONDS,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._check_seconds = check_seconds
        self._keep_seconds = keep_seconds
        self._probes: dict[str, _Probe] = {}
        self._asking = threading.Lock()
        self._report = ReadinessReport({})
        self._fresh_until: float | None = None

    def add(self, name: str, check: Callable[[], State]) -> None:
        """Add a check; the same name replaces one."""
        with self._asking:
            self._probes = {**self._probes, name: _Probe(name, check)}
            self._fresh_until = None

    def report(self) -> ReadinessReport:
        """The state of everything, at most a second old. May take as long as one check may."""
        with self._asking:
            if self._fresh_until is None or self._clock.monotonic() >= self._fresh_until:
                self._report = self._ask()
                self._fresh_until = self._clock.monotonic() + self._keep_seconds
            return self._report

    def _ask(self) -> ReadinessReport:
        for probe in self._probes.values():
            probe.start()
        # All run at once, so together they get the time of one.
        end = self._clock.monotonic() + self._check_seconds
        return ReadinessReport(
            {
                name: probe.wait(max(0.0, end - self._clock.monotonic()), self._check_seconds)
                for name, probe in self._probes.items()
            }
        )


class _Probe:
    def __init__(self, name: str, check: Callable[[], State]) -> None:
        self._name = name
        self._check = check
        self._done = threading.Event()
        self._done.set()
        self._state: State = NO_CHECKS

    def start(self) -> None:
        if not self._done.is_set():
            return
        self._done.clear()
        # Not a pool's thread: those are joined at exit, and this one may never end.
        threading.Thread(target=self._run, name=f"ready {self._name}", daemon=True).start()

    def wait(self, seconds: float, allowed: float) -> State:
        if self._done.wait(seconds):
            return self._state
        return NotReady(f"no answer within {allowed:g} s")

    def _run(self) -> None:
        # The result if the check is left by something other than an Exception.
        self._state = NotReady("the check gave no answer")
        try:
            self._state = self._check()
        except Exception as error:  # noqa: BLE001 - whatever a check fails with, it is not ready
            self._state = NotReady(f"{type(error).__name__}: {text_of(error)}")
        finally:
            self._done.set()
