"""The health of tables and what is done about it next, as the last look found them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepStatus:
    """One table of the lake.

    ``next_job`` is what it needs first, None if nothing; ``lagging`` are mirrors for which changes
    are kept longer than the retention says. ``problem`` is why the last look failed.
    """

    table: str
    role: str = ""
    files: int = 0
    small_files: int = 0
    bytes: int = 0
    dead_ratio: float = 0.0
    snapshots: int = 0
    manifests: int = 0
    next_job: str | None = None
    last_job: str | None = None
    lagging: tuple[str, ...] = ()
    problem: str | None = None


class UpkeepBoard:
    """What the maintenance loop found; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, UpkeepStatus] = {}

    def record(self, status: UpkeepStatus) -> None:
        """A table that was looked at."""
        with self._lock:
            before = self._tables.get(status.table)
            last = None if before is None else before.last_job
            self._tables[status.table] = replace(status, last_job=last)

    def record_done(self, table: str, job: str) -> None:
        """A job of a table that has ended."""
        with self._lock:
            before = self._tables.get(table, UpkeepStatus(table=table))
            self._tables[table] = replace(before, last_job=job, next_job=None)

    def record_problem(self, table: str, reason: str) -> None:
        """Why a table could not be looked after."""
        with self._lock:
            before = self._tables.get(table, UpkeepStatus(table=table))
            self._tables[table] = replace(before, problem=reason)

    def now(self) -> tuple[UpkeepStatus, ...]:
        """All tables, by name."""
        with self._lock:
            return tuple(self._tables[name] for name in sorted(self._tables))
