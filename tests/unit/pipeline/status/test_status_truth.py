"""Nothing untrue: while copying, after a restart, during an outage."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.ingest.progress import CopyProgress
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming
from frazil.model.cause import Cause
from frazil.pipeline.next_step import Pause, RetryAfter
from frazil.pipeline.status import wording
from frazil.pipeline.status.board import SAMPLE_SECONDS
from frazil.pipeline.status.freshness import ANSWER_SECONDS
from frazil.pipeline.status.lake_facts import LakeFacts
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from frazil.pipeline.status.tally import WINDOW_SECONDS
from frazil.pipeline.status.values import Phase
from tests.support.merge.scripted import report_of
from tests.support.status.followed_pipeline import START, USERS, Pipeline

if TYPE_CHECKING:
    from frazil.pipeline.status.values import PipelineStatus

pytestmark = pytest.mark.fault("N55")


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def test_a_table_without_a_mirror_commit_is_in_its_first_load(pipeline: Pipeline) -> None:
    pipeline.set_state(Copying())
    pipeline.set_state(Streaming(), "public.orders")
    pipeline.merges["public.orders"] = replace(
        MergeStatus(table="public.orders", phase=MergeStep.WAITING, since=START)
    )
    pipeline.status()
    pipeline.lake_shows(orders=5, orders_changelog=9)
    pipeline.reaches(100)
    pipeline.clock.advance(2)
    assert pipeline.users().is_first_load
    # Copied, and its first merge runs.
    pipeline.set_state(Streaming())
    pipeline.captures(is_copy=True, READ=5)
    pipeline.merges_stand(MergeStep.MERGING)
    pipeline.board.record_merge_start(USERS)
    pipeline.lake_shows(orders=5, orders_changelog=9, users_changelog=5)
    pipeline.reaches(150)
    users = pipeline.users()
    assert (users.phase, users.is_first_load, users.lag_seconds) == (Phase.MERGING, True, None)
    # Of the one that has readers.
    assert pipeline.status().lag_seconds == 0
    assert wording.freshness(pipeline.status()) == (
        "Readers of the other table see everything up to 0 s ago. "
        "1 table is in its first load, without readers."
    )
    assert wording.lag(users) == "first load"
    pipeline.board.record_merge(USERS, report_of("users", 5))
    assert not pipeline.users().is_first_load
    assert pipeline.users().lag_seconds == 0


def test_a_table_of_unknown_freshness_is_no_fresher_than_the_others(
    pipeline: Pipeline,
) -> None:
    pipeline.set_state(Streaming())
    pipeline.set_state(Streaming(), "public.orders")
    pipeline.merges_stand(MergeStep.WAITING)
    pipeline.status()
    pipeline.lake_shows(users=5, users_changelog=5, orders_changelog=1)
    pipeline.board.expect([USERS])
    pipeline.reaches(100)
    assert not pipeline.users().is_first_load
    assert [each.lag_seconds for each in pipeline.status().tables] == [0, None]
    assert pipeline.status().lag_seconds is None
    assert "readers of 1 table are behind is not known yet" in str(
        wording.freshness(pipeline.status())
    )


def test_a_stopped_table_with_readers_is_the_worst(pipeline: Pipeline) -> None:
    pipeline.set_state(Paused("0/1", Cause("FRZ-SCH-01", "x")))
    pipeline.set_state(Streaming(), "public.orders")
    pipeline.status()
    pipeline.lake_shows(users=5, users_changelog=5, orders_changelog=1)
    pipeline.reaches(100)
    pipeline.clock.advance(50)
    pipeline.reaches(101)
    assert pipeline.status().lag_seconds == 50


def test_how_long_a_table_is_stopped_counts_from_before_the_process(pipeline: Pipeline) -> None:
    pipeline.set_state(ResyncRequired("0/1", "why"))
    assert pipeline.users().trouble is not None
    pipeline.board.record_state_since({USERS: START - timedelta(hours=3)})
    problem = pipeline.users().trouble
    assert problem is not None
    assert problem.since == START - timedelta(hours=3)
    assert pipeline.users().lag_seconds == 3 * 3600


def test_after_a_restart_rows_and_the_last_commit_come_from_the_lake(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.WAITING)
    assert (pipeline.users().rows, pipeline.users().commits) == (None, ())
    pipeline.lake_shows(users=3_000_000, users_changelog=4_000_000)
    users = pipeline.users()
    assert (users.rows, users.changelog_rows) == (3_000_000, 4_000_000)
    assert users.captured == {}
    assert users.commits[0].at == START - timedelta(days=1)
    assert pipeline.status().commits == users.commits
    # What this process commits is loaded again, and comes before what was.
    assert pipeline.board.open_questions() == ()
    pipeline.captures(INSERT=2)
    pipeline.merges_users()
    asked = {each.lake_table for each in pipeline.board.open_questions()}
    assert asked == {USERS, f"{USERS}_changelog"}
    pipeline.lake_shows(users=3_000_002, users_changelog=4_000_002)
    assert pipeline.users().rows == 3_000_002
    before = [each.at for each in users.commits]
    assert [each.at for each in pipeline.users().commits] == [START, START, *before]


def test_a_question_that_is_answered_too_late_is_asked_again(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.status()
    (question,) = pipeline.board.open_questions()
    pipeline.captures(INSERT=2)
    pipeline.board.record_lake(question, LakeFacts(rows=1))
    assert [each.lake_table for each in pipeline.board.open_questions()] == [question.lake_table]


def test_a_copy_counts_in_the_rate_while_it_runs_and_only_once(pipeline: Pipeline) -> None:
    pipeline.set_state(Copying())
    pipeline.progress = CopyProgress(
        tables=(USERS,), rows=500, bytes_read=25, bytes_total=100, seconds=5.0
    )
    pipeline.clock.advance(SAMPLE_SECONDS)
    pipeline.board.tick()
    assert pipeline.status().samples[-1].changes_per_second == 500 / SAMPLE_SECONDS
    pipeline.captures(is_copy=True, READ=800)
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


def test_an_idle_table_is_as_fresh_as_the_last_check_of_the_source(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    pipeline.set_state(Streaming(), "public.orders")
    pipeline.reaches(100)
    # A batch of the other one takes its time, and the stream has received more.
    pipeline.clock.advance(33)
    pipeline.received_now = 200, frozenset({USERS})
    pipeline.observe(newest=200)
    pipeline.clock.advance(1)
    lags = {each.table: each.lag_seconds for each in pipeline.status().tables}
    assert lags == {USERS: 1, "public.orders": 34}
    # Now it has changes too: what was known of it stays true.
    pipeline.received_now = 300, frozenset()
    pipeline.observe(newest=300)
    assert pipeline.users().lag_seconds == 1
    # A server that does not answer gives nothing.
    pipeline.clock.advance(9)
    assert pipeline.users().lag_seconds == 10


def test_a_table_that_was_copied_is_behind_until_the_stream_has_caught_up(
    pipeline: Pipeline,
) -> None:
    pipeline.set_state(Streaming())
    pipeline.merges_stand(MergeStep.WAITING)
    pipeline.reaches(100)
    pipeline.captures(is_copy=True, READ=5)
    pipeline.merges_users()
    # The stream starts again from what is acknowledged.
    pipeline.reached = 40
    pipeline.board.record_step(1.0)
    pipeline.received_now = 40, frozenset({USERS})
    pipeline.observe(newest=100)
    assert pipeline.users().lag_seconds is None
    pipeline.reaches(100)
    assert pipeline.users().lag_seconds == 0


def test_while_the_server_is_down_its_facts_are_unknown_since_its_last_answer(
    pipeline: Pipeline,
) -> None:
    pipeline.set_state(Streaming())
    pipeline.reaches(100)
    assert pipeline.source().health is not None
    pipeline.clock.advance(2)
    pipeline.board.record_no_answer()
    source = pipeline.source()
    assert (source.health, source.lag_bytes, source.unknown_since) == (None, None, START)
    assert pipeline.users().lag_bytes is None
    assert source.lag_seconds == 2
    pipeline.observe(newest=100)
    assert pipeline.source().unknown_since is None
    assert pipeline.source().health is not None


def test_a_server_that_hangs_is_not_shown_as_it_was(pipeline: Pipeline) -> None:
    pipeline.reaches(100)
    pipeline.clock.advance(ANSWER_SECONDS + 1)
    source = pipeline.source()
    assert (source.health, source.lag_bytes, source.unknown_since) == (None, None, START)


def test_a_source_with_a_permanent_problem_requires_action(pipeline: Pipeline) -> None:
    pipeline.set_state(Streaming())
    assert not pipeline.status().action_required
    pipeline.board.record_ingest_error(errors.SourceUnavailableError("away"), RetryAfter(3.0))
    assert not pipeline.status().action_required
    pipeline.board.record_ingest_error(errors.PositionLostError("lost"), Pause())
    assert pipeline.status().action_required
    assert wording.headline(pipeline.status()) == "Nothing is captured until you act"
    pipeline.board.record_step(1.0)
    assert not pipeline.status().action_required


def test_a_date_of_the_ledger_that_comes_during_an_observation_is_kept(pipeline: Pipeline) -> None:
    pipeline.set_state(ResyncRequired("0/1", "why"))
    now, earlier = pipeline.board.now, START - timedelta(hours=3)

    def now_and_then_the_ledger() -> PipelineStatus:
        status = now()
        pipeline.board.record_state_since({USERS: earlier})
        return status

    pipeline.board.now = now_and_then_the_ledger  # type: ignore[method-assign]
    pipeline.board.observe()
    pipeline.board.now = now  # type: ignore[method-assign]
    problem = pipeline.users().trouble
    assert problem is not None
    assert problem.since == earlier


def test_of_what_is_only_merged_the_mirror_is_loaded_by_its_own_name(pipeline: Pipeline) -> None:
    """On standby no table is captured yet, and any text would pass for the name of a source."""
    pipeline.merges_stand(MergeStep.WAITING)
    pipeline.status()
    assert [each.lake_table for each in pipeline.board.open_questions()] == [USERS]
