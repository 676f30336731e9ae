"""What came of one batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.errors import FrazilError
    from frazil.model.marker import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIngested:
    """What one table got: rows by operation, files, and its position now.

    ``snapshot_id`` is the changelog's.
    """

    table: str
    changelog: str
    start: Position | None
    goal: Position
    snapshot_id: int | None = None
    operations: Mapping[str, int] = field(default_factory=dict)
    file_sizes: tuple[int, ...] = ()
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(self.operations.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A batch that is recorded; the source was acknowledged up to ``acknowledged``.

    ``failures`` are the tables that were left out, and why; ``stopped`` the same of partitions.
    ``rejected`` counts the records that became dead letters, by table and reason; ``counts`` what
    else is counted about records of the tables here, by table and ``CountedOutcome``.
    """

    batch: str
    tables: tuple[TableIngested, ...]
    acknowledged: Position | None
    seconds: float
    is_copy: bool = False
    failures: Mapping[str, FrazilError] = field(default_factory=dict)
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stopped: Mapping[str, FrazilError] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(each.rows for each in self.tables)
