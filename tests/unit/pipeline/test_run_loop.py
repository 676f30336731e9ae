"""Both loops in one process: what each one's end means for the other."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.errors import FencedError, PositionLostError, SlotBusyError
from frazil.hooks import SystemClock
from frazil.pipeline.library import _passing_on
from frazil.pipeline.loops.loop import Ending, Intervals, StopRequest
from frazil.pipeline.loops.merge_loop import MergeLoop
from frazil.pipeline.loops.run_loop import RunLoop
from tests.support.merge.scripted import TwinTable

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0
HOURLY = Intervals(ingest=timedelta(hours=1), merge=timedelta(hours=1))


class Ingest:
    """An ingest loop that ends as scripted, or when everything ends."""

    def __init__(
        self,
        stop: StopRequest,
        outcome: Ending | Exception = Ending.DONE,
        *,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self._stop = stop
        self._outcome = outcome
        self._began = began
        self.intervals: Intervals | None = None

    def run(self, *, once: bool = False) -> Ending:
        self._began()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        if once:
            return self._outcome
        self._stop.wait(PATIENCE)
        return Ending.STOPPED

    def abandon(self) -> None:
        """Not used."""

    def reload(self, intervals: Intervals) -> None:
        self.intervals = intervals


class Stage:
    """Merges of one table next to ingest loops that come one after the other."""

    def __init__(self, *script: int | Exception) -> None:
        self.stop = StopRequest()
        self.table = TwinTable("users", *script, clock=SystemClock(), seconds=0.0)
        self.merges = MergeLoop({"users": self.table}, interval=HOURLY.merge, stop=self.stop)

    def run_loop(self, *ingests: Ingest, source_retry: float = 0.01) -> RunLoop:
        made = iter(ingests)
        return RunLoop(
            lambda: next(made),
            self.merges,
            stop=self.stop,
            source_retry_seconds=source_retry,
        )


def test_once_ingests_and_then_merges() -> None:
    stage = Stage(1)
    assert stage.run_loop(Ingest(stage.stop)).run(once=True) is Ending.DONE
    assert stage.table.batches == 1


@pytest.mark.parametrize("ending", [Ending.ACTION_REQUIRED, Ending.FAILED])
def test_once_comes_to_the_worse_of_both_halves(ending: Ending) -> None:
    stage = Stage(1)
    assert stage.run_loop(Ingest(stage.stop, ending)).run(once=True) is ending
    assert stage.table.batches == 1


def test_once_merges_what_is_there_even_if_the_source_requires_action() -> None:
    stage = Stage(1)
    loop = stage.run_loop(Ingest(stage.stop, PositionLostError("lost")))
    with pytest.raises(PositionLostError):
        loop.run(once=True)
    assert stage.table.batches == 1


def test_a_fenced_process_ends_at_once() -> None:
    stage = Stage(1)
    with pytest.raises(FencedError):
        stage.run_loop(Ingest(stage.stop, FencedError("x"))).run(once=True)
    assert stage.table.batches == 0


@pytest.mark.fault("N56")
def test_a_process_on_standby_does_not_merge_once() -> None:
    stage = Stage(1)
    with pytest.raises(SlotBusyError):
        stage.run_loop(Ingest(stage.stop, SlotBusyError("x"))).run(once=True)
    assert stage.table.batches == 0


def test_a_fenced_ingest_ends_the_merges_too() -> None:
    stage = Stage()
    with pytest.raises(FencedError):
        stage.run_loop(Ingest(stage.stop, FencedError("x"))).run()


def test_a_fenced_merge_ends_the_ingest_too() -> None:
    stage = Stage(FencedError("x"))
    with pytest.raises(FencedError):
        stage.run_loop(Ingest(stage.stop)).run()
    assert stage.stop.is_set()


def test_a_source_that_requires_action_is_tried_again_while_merges_go_on() -> None:
    stage = Stage()
    broken = Ingest(stage.stop, PositionLostError("lost"))
    repaired = Ingest(stage.stop, began=stage.stop.set)
    assert stage.run_loop(broken, repaired).run() is Ending.STOPPED
    assert stage.table.began


def test_an_interval_that_was_changed_is_kept_when_the_source_is_tried_again() -> None:
    stage = Stage()
    repaired = Ingest(stage.stop, began=stage.stop.set)
    loop = stage.run_loop(Ingest(stage.stop, PositionLostError("lost")), repaired)
    changed = Intervals(ingest=timedelta(seconds=3), merge=timedelta(hours=1))
    loop.reload(changed)
    loop.run()
    assert repaired.intervals == changed


def test_a_source_that_was_repaired_is_tried_at_once() -> None:
    stage = Stage()
    repaired = Ingest(stage.stop, began=stage.stop.set)
    loop = stage.run_loop(
        Ingest(stage.stop, PositionLostError("lost")), repaired, source_retry=10 * PATIENCE
    )
    saying = threading.Thread(target=say_until, args=(stage.stop, loop))
    saying.start()
    assert loop.run() is Ending.STOPPED
    saying.join()


def say_until(stop: StopRequest, loop: RunLoop) -> None:
    while not stop.wait(0.05):
        loop.reload(HOURLY)


def test_a_defect_in_the_ingest_ends_the_process() -> None:
    stage = Stage()
    with pytest.raises(ZeroDivisionError):
        stage.run_loop(Ingest(stage.stop, ZeroDivisionError())).run()


def test_a_request_wakes_merges_that_wait_for_their_interval() -> None:
    stage = Stage(0, 3)
    merged = threading.Event()
    stage.table.before_batch = merged.set

    def ask() -> None:
        while not stage.table.began:
            SystemClock().sleep(0.01)
        stage.merges.request(["users"])
        assert merged.wait(PATIENCE)
        stage.stop.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert stage.run_loop(Ingest(stage.stop)).run() is Ending.STOPPED
    asking.join()
    assert stage.table.batches >= 1


class WatchedClock(SystemClock):
    """Remembers how long it was asked to wait, and says when."""

    def __init__(self, waiting: Callable[[], None]) -> None:
        self.waits: list[float | None] = []
        self._waiting = waiting

    def wait(self, event: threading.Event, seconds: float | None = None) -> None:
        self.waits.append(seconds)
        self._waiting()
        super().wait(event, PATIENCE)
        assert event.is_set()


def test_a_stop_ends_the_wait_for_a_source_to_be_repaired_at_once() -> None:
    stage = Stage()
    clock = WatchedClock(stage.stop.set)
    lost = Ingest(stage.stop, PositionLostError("lost"))
    loop = RunLoop(
        iter((lost, Ingest(stage.stop))).__next__,
        stage.merges,
        stop=stage.stop,
        clock=clock,
        source_retry_seconds=3600.0,
    )
    assert loop.run() is Ending.STOPPED
    assert clock.waits == [3600.0]


def test_a_stop_request_wakes_whoever_waits_and_nobody_afterwards() -> None:
    stop, woken = StopRequest(), []
    with stop.waking(lambda: woken.append("early")):
        stop.set()
    with stop.waking(lambda: woken.append("late")):
        pass
    stop.set()
    assert woken == ["early", "late"]


def test_an_event_of_the_caller_is_passed_on_to_the_loops() -> None:
    event, request = threading.Event(), StopRequest()
    with _passing_on(event, request):
        assert not request.wait(0.0)
        event.set()
        assert request.wait(PATIENCE)
    before = StopRequest()
    _passing_on(event, before)
    assert before.is_set(), "nothing may begin"
