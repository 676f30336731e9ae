"""A pipeline with a given state, and the board that follows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from frazil.hooks import ManualClock
from frazil.ingest.report import BatchReport, TableIngested
from frazil.ledger.table_state import State, TableState
from frazil.model.table_name import TableName
from frazil.pipeline.status.board import StatusBoard
from frazil.pipeline.status.lake_facts import LakeFacts
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from frazil.pipeline.status.values import CommitStatus, PipelineStatus, SourceStatus, TableStatus
from frazil.pipeline.tables.captured_names import CapturedNames
from frazil.sources.postgres.health import describe_health
from frazil.sources.postgres.slot.watch import SlotObservation
from tests.support.merge.scripted import report_of
from tests.support.postgres.sound import SLOT as SOUND_SLOT

if TYPE_CHECKING:
    from frazil.ingest.progress import CopyProgress

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
USERS = "public.users"
SLOT = replace(SOUND_SLOT, is_active=True, restart=10, safe_wal_bytes=4096)


@dataclass
class Pipeline:
    """An ingest and merges with a given state, and the board that follows them."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    table_states: dict[str, TableState] = field(default_factory=dict)
    progress: CopyProgress | None = None
    pending_commits: int = 0
    reached: int | None = None
    is_paused: bool = False
    received_now: tuple[int, frozenset[str]] | None = None
    merges: dict[str, MergeStatus] = field(default_factory=dict)
    merges_here: bool = True
    board: StatusBoard = field(init=False)

    def __post_init__(self) -> None:
        self.board = StatusBoard("shop", roles=("ingest", "merge"), clock=self.clock)
        self.board.follow_capture(self, self, kind="postgres", names=names_of)
        if self.merges_here:
            self.board.follow_merges(lambda: tuple(self.merges.values()))

    @property
    def followed(self) -> frozenset[str]:
        return frozenset(self.table_states)

    def received(self) -> tuple[int, frozenset[str]] | None:
        return self.received_now

    def lake_shows(self, **rows: int | None) -> None:
        """Answer what the board asks: these tables have a commit, the others are not there."""
        for question in self.board.open_questions():
            name = question.lake_table.rpartition(".")[2]
            facts = LakeFacts()
            if name in rows:
                commit = CommitStatus(
                    at=START - timedelta(days=1),
                    table=question.table,
                    role=question.role.value,
                    lake_table=question.lake_table,
                    snapshot_id=7,
                    rows=1,
                    seconds=None,
                )
                facts = LakeFacts(rows=rows[name], commits=(commit,))
            self.board.record_lake(question, facts)

    def merges_users(self) -> None:
        self.board.record_merge_start(USERS)
        self.board.record_merge(USERS, report_of("users", 1))

    def set_state(self, state: State, table: str = USERS) -> None:
        self.table_states[table] = TableState(table=table, identity="1", state=state)

    def merges_stand(self, phase: MergeStep, error: Exception | None = None) -> None:
        self.merges[USERS] = MergeStatus(
            table=USERS, phase=phase, since=START, next_run=START, error=error
        )

    def captures(self, *, is_copy: bool = False, **operations: int) -> None:
        ingested = TableIngested(
            table=USERS,
            changelog=f"{USERS}_changelog",
            start=None,
            goal="0/10",
            snapshot_id=77,
            operations=operations,
            seconds=0.5,
        )
        self.board.record_batch(
            BatchReport(
                batch="b",
                tables=(ingested,),
                acknowledged="0/10",
                seconds=0.5,
                is_copy=is_copy,
            )
        )

    def reaches(self, position: int) -> None:
        """Everything that the source has is captured."""
        self.observe(newest=position)
        self.reached = position
        self.board.record_step(10.0)

    def observe(self, newest: int) -> None:
        health = describe_health(SlotObservation(newest, SLOT), slot=SLOT.name)
        self.board.record_answer(health, asked=self.clock.monotonic())

    def status(self) -> PipelineStatus:
        self.board.observe()
        return self.board.now()

    def source(self) -> SourceStatus:
        found = self.status().source
        assert found is not None
        return found

    def users(self) -> TableStatus:
        (found,) = (each for each in self.status().tables if each.table == USERS)
        return found


def names_of(table: str) -> CapturedNames:
    schema, name = table.split(".")
    return CapturedNames(
        changelog=TableName("lake", (schema,), f"{name}_changelog"),
        mirror=TableName("lake", (schema,), name),
    )
