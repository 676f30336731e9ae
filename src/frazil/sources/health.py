"""How a source is at one moment, as every kind describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.errors import FrazilError

Fact: TypeAlias = str | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """How far the source itself is, and what else it says.

    ``details`` are facts by what they are about, under the names that the status has in JSON.
    ``problem`` is why a run could not continue, where an operator has to act.
    """

    newest: int
    details: Mapping[str, Mapping[str, Fact]] = field(default_factory=dict)
    problem: FrazilError | None = None


class HealthWatch(Protocol):
    """Reads the health of a source again and again; belongs to one thread."""

    def load(self) -> SourceHealth:
        """The health now; raises SourceUnavailableError and what else connecting meets."""

    def close(self) -> None:
        """End the connection."""
