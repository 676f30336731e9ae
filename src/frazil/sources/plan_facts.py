"""What ``frazil plan`` reads of a source: its tables, and what a run would do there first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from frazil.config import TableSettings
    from frazil.errors import FrazilError
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import TableProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePreparation:
    """What a run does at the source first, or the problem that prevents it.

    ``lines`` are labels and texts for people, ``document`` is the same for programs.
    """

    lines: tuple[tuple[str, str], ...] = ()
    document: Mapping[str, object] = field(default_factory=dict)
    has_work: bool = False
    problem: FrazilError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """A table with its columns; ``no_key`` is why it has no key."""

    table: SourceTable
    no_key: str = ""
    estimated_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingChanges:
    """What waits at the source for one table; ``has_any`` is None if that is unknown.

    ``text`` says it for people where it is more than that, ``lines`` are labels and texts with the
    details, ``document`` is the same for programs.
    """

    has_any: bool | None
    text: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    document: Mapping[str, object] = field(default_factory=dict)


class PlanFacts(Protocol):
    """A source as it was at one moment; nothing of it is changed by asking."""

    @property
    def tables(self) -> Mapping[str, SourceTable]:
        """The tables that the configuration chooses, with identity and obstacle only."""

    def selects(self, table: str) -> bool:
        """Whether the configuration chooses this name, whether such a table exists or not."""

    def explain_identity_change(
        self, before: str, now: str, *, was_gone: bool = False
    ) -> tuple[str, ...]:
        """As ``Source`` does."""

    def plan_preparation(self, tables: Collection[str], since: Marker | None) -> SourcePreparation:
        """What ``Source.prepare`` would do for these tables."""

    def load_waiting(
        self, table: str, at: TableProgress, acknowledged: Position | None
    ) -> WaitingChanges:
        """What waits for a table that is there now; ``acknowledged`` is what the ledger says."""

    def describe(self, table: str, settings: TableSettings, shape: str) -> PlannedTable:
        """A table that has an identity; ``shape`` is what its changelog had before.

        Asked after what waits for it. Raises why it cannot be captured.
        """
