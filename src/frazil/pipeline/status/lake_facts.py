"""What tables of the lake show to every reader: rows, last commits, and their markers.

And the last known totals of all, with the tables to load next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from frazil.errors import FrazilError, TableNotFoundError
from frazil.model.marker import MarkerRole
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from frazil.pipeline.status.values import CommitStatus

if TYPE_CHECKING:
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.model.table_name import TableName

# The last commits, not the history.
_LAST_COMMITS: Final = 3
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class LakeFacts:
    """The rows a reader finds, the last commits, or why no run may continue from it."""

    rows: int | None = None
    commits: tuple[CommitStatus, ...] = ()
    error: FrazilError | None = None


def load_lake_facts(lake: Lake, name: TableName, role: MarkerRole | None, table: str) -> LakeFacts:
    """One table of the lake; one that is not there yet has no commits.

    What may pass is raised. Without a role its marker is not read.
    """
    try:
        opened = lake.open(name)
        newest = tuple(islice(opened.iter_ancestry(), _LAST_COMMITS))
        if role is not None:
            opened.load_marker(role)
    except TableNotFoundError:
        return LakeFacts()
    except FrazilError as error:
        if recovery_for(error).action is not RecoveryAction.NEVER:
            raise
        return LakeFacts(error=error)
    shown = (role or MarkerRole.INGEST).value
    commits = tuple(_commit(each, table, shown, str(name)) for each in newest)
    return LakeFacts(rows=readable_rows(newest[0]) if newest else 0, commits=commits)


def readable_rows(head: SnapshotFacts) -> int | None:
    """The rows that a reader finds, by the summary of the newest snapshot; None: unknown."""
    if "total-records" not in head.summary or head.count("total-equality-deletes"):
        return None
    return max(0, head.count("total-records") - head.count("total-position-deletes"))


def _commit(snapshot: SnapshotFacts, table: str, role: str, lake_table: str) -> CommitStatus:
    return CommitStatus(
        at=datetime.fromtimestamp(snapshot.committed_at / _MILLISECONDS, UTC),
        table=table,
        role=role,
        lake_table=lake_table,
        snapshot_id=snapshot.id,
        rows=snapshot.count("added-records"),
        seconds=None,
    )


@dataclass(frozen=True, slots=True)
class LakeQuestion:
    """A table of the lake to load, for the table that the status shows."""

    lake_table: str
    role: MarkerRole
    table: str


class LakeTotals:
    """By table of the lake; loaded once, and again after each commit of this process.

    Not thread-safe: its owner is.
    """

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
