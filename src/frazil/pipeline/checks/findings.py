"""What a look at one part of a pipeline found: all that is in order, and all that is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.sources.postgres.problem import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.errors import FrazilError
    from frazil.pipeline.tables.captured_names import Named

# What an error of ours advises where nobody has looked yet; here somebody is looking.
_CHECK = "frazil check"
_COMMAND = "frazil "


class CheckOutcome(StrEnum):
    """What became of something that was to be looked at."""

    OK = "ok"
    SKIPPED = "skipped"
    """Nobody looked; it is said, lest it be taken for fine."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Something without a problem, and what was seen of it."""

    about: str
    found: str
    outcome: CheckOutcome = CheckOutcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One part. ``error`` is what kept us from looking; its problem is among the problems.

    ``names`` has the captured tables with what they become, as far as the source told;
    ``not_made`` are those of them in the lake that no run makes, such as the mirror of a table
    without a key.
    """

    looked_at: tuple[LookedAt, ...] = ()
    problems: tuple[Problem, ...] = ()
    error: FrazilError | None = None
    names: Mapping[str, Named] = field(default_factory=dict)
    not_made: frozenset[str] = frozenset()

    @property
    def must_be_fixed(self) -> int:
        """How many problems stop something."""
        return sum(problem.severity is Severity.STOPS for problem in self.problems)


def problem_of(error: FrazilError, *, advice: str | None = None) -> Problem:
    """An error as a problem; a command it advises stands where SQL would."""
    step = error.next_step
    command = (step,) if step is not None and step.startswith(_COMMAND) and step != _CHECK else ()
    words = advice if step is None or step.startswith(_COMMAND) else f"Next: {step}"
    sentence = error.message[:1].upper() + error.message[1:]
    said = sentence if words is None else f"{sentence} {words}"
    return Problem(Severity.STOPS, said, command, error.table)
