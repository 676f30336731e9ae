"""Merges that are requested, tables that join, and tables that were repaired."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from frazil import errors
from frazil.pipeline.loops.loop import JITTER, Intervals
from frazil.pipeline.loops.merge_loop import BREATH_SECONDS
from frazil.pipeline.status.merge_status import MergeStep
from tests.support.merge.loop_stage import INTERVAL, Stage, gaps, status_of
from tests.support.merge.scripted import TwinTable


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_request_does_not_push_a_table_back_that_waits_for_its_turn(stage: Stage) -> None:
    stage.table("a", 1, 1)
    stage.table("b", 1)
    stage.until(30)
    loop = stage.loop()

    def ask_for_both() -> None:
        loop.request(["a", "b"])

    stage.tables["a"].before_batch = ask_for_both
    loop.run()
    assert [name for name, _ in stage.reported][:3] == ["a", "b", "a"]


def test_a_table_that_is_asked_for_while_it_is_merged_is_merged_again_at_once(
    stage: Stage,
) -> None:
    table = stage.table("a", 1)
    stage.until(30)
    loop = stage.loop()
    table.before_batch = lambda: loop.request(["a"])
    loop.run()
    assert gaps(table) == [pytest.approx(1 + BREATH_SECONDS)]


def test_a_table_that_joins_is_merged_at_once(stage: Stage) -> None:
    first = stage.table("a", 1)
    stage.until(30)
    loop = stage.loop()
    late = TwinTable("b", 1, clock=stage.clock)
    first.before_batch = lambda: loop.join("b", late)
    loop.run()
    assert late.batches == 1
    assert [each.table for each in loop.statuses] == ["a", "b"]


def test_a_stopped_table_begins_again_only_when_it_was_repaired(stage: Stage) -> None:
    broken = stage.table("a", errors.NullKeyError("x"), 1)
    other = stage.table("b", 1, 1)
    stage.until(100)
    loop = stage.loop()
    asks = iter((False, True))
    other.before_batch = lambda: loop.request(["a"], was_mended=next(asks))
    loop.run()
    # The first request, of the first minute, left it alone.
    assert len(broken.began) >= 2
    assert broken.began[1] > INTERVAL.total_seconds() * (1 - JITTER)
    assert broken.batches == 1
    assert status_of(loop, "a").error is None


def test_a_request_is_met_at_once_while_the_loop_waits_for_an_interval(stage: Stage) -> None:
    table = stage.table("a", 1, 1)
    stage.until(30)
    loop = stage.loop()
    stage.clock.at(17.25, lambda: loop.request(["a"]))
    loop.run()
    assert table.began == [0.0, 17.25]
    # One wait for each run, as long as the interval, and not in pieces.
    assert [each for each in stage.clock.waits if each is None or each < 50] == []
    assert len(stage.clock.waits) == 2


def test_a_table_joins_a_loop_that_has_none(stage: Stage) -> None:
    stage.until(30)
    loop = stage.loop()
    late = TwinTable("b", 1, clock=stage.clock)
    stage.clock.at(12.5, lambda: loop.join("b", late))
    loop.run()
    assert late.began == [12.5]
    assert stage.clock.waits[0] is None


def test_a_request_does_not_wait_for_another_table_while_a_thread_is_free(stage: Stage) -> None:
    slow, quick = stage.table("slow", 1), stage.table("quick", 0, 1)
    stage.until(30)
    loop = stage.loop(concurrency=2)
    merged = threading.Event()
    quick.before_batch = merged.set

    def ask_for_the_other_one() -> None:
        while status_of(loop, "quick").phase is not MergeStep.WAITING:
            threading.Event().wait(0.001)
        loop.request(["quick"])
        assert merged.wait(60)

    slow.before_batch = ask_for_the_other_one
    loop.run()
    assert quick.batches == 1


def test_an_operator_who_has_acted_has_everything_merged_now_and_then_on_the_new_interval(
    stage: Stage,
) -> None:
    broken = stage.table("a", errors.NullKeyError("x"), 1, seconds=0)
    other = stage.table("b", seconds=0)
    stage.until(21)
    loop = stage.loop()
    second = timedelta(seconds=10)
    stage.clock.at(5.5, lambda: loop.reload(Intervals(ingest=INTERVAL, merge=second)))
    loop.run()
    assert broken.began[:2] == [0.0, 5.5]
    assert other.began[:2] == [0.0, 5.5]
    assert 9 <= other.began[2] - 5.5 <= 10


def test_a_stop_ends_the_longest_wait_at_once(stage: Stage) -> None:
    table = stage.table("a", seconds=0)
    stage.until(30)
    stage.loop(interval=timedelta(days=300)).run()
    assert table.began == [0.0]
    assert stage.clock.monotonic() == 30
    assert len(stage.clock.waits) == 1
