"""Both loops report to the board, and every reader sees the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from frazil import errors
from frazil.hooks import ManualClock
from frazil.ingest.progress import CopyProgress
from frazil.ledger.table_state import Copying, Paused, Removed, ResyncRequired, State, Streaming
from frazil.model.cause import Cause
from frazil.model.postgres.facts import WalStatus
from frazil.pipeline.next_step import Pause, RetryAfter
from frazil.pipeline.status.board import SAMPLE_SECONDS, StatusBoard
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from frazil.pipeline.status.values import Phase
from frazil.sources.postgres.health import describe_health
from frazil.sources.postgres.slot.watch import SlotObservation
from tests.support.merge.scripted import report_of
from tests.support.status.followed_pipeline import SLOT, START, USERS, Pipeline


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (Copying(), Phase.COPYING),
        (Streaming(), Phase.STREAMING),
        (Paused("0/1", Cause("FRZ-SCH-01", "x")), Phase.STOPPED),
        (ResyncRequired("0/1", "why"), Phase.STOPPED),
        (Copying(Cause("FRZ-SCH-02", "x")), Phase.STOPPED),
    ],
)
def test_a_table_is_in_the_phase_that_the_ledger_says(
    pipeline: Pipeline, state: State, phase: Phase
) -> None:
    pipeline.set_state(state)
    assert pipeline.users().phase is phase
    assert (pipeline.users().trouble is not None) == (phase is Phase.STOPPED)


def test_a_table_that_left_is_not_shown(pipeline: Pipeline) -> None:
    pipeline.set_state(Removed("0/1"))
    assert pipeline.status().tables == ()


def test_a_running_merge_shows_and_a_failed_one_waits_with_its_trouble(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.MERGING)
    assert pipeline.users().phase is Phase.MERGING
    pipeline.merges_stand(MergeStep.WAITING, errors.CatalogError("no answer"))
    assert pipeline.users().phase is Phase.WAITING
    problem = pipeline.users().trouble
    assert problem is not None
    assert problem.retry_at == START
    pipeline.merges_stand(MergeStep.STOPPED, errors.NullKeyError("a key is null."))
    assert pipeline.users().phase is Phase.STOPPED


def test_a_paused_table_shows_the_code_the_reason_and_the_remedy_of_its_error(
    pipeline: Pipeline,
) -> None:
    error = errors.UnsupportedSchemaChangeError(
        "the type of price changed.", table=USERS, next_step=f"frazil resync {USERS}"
    )
    pipeline.set_state(Paused("0/1", Cause.of(error)))
    problem = pipeline.users().trouble
    assert problem is not None
    assert (problem.code, problem.remedy) == (error.code, f"frazil resync {USERS}")
    assert problem.reason == f"{USERS}: the type of price changed."
    assert problem.since == START
    pipeline.clock.advance(60)
    assert pipeline.users().trouble == problem
    assert pipeline.users().lag_seconds == 60


def test_a_defect_is_shown_without_its_text(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.STOPPED, ValueError("row 17 has the password"))
    problem = pipeline.users().trouble
    assert problem is not None
    assert (problem.code, problem.reason) == (None, "unexpected ValueError")


def test_rows_and_commits_of_both_halves_are_counted(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.WAITING)
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
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.WAITING)
    pipeline.board.expect([USERS])
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds is None
    pipeline.board.record_merge_start(USERS)
    pipeline.board.record_merge(USERS, report_of("users"))
    pipeline.clock.advance(4)
    assert (pipeline.users().lag_seconds, pipeline.users().lag_bytes) == (4, 0)


def test_lag_of_a_mirror_counts_from_the_batch_that_it_lacks(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.WAITING)
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
    pipeline.set_state(Copying())
    assert pipeline.users().lag_seconds is None
    # Recorded, and the board does not know it yet.
    pipeline.set_state(Streaming())
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds is None
    # Known to the board, and the merges do not know it yet.
    pipeline.captures(is_copy=True, READ=5)
    pipeline.reaches(150)
    assert pipeline.users().lag_seconds is None
    pipeline.merges_stand(MergeStep.MERGING)
    pipeline.board.record_merge_start(USERS)
    assert pipeline.users().lag_seconds is None
    pipeline.board.record_merge(USERS, report_of("users", 5))
    assert pipeline.users().lag_seconds == 0


def test_a_table_without_a_key_is_as_fresh_as_its_changelog(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.captures(is_copy=True, READ=5)
    pipeline.board.dismiss(USERS)
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds == 0


def test_without_merges_a_table_is_as_fresh_as_its_changelog() -> None:
    ingest = Pipeline(merges_here=False)
    ingest.set_state(Streaming())
    ingest.captures(is_copy=True, READ=5)
    ingest.reaches(100)
    assert ingest.users().lag_seconds == 0


def test_the_slot_and_the_next_batch_are_shown(pipeline: Pipeline) -> None:
    pipeline.reached = 10
    pipeline.board.record_step(7.0)
    pipeline.observe(newest=30)
    source = pipeline.status().source
    assert source is not None
    assert source.health is not None
    shown = source.health.details["slot"]
    assert (shown["retained_bytes"], shown["safe_bytes"]) == (20, 4096)
    assert (shown["state"], shown["confirmed"]) == ("reserved", "0/10")
    assert source.next_run == START + timedelta(seconds=7)
    slot = SlotObservation(30, replace(SLOT, wal_status=WalStatus.LOST))
    pipeline.board.record_answer(describe_health(slot, slot=SLOT.name), asked=0.0)
    lost = pipeline.status().source
    assert lost is not None
    assert lost.health is not None
    assert lost.health.details["slot"]["state"] == "lost"
    assert [line.text for line in lost.health.lines if line.is_well is False] == ["lost, active"]


def test_trouble_at_the_source_is_shown_until_it_answers_again(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), RetryAfter(3.0))
    pipeline.clock.advance(1)
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), RetryAfter(3.0))
    problem = pipeline.source().trouble
    assert problem is not None
    assert problem.since == START
    assert problem.retry_at == START + timedelta(seconds=4)
    assert pipeline.users().phase is Phase.WAITING
    assert pipeline.status().errors == {errors.SourceUnavailableError.code: 2}
    pipeline.board.record_step(1.0)
    assert pipeline.source().trouble is None


def test_a_source_that_requires_action_says_so(pipeline: Pipeline) -> None:
    pipeline.board.record_ingest_error(errors.PositionLostError("lost"), Pause())
    problem = pipeline.source().trouble
    assert problem is not None
    assert (problem.code, problem.retry_at) == (errors.PositionLostError.code, None)


def test_progress_of_a_copy_is_shown_for_the_tables_that_are_read(pipeline: Pipeline) -> None:
    pipeline.set_state(Copying())
    pipeline.set_state(Copying(), "public.orders")
    pipeline.progress = CopyProgress(
        tables=(USERS,), rows=50, bytes_read=25, bytes_total=100, seconds=5.0
    )
    copy = pipeline.users().copy
    assert copy is not None
    assert (copy.fraction, copy.remaining_seconds) == (0.25, 15.0)
    assert [each.copy for each in pipeline.status().tables if each.table != USERS] == [None]


def test_a_phase_is_as_old_as_its_first_moment(pipeline: Pipeline) -> None:
    pipeline.set_state(Copying())
    pipeline.board.tick()
    pipeline.clock.advance(3)
    pipeline.board.tick()
    assert pipeline.users().since == START
    pipeline.set_state(Streaming())
    pipeline.board.tick()
    pipeline.clock.advance(3)
    assert pipeline.users().since == START + timedelta(seconds=3)


def test_samples_show_changes_a_second(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.captures(INSERT=50)
    pipeline.clock.advance(SAMPLE_SECONDS)
    pipeline.board.tick()
    pipeline.clock.advance(1)
    pipeline.board.tick()
    (sample,) = pipeline.status().samples
    assert sample.changes_per_second == 50 / SAMPLE_SECONDS


def test_without_a_source_the_mirrors_are_shown_with_their_changelogs() -> None:
    clock = ManualClock(START)
    board = StatusBoard("shop", roles=("merge",), clock=clock)
    status = MergeStatus(table=USERS, phase=MergeStep.WAITING, since=START, next_run=START)
    board.follow_merges(lambda: (status,))
    board.expect([USERS])
    clock.advance(2)
    (table,) = board.now().tables
    assert (table.phase, table.mirror, table.lag_seconds) == (Phase.WAITING, USERS, None)
    assert board.now().source is None
    # As fresh as the moment when the changelog was checked, not when the merge ended.
    board.record_merge_start(USERS)
    clock.advance(3)
    board.record_merge(USERS, report_of("users"))
    clock.advance(1)
    assert board.now().tables[0].lag_seconds == 4
