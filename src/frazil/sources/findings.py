"""What a check of one part of a pipeline found: what is in order, and every problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.errors import FrazilError

# What an error advises before any check was made; here one is being made.
_CHECK = "frazil check"
_COMMAND = "frazil "


class Severity(StrEnum):
    """How bad it is."""

    STOPS = "stops"
    """The pipeline cannot start; with a table named, that table cannot."""
    WARNS = "warns"
    """It works, and an operator should know."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence, and the SQL that fixes the problem where SQL can."""

    severity: Severity
    sentence: str
    sql: tuple[str, ...] = ()
    table: str | None = None


class CheckOutcome(StrEnum):
    """The result of a check that found no problem."""

    OK = "ok"
    SKIPPED = "skipped"
    """It was not checked; shown, so that it is not taken for fine."""


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """Something without a problem, and what was seen of it."""

    about: str
    found: str
    outcome: CheckOutcome = CheckOutcome.OK


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that the configuration chooses; without a key it has no mirror."""

    name: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One part. ``error`` is what prevented the check; its problem is among the problems.

    ``tables`` are those that the configuration chooses; None where no source was read.
    """

    checked: tuple[CheckedItem, ...] = ()
    problems: tuple[Problem, ...] = ()
    error: FrazilError | None = None
    tables: tuple[FoundTable, ...] | None = None

    @property
    def must_be_fixed(self) -> int:
        """How many problems stop something."""
        return sum(problem.severity is Severity.STOPS for problem in self.problems)


def stops(sentence: str, *sql: str, table: str | None = None) -> Problem:
    """A problem that must be solved first."""
    return Problem(Severity.STOPS, sentence, sql, table)


def warns(sentence: str, *sql: str, table: str | None = None) -> Problem:
    """A problem that an operator should know of."""
    return Problem(Severity.WARNS, sentence, sql, table)


def problem_of(error: FrazilError, *, advice: str | None = None) -> Problem:
    """An error as a problem; a command that it advises is shown where SQL would be."""
    step = error.next_step
    command = (step,) if step is not None and step.startswith(_COMMAND) and step != _CHECK else ()
    then = advice if step is None or step.startswith(_COMMAND) else f"Next: {step}"
    sentence = error.message[:1].upper() + error.message[1:]
    return Problem(
        Severity.STOPS,
        sentence if then is None else f"{sentence} {then}",
        command,
        error.table,
    )
