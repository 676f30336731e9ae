"""Chores of a source are done when they are due, by the process that works for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from frazil.errors import FrazilError, SourceUnavailableError
from frazil.hooks import ManualClock
from frazil.pipeline.loops.chore_thread import ChoreTurns

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Sweeping:
    """Counts how often it was done, and fails while it shall."""

    name: str = "sweeping"
    seconds: float = 3600.0
    done: int = 0
    fails: FrazilError | None = None

    def run(self) -> None:
        self.done += 1
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Standing:
    """A claim that another process has, or this one."""

    may_merge: bool = False
    turns: int = 0
    on_turn: object = field(default=None)


def test_a_standby_does_no_chores_and_begins_with_them_when_it_takes_over() -> None:
    clock, chore, claim = ManualClock(START), Sweeping(), Standing()
    turns = ChoreTurns(chore, claim, clock=clock)  # type: ignore[arg-type]
    turns.look()
    assert chore.done == 0
    claim.may_merge = True
    turns.look()
    turns.look()
    assert chore.done == 1
    clock.advance(3599.0)
    turns.look()
    assert chore.done == 1
    clock.advance(1.0)
    turns.look()
    assert chore.done == 2


def test_a_chore_that_failed_is_done_again_soon() -> None:
    clock, claim = ManualClock(START), Standing(may_merge=True)
    chore = Sweeping(fails=SourceUnavailableError("it is away."))
    turns = ChoreTurns(chore, claim, clock=clock)  # type: ignore[arg-type]
    turns.look()
    clock.advance(59.0)
    turns.look()
    assert chore.done == 1
    clock.advance(1.0)
    chore.fails = None
    turns.look()
    assert chore.done == 2
    clock.advance(60.0)
    turns.look()
    assert chore.done == 2
