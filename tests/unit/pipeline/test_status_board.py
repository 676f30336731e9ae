"""Both loops tell the board, and everybody sees the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from frazil import errors
from frazil.ingest.progress import WholeProgress
from frazil.ingest.report import BatchReport, TableIngested
from frazil.ledger.standing import Copying, Held, Left, Live, ResyncNeeded, State, TableStanding
from frazil.model.postgres_facts import WalStatus
from frazil.model.table_name import TableName
from frazil.pipeline import status_words as words
from frazil.pipeline.captured_names import CapturedNames
from frazil.pipeline.lake_facts import LakeFacts
from frazil.pipeline.next_step import Again, Hold
from frazil.pipeline.source_answers import ANSWER_SECONDS
from frazil.pipeline.status import CommitStatus, Phase, PipelineStatus, SourceStatus, TableState
from frazil.pipeline.status_board import SAMPLE_SECONDS, StatusBoard
from frazil.pipeline.table_status import TablePhase, TableStatus
from frazil.pipeline.throughput import WINDOW_SECONDS
from frazil.seams import ManualClock
from frazil.sources.postgres.slot_watch import SlotLook
from tests.support.merge_twins import report_of
from tests.support.postgres_sound import SLOT as SOUND_SLOT

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
USERS = "public.users"
SLOT = replace(SOUND_SLOT, is_active=True, restart=10, safe_wal_bytes=4096)


@dataclass
class Pipeline:
    """An ingest and merges that are what they are told to be, and the board that follows them."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    standings: dict[str, TableStanding] = field(default_factory=dict)
    progress: WholeProgress | None = None
    pending_commits: int = 0
    reached: int | None = None
    is_paused: bool = False
    received_now: tuple[int, frozenset[str]] | None = None
    merges: dict[str, TableStatus] = field(default_factory=dict)
    merges_here: bool = True
    board: StatusBoard = field(init=False)

    def __post_init__(self) -> None:
        self.board = StatusBoard("shop", roles=("ingest", "merge"), clock=self.clock)
        self.board.follow_capture(self, self, kind="postgres", names=names_of)
        if self.merges_here:
            self.board.follow_merges(lambda: tuple(self.merges.values()))

    @property
    def followed(self) -> frozenset[str]:
        return frozenset(self.standings)

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

    def stands(self, state: State, table: str = USERS) -> None:
        self.standings[table] = TableStanding(table=table, identity="1", state=state)

    def merges_stand(self, phase: TablePhase, error: Exception | None = None) -> None:
        self.merges[USERS] = TableStatus(
            table=USERS, phase=phase, since=START, next_run=START, error=error
        )

    def captures(self, *, is_whole: bool = False, **operations: int) -> None:
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
                is_whole=is_whole,
            )
        )

    def reaches(self, position: int) -> None:
        """Everything that the source has is captured."""
        self.looks(newest=position)
        self.reached = position
        self.board.record_step(10.0)

    def looks(self, newest: int) -> None:
        self.board.record_look(SlotLook(newest, SLOT), asked=self.clock.monotonic())

    def status(self) -> PipelineStatus:
        return self.board.now()

    def source(self) -> SourceStatus:
        found = self.status().source
        assert found is not None
        return found

    def users(self) -> TableState:
        (found,) = (each for each in self.status().tables if each.table == USERS)
        return found


def names_of(table: str) -> CapturedNames:
    schema, name = table.split(".")
    return CapturedNames(
        changelog=TableName("lake", (schema,), f"{name}_changelog"),
        mirror=TableName("lake", (schema,), name),
    )


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (Copying(), Phase.COPYING),
        (Live(), Phase.STREAMING),
        (Held("0/1", "FRZ-SCH-01 x"), Phase.STOPPED),
        (ResyncNeeded("0/1", "why"), Phase.STOPPED),
        (Copying("FRZ-SCH-02 x"), Phase.STOPPED),
    ],
)
def test_a_table_is_in_the_phase_that_its_ledger_tells(
    pipeline: Pipeline, state: State, phase: Phase
) -> None:
    pipeline.stands(state)
    assert pipeline.users().phase is phase
    assert (pipeline.users().trouble is not None) == (phase is Phase.STOPPED)


def test_a_table_that_left_is_not_shown(pipeline: Pipeline) -> None:
    pipeline.stands(Left("0/1"))
    assert pipeline.status().tables == ()


def test_a_running_merge_shows_and_a_failed_one_waits_with_its_trouble(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.MERGING)
    assert pipeline.users().phase is Phase.MERGING
    pipeline.merges_stand(TablePhase.WAITING, errors.CatalogError("no answer"))
    assert pipeline.users().phase is Phase.WAITING
    trouble = pipeline.users().trouble
    assert trouble is not None
    assert trouble.retry_at == START
    pipeline.merges_stand(TablePhase.STOPPED, errors.NullKeyError("a key is null."))
    assert pipeline.users().phase is Phase.STOPPED


def test_a_held_table_tells_the_code_the_reason_and_the_remedy_of_its_error(
    pipeline: Pipeline,
) -> None:
    error = errors.UnsupportedSchemaChangeError(
        "the type of price changed.", table=USERS, next_step=f"frazil resync {USERS}"
    )
    pipeline.stands(Held("0/1", error.told))
    trouble = pipeline.users().trouble
    assert trouble is not None
    assert (trouble.code, trouble.remedy) == (error.code, f"frazil resync {USERS}")
    assert trouble.reason == f"{USERS}: the type of price changed."
    assert trouble.since == START
    pipeline.clock.advance(60)
    assert pipeline.users().trouble == trouble
    assert pipeline.users().lag_seconds == 60


def test_a_defect_is_told_without_its_words(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.STOPPED, ValueError("row 17 has the password"))
    trouble = pipeline.users().trouble
    assert trouble is not None
    assert (trouble.code, trouble.reason) == (None, "unexpected ValueError")


def test_rows_and_commits_of_both_halves_are_counted(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.WAITING)
    pipeline.captures(INSERT=3, DELETE=1)
    pipeline.clock.advance(1)
    pipeline.board.record_merge_start(USERS)
    pipeline.board.record_merge(USERS, report_of("users", 1, rows=4))
    users = pipeline.users()
    assert users.captured == {"insert": 3, "delete": 1}
    assert users.merged == {"insert": 4}
    assert [(each.role, each.snapshot_id) for each in users.commits] == [
        ("merge", 100),
        ("ingest", 77),
    ]
    assert pipeline.status().commits == users.commits


def test_lag_is_known_once_the_source_was_reached_and_the_mirror_has_merged(
    pipeline: Pipeline,
) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.WAITING)
    pipeline.board.expect([USERS])
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds is None
    pipeline.board.record_merge_start(USERS)
    pipeline.board.record_merge(USERS, report_of("users"))
    pipeline.clock.advance(4)
    assert (pipeline.users().lag_seconds, pipeline.users().lag_bytes) == (4, 0)


def test_lag_of_a_mirror_counts_from_the_batch_that_it_lacks(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.WAITING)
    pipeline.reaches(100)
    pipeline.clock.advance(5)
    pipeline.captures(INSERT=1)
    pipeline.reaches(150)
    source = pipeline.status().source
    assert source is not None
    assert (pipeline.users().lag_seconds, source.lag_seconds) == (5, 0)
    pipeline.board.record_merge_start(USERS)
    pipeline.board.record_merge(USERS, report_of("users", 1))
    assert pipeline.users().lag_seconds == 0


def test_a_table_that_was_just_read_is_not_fresh_before_its_first_merge(
    pipeline: Pipeline,
) -> None:
    pipeline.stands(Copying())
    assert pipeline.users().lag_seconds is None
    # Booked, and the board was not told yet.
    pipeline.stands(Live())
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds is None
    # Told, and the merges do not know it yet.
    pipeline.captures(is_whole=True, READ=5)
    pipeline.reaches(150)
    assert pipeline.users().lag_seconds is None
    pipeline.merges_stand(TablePhase.MERGING)
    pipeline.board.record_merge_start(USERS)
    assert pipeline.users().lag_seconds is None
    pipeline.board.record_merge(USERS, report_of("users", 5))
    assert pipeline.users().lag_seconds == 0


def test_a_table_without_a_key_is_as_fresh_as_its_changelog(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.captures(is_whole=True, READ=5)
    pipeline.board.dismiss(USERS)
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds == 0


def test_where_nobody_merges_a_table_is_as_fresh_as_its_changelog() -> None:
    ingest = Pipeline(merges_here=False)
    ingest.stands(Live())
    ingest.captures(is_whole=True, READ=5)
    ingest.reaches(100)
    assert ingest.users().lag_seconds == 0


def test_the_slot_and_the_next_look_are_shown(pipeline: Pipeline) -> None:
    pipeline.reached = 10
    pipeline.board.record_step(7.0)
    pipeline.looks(newest=30)
    source = pipeline.status().source
    assert source is not None
    assert source.slot is not None
    assert (source.slot.retained_bytes, source.slot.safe_bytes) == (20, 4096)
    assert (source.slot.state, source.slot.confirmed) == ("reserved", "0/10")
    assert source.next_run == START + timedelta(seconds=7)
    pipeline.board.record_look(SlotLook(30, replace(SLOT, wal_status=WalStatus.LOST)), asked=0.0)
    lost = pipeline.status().source
    assert lost is not None
    assert lost.slot is not None
    assert lost.slot.state == "lost"


def test_trouble_at_the_source_is_shown_until_it_answers_again(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), Again(3.0))
    pipeline.clock.advance(1)
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), Again(3.0))
    trouble = pipeline.source().trouble
    assert trouble is not None
    assert trouble.since == START
    assert trouble.retry_at == START + timedelta(seconds=4)
    assert pipeline.users().phase is Phase.WAITING
    assert pipeline.status().errors == {errors.SourceUnavailableError.code: 2}
    pipeline.board.record_step(1.0)
    assert pipeline.source().trouble is None


def test_a_source_that_needs_a_person_says_so(pipeline: Pipeline) -> None:
    pipeline.board.record_ingest_error(errors.PositionLostError("lost"), Hold())
    trouble = pipeline.source().trouble
    assert trouble is not None
    assert (trouble.code, trouble.retry_at) == (errors.PositionLostError.code, None)


def test_progress_of_a_copy_is_shown_for_the_tables_that_are_read(pipeline: Pipeline) -> None:
    pipeline.stands(Copying())
    pipeline.stands(Copying(), "public.orders")
    pipeline.progress = WholeProgress(
        tables=(USERS,), rows=50, bytes_read=25, bytes_total=100, seconds=5.0
    )
    copy = pipeline.users().copy
    assert copy is not None
    assert (copy.fraction, copy.remaining_seconds) == (0.25, 15.0)
    assert [each.copy for each in pipeline.status().tables if each.table != USERS] == [None]


def test_a_phase_is_as_old_as_its_first_moment(pipeline: Pipeline) -> None:
    pipeline.stands(Copying())
    pipeline.board.tick()
    pipeline.clock.advance(3)
    pipeline.board.tick()
    assert pipeline.users().since == START
    pipeline.stands(Live())
    pipeline.board.tick()
    pipeline.clock.advance(3)
    assert pipeline.users().since == START + timedelta(seconds=3)


def test_samples_tell_changes_a_second(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.captures(INSERT=50)
    pipeline.clock.advance(SAMPLE_SECONDS)
    pipeline.board.tick()
    pipeline.clock.advance(1)
    pipeline.board.tick()
    (sample,) = pipeline.status().samples
    assert sample.changes_per_second == 50 / SAMPLE_SECONDS


def test_without_a_source_the_mirrors_are_shown_beside_their_changelogs() -> None:
    clock = ManualClock(START)
    board = StatusBoard("shop", roles=("merge",), clock=clock)
    status = TableStatus(table=USERS, phase=TablePhase.WAITING, since=START, next_run=START)
    board.follow_merges(lambda: (status,))
    board.expect([USERS])
    clock.advance(2)
    (table,) = board.now().tables
    assert (table.phase, table.mirror, table.lag_seconds) == (Phase.WAITING, USERS, None)
    assert board.now().source is None
    # As fresh as the moment when the changelog was looked at, not when the merge ended.
    board.record_merge_start(USERS)
    clock.advance(3)
    board.record_merge(USERS, report_of("users"))
    clock.advance(1)
    assert board.now().tables[0].lag_seconds == 4


# --- nothing untrue: while copying, after a restart, during an outage (N55) ---

outage = pytest.mark.fault("N55")


@outage
def test_a_table_without_a_mirror_commit_is_in_its_first_load(pipeline: Pipeline) -> None:
    pipeline.stands(Copying())
    pipeline.stands(Live(), "public.orders")
    pipeline.merges["public.orders"] = replace(
        TableStatus(table="public.orders", phase=TablePhase.WAITING, since=START)
    )
    pipeline.status()
    pipeline.lake_shows(orders=5, orders_changelog=9)
    pipeline.reaches(100)
    pipeline.clock.advance(2)
    assert pipeline.users().is_first_load
    # Copied, and its first merge runs.
    pipeline.stands(Live())
    pipeline.captures(is_whole=True, READ=5)
    pipeline.merges_stand(TablePhase.MERGING)
    pipeline.board.record_merge_start(USERS)
    pipeline.lake_shows(orders=5, orders_changelog=9, users_changelog=5)
    pipeline.reaches(150)
    users = pipeline.users()
    assert (users.phase, users.is_first_load, users.lag_seconds) == (Phase.MERGING, True, None)
    # Of the one that has readers.
    assert pipeline.status().lag_seconds == 0
    assert words.freshness(pipeline.status()) == (
        "Readers of the other table see everything up to 0 s ago. "
        "1 table is in its first load, without readers."
    )
    assert words.lag(users) == "first load"
    pipeline.board.record_merge(USERS, report_of("users", 5))
    assert not pipeline.users().is_first_load
    assert pipeline.users().lag_seconds == 0


@outage
def test_a_table_of_which_nobody_can_tell_is_no_fresher_than_the_others(
    pipeline: Pipeline,
) -> None:
    pipeline.stands(Live())
    pipeline.stands(Live(), "public.orders")
    pipeline.merges_stand(TablePhase.WAITING)
    pipeline.status()
    pipeline.lake_shows(users=5, users_changelog=5, orders_changelog=1)
    pipeline.board.expect([USERS])
    pipeline.reaches(100)
    assert not pipeline.users().is_first_load
    assert [each.lag_seconds for each in pipeline.status().tables] == [0, None]
    assert pipeline.status().lag_seconds is None
    assert "readers of 1 table are behind is not known yet" in str(
        words.freshness(pipeline.status())
    )


@outage
def test_a_stopped_table_with_readers_is_the_worst(pipeline: Pipeline) -> None:
    pipeline.stands(Held("0/1", "FRZ-SCH-01 x"))
    pipeline.stands(Live(), "public.orders")
    pipeline.status()
    pipeline.lake_shows(users=5, users_changelog=5, orders_changelog=1)
    pipeline.reaches(100)
    pipeline.clock.advance(50)
    pipeline.reaches(101)
    assert pipeline.status().lag_seconds == 50


@outage
def test_how_long_a_table_is_stopped_counts_from_before_the_process(pipeline: Pipeline) -> None:
    pipeline.stands(ResyncNeeded("0/1", "why"))
    assert pipeline.users().trouble is not None
    pipeline.board.record_standing_since({USERS: START - timedelta(hours=3)})
    trouble = pipeline.users().trouble
    assert trouble is not None
    assert trouble.since == START - timedelta(hours=3)
    assert pipeline.users().lag_seconds == 3 * 3600


@outage
def test_after_a_restart_rows_and_the_last_commit_come_from_the_lake(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.WAITING)
    assert (pipeline.users().rows, pipeline.users().commits) == (None, ())
    pipeline.lake_shows(users=3_000_000, users_changelog=4_000_000)
    users = pipeline.users()
    assert (users.rows, users.changelog_rows) == (3_000_000, 4_000_000)
    assert users.captured == {}
    assert users.commits[0].at == START - timedelta(days=1)
    assert pipeline.status().commits == users.commits
    # What this process commits is asked for again, and stands before what was.
    assert pipeline.board.open_questions() == ()
    pipeline.captures(INSERT=2)
    pipeline.merges_users()
    asked = {each.lake_table for each in pipeline.board.open_questions()}
    assert asked == {USERS, f"{USERS}_changelog"}
    pipeline.lake_shows(users=3_000_002, users_changelog=4_000_002)
    assert pipeline.users().rows == 3_000_002
    before = [each.at for each in users.commits]
    assert [each.at for each in pipeline.users().commits] == [START, START, *before]


@outage
def test_a_question_that_is_answered_too_late_is_asked_again(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.status()
    (question,) = pipeline.board.open_questions()
    pipeline.captures(INSERT=2)
    pipeline.board.record_lake(question, LakeFacts(rows=1))
    assert [each.lake_table for each in pipeline.board.open_questions()] == [question.lake_table]


@outage
def test_a_copy_counts_in_the_rate_while_it_runs_and_only_once(pipeline: Pipeline) -> None:
    pipeline.stands(Copying())
    pipeline.progress = WholeProgress(
        tables=(USERS,), rows=500, bytes_read=25, bytes_total=100, seconds=5.0
    )
    pipeline.clock.advance(SAMPLE_SECONDS)
    pipeline.board.tick()
    assert pipeline.status().samples[-1].changes_per_second == 500 / SAMPLE_SECONDS
    pipeline.captures(is_whole=True, READ=800)
    pipeline.clock.advance(SAMPLE_SECONDS)
    # The progress stays until the next one begins.
    pipeline.progress = replace(pipeline.progress, rows=800)
    pipeline.board.tick()
    assert pipeline.status().samples[-1].changes_per_second == 800 / (2 * SAMPLE_SECONDS)
    # Another attempt begins with its first row.
    pipeline.progress = replace(pipeline.progress, rows=0)
    pipeline.clock.advance(WINDOW_SECONDS)
    pipeline.board.tick()
    pipeline.progress = replace(pipeline.progress, rows=300)
    pipeline.clock.advance(WINDOW_SECONDS)
    pipeline.board.tick()
    assert pipeline.status().samples[-1].changes_per_second == 300 / WINDOW_SECONDS


@outage
def test_an_idle_table_is_as_fresh_as_the_last_look_at_the_source(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    pipeline.stands(Live(), "public.orders")
    pipeline.reaches(100)
    # A batch of the other one takes its time, and the stream has received more.
    pipeline.clock.advance(33)
    pipeline.received_now = 200, frozenset({USERS})
    pipeline.looks(newest=200)
    pipeline.clock.advance(1)
    lags = {each.table: each.lag_seconds for each in pipeline.status().tables}
    assert lags == {USERS: 1, "public.orders": 34}
    # Now it has changes too: what was known of it stays true.
    pipeline.received_now = 300, frozenset()
    pipeline.looks(newest=300)
    assert pipeline.users().lag_seconds == 1
    # A server that does not answer tells nothing.
    pipeline.clock.advance(9)
    assert pipeline.users().lag_seconds == 10


@outage
def test_a_table_that_was_copied_is_behind_until_the_stream_has_caught_up(
    pipeline: Pipeline,
) -> None:
    pipeline.stands(Live())
    pipeline.merges_stand(TablePhase.WAITING)
    pipeline.reaches(100)
    pipeline.captures(is_whole=True, READ=5)
    pipeline.merges_users()
    # The stream starts again from what is acknowledged.
    pipeline.reached = 40
    pipeline.board.record_step(1.0)
    pipeline.received_now = 40, frozenset({USERS})
    pipeline.looks(newest=100)
    assert pipeline.users().lag_seconds is None
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds == 0


@outage
def test_while_the_server_is_down_its_facts_are_unknown_since_its_last_answer(
    pipeline: Pipeline,
) -> None:
    pipeline.stands(Live())
    pipeline.reaches(100)
    assert pipeline.source().slot is not None
    pipeline.clock.advance(2)
    pipeline.board.record_no_answer()
    source = pipeline.source()
    assert (source.slot, source.lag_bytes, source.unknown_since) == (None, None, START)
    assert pipeline.users().lag_bytes is None
    assert source.lag_seconds == 2
    pipeline.looks(newest=100)
    assert pipeline.source().unknown_since is None
    assert pipeline.source().slot is not None


@outage
def test_a_server_that_hangs_is_not_shown_as_it_was(pipeline: Pipeline) -> None:
    pipeline.reaches(100)
    pipeline.clock.advance(ANSWER_SECONDS + 1)
    source = pipeline.source()
    assert (source.slot, source.lag_bytes, source.unknown_since) == (None, None, START)


@outage
def test_a_source_that_needs_a_person_requires_action(pipeline: Pipeline) -> None:
    pipeline.stands(Live())
    assert not pipeline.status().action_required
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), Again(3.0))
    assert not pipeline.status().action_required
    pipeline.board.record_ingest_error(errors.PositionLostError("lost"), Hold())
    assert pipeline.status().action_required
    assert words.headline(pipeline.status()) == "Nothing is captured until you act"
    pipeline.board.record_step(1.0)
    assert not pipeline.status().action_required
