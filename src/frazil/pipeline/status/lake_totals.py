"""The last known totals of the lake, and which of its tables to load next.

Not thread-safe: its owner is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.model.marker import MarkerRole
    from frazil.pipeline.status.lake_facts import LakeFacts


@dataclass(frozen=True, slots=True)
class LakeQuestion:
    """A table of the lake to load, for the table that the status shows."""

    lake_table: str
    role: MarkerRole
    table: str


class LakeTotals:
    """By table of the lake; loaded once, and again after each commit of this process."""

    def __init__(self) -> None:
        self._facts: dict[str, LakeFacts] = {}
        self._questions: dict[str, LakeQuestion] = {}

    def want(self, lake_table: str, role: MarkerRole, table: str) -> None:
        """This table is shown: it is loaded unless it was already."""
        if lake_table not in self._facts:
            self.request(lake_table, role, table)

    def request(self, lake_table: str, role: MarkerRole, table: str) -> None:
        """There is a newer commit."""
        self._questions[lake_table] = LakeQuestion(lake_table, role, table)

    @property
    def questions(self) -> tuple[LakeQuestion, ...]:
        """What is to be loaded."""
        return tuple(self._questions.values())

    def answer(self, question: LakeQuestion, facts: LakeFacts) -> None:
        """What it shows; a commit since the request is loaded again."""
        self._facts[question.lake_table] = facts
        if self._questions.get(question.lake_table) is question:
            del self._questions[question.lake_table]

    def rows(self, lake_table: str | None) -> int | None:
        """What readers find in it; None while unknown."""
        facts = None if lake_table is None else self._facts.get(lake_table)
        return None if facts is None else facts.rows

    def was_empty(self, lake_table: str) -> bool:
        """Whether it had no commit when it was loaded; one that was not loaded yet may have."""
        facts = self._facts.get(lake_table)
        return facts is not None and not facts.commits and facts.error is None
