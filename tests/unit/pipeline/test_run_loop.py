"""Both loops in one process: what each one's end means for the other."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.errors import FencedError, PositionLostError, SlotBusyError
from frazil.hooks import SystemClock
from frazil.pipeline.loops.merge_loop import Ending, MergeLoop
from frazil.pipeline.loops.run_loop import MergeSignal, RunLoop
from tests.support.merge.scripted import TwinTable

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


class Ingest:
    """An ingest loop that ends as scripted, or when everything ends."""

    def __init__(
        self,
        stop: threading.Event,
        outcome: Ending | Exception = Ending.DONE,
        *,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self._stop = stop
        self._outcome = outcome
        self._began = began
        self.interval: timedelta | None = None

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

    def set_interval(self, interval: timedelta) -> None:
        self.interval = interval


class Stage:
    """Merges of one table next to ingest loops that come one after the other."""

    def __init__(self, *script: int | Exception) -> None:
        self.stop = threading.Event()
        self.signal = MergeSignal(self.stop)
        self.table = TwinTable("users", *script, clock=SystemClock(), seconds=0.0)
        self.merges = MergeLoop(
            {"users": self.table}, interval=timedelta(hours=1), stop=self.signal
        )

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
    changed = timedelta(seconds=3)
    loop.set_intervals(ingest=changed, merge=timedelta(hours=1))
    loop.run()
    assert repaired.interval == changed


def test_a_source_that_was_repaired_is_tried_at_once() -> None:
    stage = Stage()
    repaired = Ingest(stage.stop, began=stage.stop.set)
    loop = stage.run_loop(
        Ingest(stage.stop, PositionLostError("lost")), repaired, source_retry=10 * PATIENCE
    )
    saying = threading.Thread(target=say_until, args=(stage.stop, loop.try_source_again))
    saying.start()
    assert loop.run() is Ending.STOPPED
    saying.join()


def say_until(stop: threading.Event, say: Callable[[], None]) -> None:
    while not stop.wait(0.05):
        say()


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
        stage.signal.ring()
        assert merged.wait(PATIENCE)
        stage.stop.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert stage.run_loop(Ingest(stage.stop)).run() is Ending.STOPPED
    asking.join()
    assert stage.table.batches >= 1


def test_the_bell_ends_a_wait_and_is_heard_once() -> None:
    signal = MergeSignal(threading.Event())
    signal.ring()
    assert signal.wait(PATIENCE) is False
    began = SystemClock().monotonic()
    assert signal.wait(0.05) is False
    assert SystemClock().monotonic() - began >= 0.05
