"""How a source is at one moment, as every kind describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from frazil.errors import FrazilError

Fact: TypeAlias = str | int | float | bool | None
# Bytes of one log, or an offset for each partition.
LogPlace: TypeAlias = int | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLine:
    """One line of the page; ``is_well`` is None where there is nothing to judge."""

    label: str
    text: str
    note: str = ""
    is_well: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What a source says of itself, for programs and for people.

    ``details`` are facts by what they are about: fields of the source in the JSON status, and
    numbers of metrics. ``lines`` are for the page, ``summary`` for the terminal.
    """

    details: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    lines: tuple[HealthLine, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How far the source itself is, and what else it says.

    ``problem`` is why a run could not continue, where an operator has to act.
    """

    newest: LogPlace
    facts: HealthFacts | None = None
    problem: FrazilError | None = None


class HealthWatch(Protocol):
    """Reads the health of a source again and again; belongs to one thread."""

    def load(self) -> SourceHealth:
        """The health now; raises SourceUnavailableError and what else connecting meets."""

    def close(self) -> None:
        """End the connection."""
