"""Merges that are requested, tables that join, and tables that were repaired."""

from __future__ import annotations

import pytest

from frazil import errors
from frazil.pipeline.loops.merge_loop import BREATH_SECONDS, JITTER
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
