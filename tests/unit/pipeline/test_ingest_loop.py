"""The ingest loop: two lanes, back-off, and the end."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.clients.iceberg.commit.retrying import RetryPolicy
from frazil.errors import (
    FencedError,
    FrazilError,
    MalformedChangeError,
    PositionLostError,
    ShutdownRequested,
    SlotBusyError,
    SourceUnavailableError,
)
from frazil.hooks import SeededRandomness
from frazil.ingest.report import BatchReport
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.model.cause import Cause
from frazil.pipeline.loops.ingest_loop import IngestLoop
from frazil.pipeline.loops.loop import Ending, StopRequest
from frazil.pipeline.next_step import STANDBY_SECONDS, NextStep, RetryAfter, Standby, plan_step
from frazil.sources.protocol import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = Limit(1000, 1000)
SOON = RetryPolicy(attempts=3, base_seconds=0.001, longest_seconds=0.002)


def report(*, copy: bool = False) -> BatchReport:
    return BatchReport(batch="b", tables=(), acknowledged="0/1", seconds=0.1, is_copy=copy)


class Script:
    """An ingester and a source that follow a script, step by step."""

    def __init__(
        self,
        *steps: BatchReport | Exception | None,
        copy: tuple[BatchReport | Exception | None, ...] = (),
        behind: int = 0,
    ) -> None:
        self.steps = list(steps)
        self.copy = list(copy)
        self.behind = behind
        self.done: list[str] = []
        self.table_states: dict[str, TableState] = {}
        self.stopped_partitions: dict[str, FrazilError] = {}
        self.is_closed = False
        self.when_empty: Callable[[], None] = lambda: None
        self.notify: Callable[[], None] = lambda: None
        self.waits: list[float] = []
        self.when_waiting: Callable[[], None] = lambda: None
        self.woken = threading.Event()

    @property
    def tables_to_copy(self) -> set[str]:
        return {"public.users"} if self.copy else set()

    def step(self) -> BatchReport | None:
        self.done.append("step")
        self.behind -= 1
        return self._next(self.steps)

    def copy_tables(self) -> BatchReport | None:
        self.done.append("copy")
        return self._next(self.copy)

    def close(self) -> None:
        self.is_closed = True

    def newest(self) -> str:
        return "0/9"

    def has_reached(self, position: str) -> bool:
        assert position == "0/9"
        return self.behind <= 0

    def follow_states(self, notify: Callable[[], None]) -> None:
        self.notify = notify

    def wait(self, seconds: float, limit: Limit) -> bool:
        assert seconds > 0
        assert limit == LIMIT
        self.waits.append(seconds)
        self.when_waiting()
        self.woken.wait(seconds)
        return False

    def wake(self) -> None:
        self.woken.set()

    def _next(self, script: list[BatchReport | Exception | None]) -> BatchReport | None:
        if not script:
            self.when_empty()
            return None
        found = script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


class Stage:
    """A loop over a script, and what it reported."""

    def __init__(
        self,
        script: Script,
        *,
        is_alive: bool = True,
        interval: timedelta = timedelta(milliseconds=1),
        retry: RetryPolicy = SOON,
    ) -> None:
        self.script = script
        self.stop = StopRequest()
        self.reports: list[BatchReport] = []
        self.errors: list[tuple[Exception, NextStep]] = []
        self.loop = IngestLoop(
            script,
            script,  # type: ignore[arg-type]
            interval=interval,
            limit=LIMIT,
            stop=self.stop,
            retry=retry,
            randomness=SeededRandomness(1),
            on_report=self.reports.append,
            on_error=lambda error, step: self.errors.append((error, step)),
            is_alive=lambda: is_alive,
        )

    def once(self) -> Ending:
        return self.loop.run(once=True)


def test_once_copies_tables_before_changes() -> None:
    stage = Stage(Script(report(), copy=(report(copy=True), None), behind=1))
    assert stage.once() is Ending.DONE
    assert stage.script.done == ["copy", "copy", "step"]
    assert [each.is_copy for each in stage.reports] == [True, False]
    assert stage.script.is_closed


def test_once_goes_on_until_all_that_was_there_is_in() -> None:
    stage = Stage(Script(report(), None, report(), behind=3))
    assert stage.once() is Ending.DONE
    assert stage.script.done.count("step") == 3


def test_what_may_pass_is_tried_again() -> None:
    stage = Stage(Script(SourceUnavailableError("away"), report(), behind=2))
    assert stage.once() is Ending.DONE
    assert isinstance(stage.errors[0][1], RetryAfter)
    assert len(stage.reports) == 1


def test_once_does_not_try_for_ever() -> None:
    away = [SourceUnavailableError("away") for _ in range(9)]
    stage = Stage(Script(*away, behind=9))
    with pytest.raises(SourceUnavailableError):
        stage.once()
    assert stage.script.done.count("step") == SOON.attempts


@pytest.mark.parametrize("error", [PositionLostError("lost"), FencedError("another")])
def test_what_requires_action_or_fences_the_process_ends_the_loop(error: Exception) -> None:
    stage = Stage(Script(error, behind=9))
    with pytest.raises(type(error)):
        stage.once()
    assert stage.script.is_closed


@pytest.mark.parametrize(
    "state",
    [
        Paused("0/1", Cause(None, "why")),
        ResyncRequired("0/1", "why"),
        Copying(Cause(None, "a value does not fit")),
    ],
    ids=str,
)
def test_tables_that_require_action_are_reported_at_the_end(state: object) -> None:
    stage = Stage(Script(behind=1))
    stage.script.table_states = {
        "a": TableState(table="a", identity="", state=Streaming()),
        "b": TableState(table="b", identity="", state=state),  # type: ignore[arg-type]
    }
    assert stage.once() is Ending.ACTION_REQUIRED


def test_partitions_that_were_stopped_are_reported_at_the_end() -> None:
    stage = Stage(Script(behind=1))
    stage.script.stopped_partitions = {"t/0": MalformedChangeError("cut short")}
    assert stage.once() is Ending.ACTION_REQUIRED


def test_both_lanes_run_until_stopped() -> None:
    stage = Stage(Script(report(), report(), copy=(report(copy=True), None)))
    stage.script.when_empty = stage.stop.set
    assert stage.loop.run() is Ending.STOPPED
    assert {each.is_copy for each in stage.reports} == {True, False}


def test_a_lane_that_fails_for_good_ends_the_other_one() -> None:
    stage = Stage(Script(copy=(PositionLostError("lost"),)))
    with pytest.raises(PositionLostError):
        stage.loop.run()


def test_nothing_follows_in_a_lane_once_the_other_one_failed_for_good() -> None:
    """A step that was under way ends, and is not reported as if capture went on."""
    stage = Stage(Script(report(), copy=(PositionLostError("lost"),)))
    looks: list[float] = []
    stage.loop._on_step = looks.append
    step, copy_tables = stage.script.step, stage.script.copy_tables
    under_way, done = threading.Event(), threading.Event()

    def step_that_outlasts_the_other_lane() -> BatchReport | None:
        under_way.set()
        assert done.wait(60)
        return step()

    def fail_meanwhile() -> BatchReport | None:
        assert under_way.wait(60)
        return copy_tables()

    def end_soon(_error: Exception, _step: NextStep) -> None:
        # The lane is about to fail; it has once this returns and its thread ends.
        threading.Thread(target=wait_for_the_end, daemon=True).start()

    def wait_for_the_end() -> None:
        for thread in threading.enumerate():
            if thread.name == "frazil copies":
                thread.join(60)
        done.set()

    stage.script.step = step_that_outlasts_the_other_lane  # type: ignore[method-assign]
    stage.script.copy_tables = fail_meanwhile  # type: ignore[method-assign]
    stage.loop._on_error = end_soon
    with pytest.raises(PositionLostError):
        stage.loop.run()
    assert stage.script.done == ["copy", "step"]
    assert looks == []


def test_a_wait_that_a_stop_interrupts_is_no_failure() -> None:
    stage = Stage(Script(ShutdownRequested("not waited for"), behind=9))
    step = stage.script.step

    def stop_while_it_waits() -> BatchReport | None:
        stage.stop.set()
        return step()

    stage.script.step = stop_while_it_waits  # type: ignore[method-assign]
    assert stage.once() is Ending.STOPPED
    assert stage.errors == []


def test_an_engine_that_is_gone_ends_the_loop() -> None:
    stage = Stage(Script(SourceUnavailableError("away"), behind=2), is_alive=False)
    with pytest.raises(Exception, match="JVM"):
        stage.once()


HOUR = timedelta(hours=1)
SLOWLY = RetryPolicy(attempts=3, base_seconds=3600.0, longest_seconds=7200.0)


def is_one_wait_of_an_hour(stage: Stage) -> bool:
    return len(stage.script.waits) == 1 and stage.script.waits[0] > 3000


def test_a_stop_ends_the_wait_for_changes_at_once() -> None:
    stage = Stage(Script(), interval=HOUR)
    stage.script.when_waiting = stage.stop.set
    assert stage.loop.run() is Ending.STOPPED
    assert is_one_wait_of_an_hour(stage)


def test_a_stop_that_comes_just_before_a_wait_is_not_missed() -> None:
    stage = Stage(Script(), interval=HOUR)
    stage.loop._on_step = lambda _seconds: stage.stop.set()
    assert stage.loop.run() is Ending.STOPPED
    assert stage.script.waits == []


def test_a_table_that_is_to_be_copied_is_copied_while_the_other_lane_waits() -> None:
    stage = Stage(Script(), interval=HOUR)

    def find_a_table() -> None:
        stage.script.copy.append(report(copy=True))
        stage.script.notify()

    stage.script.when_waiting = find_a_table
    stage.loop._on_report = lambda _report: stage.stop.set()
    assert stage.loop.run() is Ending.STOPPED
    assert "copy" in stage.script.done
    assert is_one_wait_of_an_hour(stage)


def test_a_failure_of_the_copies_ends_the_wait_for_changes_at_once() -> None:
    stage = Stage(Script(), interval=HOUR)

    def find_a_table() -> None:
        stage.script.copy.append(PositionLostError("lost"))
        stage.script.notify()

    stage.script.when_waiting = find_a_table
    with pytest.raises(PositionLostError):
        stage.loop.run()
    assert is_one_wait_of_an_hour(stage)


def test_no_change_of_a_table_shortens_a_back_off_but_a_stop_does() -> None:
    stage = Stage(
        Script(copy=(SourceUnavailableError("away"), report(copy=True))),
        interval=HOUR,
        retry=SLOWLY,
    )

    def fail(_error: Exception, _step: NextStep) -> None:
        stage.script.notify()
        threading.Timer(0.05, stage.stop.set).start()

    stage.loop._on_error = fail
    assert stage.loop.run() is Ending.STOPPED
    assert stage.script.done.count("copy") == 1


def test_a_table_that_the_source_does_not_know_is_not_asked_for_all_the_time() -> None:
    script = Script(copy=(None, None, report(copy=True)))
    stage = Stage(script, interval=HOUR)
    copies = threading.Event()
    copy_tables = script.copy_tables

    def copy_once() -> BatchReport | None:
        copies.set()
        return copy_tables()

    script.copy_tables = copy_once  # type: ignore[method-assign]

    def stop_soon() -> None:
        assert copies.wait(60)
        threading.Timer(0.05, stage.stop.set).start()

    script.when_waiting = stop_soon
    assert stage.loop.run() is Ending.STOPPED
    assert script.done.count("copy") == 1


def test_a_process_on_standby_asks_every_second_and_is_no_failure() -> None:
    retry = RetryPolicy(attempts=3, base_seconds=60.0, longest_seconds=60.0)
    for failures in (1, 2, 50):
        step = plan_step(
            SlotBusyError("another"),
            failures=failures,
            retry=retry,
            randomness=SeededRandomness(1),
        )
        assert step == Standby(STANDBY_SECONDS)
