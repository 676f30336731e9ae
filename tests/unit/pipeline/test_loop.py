"""The merge loop: order, pace, and what it does about each kind of failure."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.hooks import ManualClock, SeededRandomness
from frazil.pipeline.loops.loop import JITTER, Ending, StopRequest
from frazil.pipeline.loops.merge_loop import BREATH_SECONDS, MergeLoop
from frazil.pipeline.next_step import Fenced, Pause, RetriesExhausted, RetryAfter, plan_step
from frazil.pipeline.recovery import RECOVERY, RecoveryAction
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from tests.support.merge.loop_stage import INTERVAL, RETRY, START, Stage, gaps, status_of
from tests.support.merge.scripted import StageClock, TwinTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.merge.report import MergeReport


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_once_merges_every_table_in_the_order_of_the_configuration(stage: Stage) -> None:
    for name in ("b", "a", "c"):
        stage.table(name, 2)
    assert stage.loop().run(once=True) is Ending.DONE
    assert stage.reported == [("b", "2 commits"), ("a", "2 commits"), ("c", "2 commits")]
    assert stage.clock.waits == []
    assert stage.cycles == [3.0]


def test_once_with_nothing_to_merge_is_done(stage: Stage) -> None:
    stage.table("a", 0)
    loop = stage.loop()
    assert loop.run(once=True) is Ending.DONE
    status = status_of(loop, "a")
    assert (status.phase, status.error, status.next_run) == (MergeStep.DONE, None, None)
    assert status.report is not None
    assert status.report.commits == ()


def test_tables_are_merged_again_after_the_interval_less_some_chance(stage: Stage) -> None:
    table = stage.table("a")
    stage.until(600)
    assert stage.loop().run() is Ending.STOPPED
    waits = gaps(table)
    assert len(waits) >= 9
    longest = INTERVAL.total_seconds()
    assert all(longest * (1 - JITTER) <= wait <= longest for wait in waits)
    assert len(set(waits)) == len(waits)


def test_a_merge_longer_than_its_interval_is_followed_by_the_next_after_a_breath(
    stage: Stage,
) -> None:
    table = stage.table("a", seconds=100)
    stage.until(1_000)
    stage.loop().run()
    assert gaps(table) == [pytest.approx(100 + BREATH_SECONDS)] * (len(table.began) - 1)


def test_an_interval_of_a_millisecond_does_not_spin(stage: Stage) -> None:
    table = stage.table("a", seconds=0)
    stage.until(10)
    stage.loop(interval=timedelta(milliseconds=1)).run()
    assert len(table.began) <= 10 / BREATH_SECONDS + 1
    assert all(wait is not None and wait > 0 for wait in stage.clock.waits)


def test_the_loop_waits_on_the_monotonic_clock_and_not_on_the_wall(stage: Stage) -> None:
    class LeapingClock(StageClock):
        """The wall clock is set back by an hour at every reading."""

        def now(self) -> datetime:
            return super().now() - timedelta(hours=len(table.began))

    stage.clock = LeapingClock(START)
    table = TwinTable("a", clock=stage.clock)
    stage.tables["a"] = table
    stage.until(300)
    stage.loop().run()
    assert len(table.began) >= 5


def test_a_conflict_is_planned_again_at_once(stage: Stage) -> None:
    table = stage.table("a", errors.CommitConflictError("x"), 1)
    loop = stage.loop()
    assert loop.run(once=True) is Ending.DONE
    assert gaps(table) == [1.0]
    assert stage.steps == [("a", RetryAfter(0.0))]
    status = status_of(loop, "a")
    assert (status.error, status.failures) == (None, 0)


@pytest.mark.parametrize("kind", [errors.CommitConflictError, errors.CommitUnknownError])
def test_what_is_tried_at_once_slows_down_when_the_attempts_are_used_up(
    stage: Stage, kind: type[errors.FrazilError]
) -> None:
    table = stage.table("a", *(kind("x") for _ in range(5)), 1)
    stage.until(120)
    stage.loop().run()
    waits = [wait - 1.0 for wait in gaps(table)][:5]
    assert waits[:2] == [0.0, 0.0]
    for number, wait in enumerate(waits[2:], start=3):
        limit = min(8.0, 2.0 ** (number - 1))
        assert limit / 2 <= wait <= limit


def test_what_may_pass_by_itself_is_tried_again_for_ever_with_a_bounded_back_off(
    stage: Stage,
) -> None:
    table = stage.table("a", *(errors.StorageError("x") for _ in range(50)))
    stage.until(200)
    loop = stage.loop()
    assert loop.run() is Ending.STOPPED
    waits = [wait - 1.0 for wait in gaps(table)]
    assert len(waits) > 20
    for number, wait in enumerate(waits, start=1):
        limit = min(8.0, 2.0 ** (number - 1))
        assert limit / 2 <= wait <= limit
    status = status_of(loop, "a")
    assert status.phase is MergeStep.WAITING
    assert status.code == "FRZ-LAK-02"
    assert status.failures == len(table.began)
    assert status.next_run is not None


def test_success_forgets_earlier_failures(stage: Stage) -> None:
    failure = errors.CatalogError
    stage.table("a", failure("x"), failure("x"), 1, failure("x"), failure("x"), 1)
    stage.until(300)
    stage.loop().run()
    waits = [step.seconds for _, step in stage.steps if isinstance(step, RetryAfter)]
    assert waits[0] <= 1.0 < waits[1] <= 2.0
    assert waits[2] <= 1.0 < waits[3] <= 2.0


def test_a_table_that_requires_action_is_stopped_and_the_others_go_on(stage: Stage) -> None:
    error = errors.OutOfOrderError("one", table="public.a", next_step="set order: per_key")
    stopped, other = stage.table("a", error, 1), stage.table("b")
    stage.until(600)
    loop = stage.loop()
    assert loop.run() is Ending.STOPPED
    assert len(stopped.began) == 1
    assert len(other.began) >= 9
    status = status_of(loop, "a")
    assert status.phase is MergeStep.STOPPED
    assert status.since == START + timedelta(seconds=1)
    assert status.next_run is None
    assert status.code == "FRZ-LAK-11"
    assert status.remedy == "set order: per_key"
    assert "public.a: one" in (status.reason or "")
    assert stage.steps == [("a", Pause())]


def test_with_every_table_stopped_the_loop_waits_for_the_end_without_polling(stage: Stage) -> None:
    table = stage.table("a", errors.NullKeyError("x"))
    stage.until(100_000)
    assert stage.loop().run() is Ending.STOPPED
    assert len(table.began) == 1
    assert stage.clock.waits == [None]


def test_the_remedy_of_an_error_without_a_next_step_is_the_published_one(stage: Stage) -> None:
    stage.table("a", errors.MissingImageError("x"))
    loop = stage.loop()
    loop.run(once=True)
    assert status_of(loop, "a").remedy == errors.MissingImageError.remedy


@pytest.mark.fault("N44")
@pytest.mark.parametrize(
    "error", [RuntimeError("canary from a row"), errors.DefectError("unexpected RuntimeError")]
)
def test_an_unforeseen_error_stops_its_table_and_does_not_show_its_text(
    stage: Stage, error: Exception
) -> None:
    broken = stage.table("a", *[error] * RETRY.attempts)
    other = stage.table("b", 1)
    loop = stage.loop()
    assert loop.run(once=True) is Ending.FAILED
    assert len(broken.began) == RETRY.attempts, "neither at once nor for ever"
    status = status_of(loop, "a")
    assert status.phase is MergeStep.STOPPED
    assert status.code == "FRZ-OPS-04"
    assert "unexpected RuntimeError" in str(status.reason)
    assert "canary" not in str(status.reason)
    assert status.remedy is not None
    assert other.batches == 1


@pytest.mark.fault("N44")
@pytest.mark.parametrize("error", [RuntimeError("x"), errors.DefectError("unexpected x")])
def test_a_process_that_stays_does_not_try_a_defect_for_ever(error: Exception) -> None:
    def step(failures: int) -> object:
        chance = SeededRandomness(1)
        return plan_step(error, failures=failures, retry=RETRY, randomness=chance)

    assert isinstance(step(RETRY.attempts - 1), RetryAfter)
    assert step(RETRY.attempts) == Pause()


@pytest.mark.fault("N44")
def test_a_defect_that_passes_leaves_nothing_behind(stage: Stage) -> None:
    stage.table("a", RuntimeError("x"), 1)
    loop = stage.loop()
    assert loop.run(once=True) is Ending.DONE
    assert status_of(loop, "a").phase is MergeStep.DONE


@pytest.mark.parametrize("kind", [errors.FencedError, errors.LeaseLostError])
def test_a_fence_ends_the_loop_with_its_error(stage: Stage, kind: type[errors.FrazilError]) -> None:
    stage.table("a", kind("another process"))
    other = stage.table("b", 1)
    loop = stage.loop()
    with pytest.raises(kind, match="another process"):
        loop.run(once=True)
    assert other.began == []
    assert stage.steps == [("a", Fenced())]
    assert status_of(loop, "a").phase is MergeStep.STOPPED


def test_a_request_to_shut_down_is_no_error(stage: Stage) -> None:
    stage.table("a", errors.ShutdownRequested("x"))
    assert stage.loop().run() is Ending.STOPPED


def test_once_requires_action_when_the_rest_is_done(stage: Stage) -> None:
    stage.table("a", errors.DuplicateKeyError("x"))
    done = stage.table("b", 3)
    assert stage.loop().run(once=True) is Ending.ACTION_REQUIRED
    assert done.batches == 3


def test_once_fails_when_the_attempts_for_a_passing_failure_are_used_up(stage: Stage) -> None:
    table = stage.table("a", *(errors.CatalogError("x") for _ in range(9)))
    done = stage.table("b", 1)
    stage.table("c", errors.DuplicateKeyError("x"))
    loop = stage.loop()
    assert loop.run(once=True) is Ending.FAILED
    assert len(table.began) == RETRY.attempts
    assert done.batches == 1
    assert stage.steps[-1] == ("a", RetriesExhausted())
    assert status_of(loop, "a").phase is MergeStep.STOPPED


def test_once_other_tables_have_their_turn_while_one_backs_off(stage: Stage) -> None:
    stage.table("a", errors.CatalogError("x"), 1)
    stage.table("b", 1)
    assert stage.loop().run(once=True) is Ending.DONE
    assert [name for name, _ in stage.reported] == ["a", "b", "a"]
    assert len(stage.cycles) == 1


def test_when_the_engine_is_gone_no_attempt_is_made_any_more(stage: Stage) -> None:
    table = stage.table("a", errors.CatalogError("no answer"))
    loop = stage.loop(is_alive=lambda: False)
    with pytest.raises(errors.RuntimeMissingError, match="JVM") as raised:
        loop.run()
    assert isinstance(raised.value.__cause__, errors.CatalogError)
    assert len(table.began) == 1


def test_a_wish_to_end_is_met_between_two_batches(stage: Stage) -> None:
    table = stage.table("a", 5)
    later = stage.table("b", 5)
    batches = iter(range(5))

    def stop_after_two() -> None:
        if next(batches) == 1:
            stage.stop.set()

    table.before_batch = stop_after_two
    loop = stage.loop()
    assert loop.run() is Ending.STOPPED
    assert table.batches == 2
    assert later.began == []
    assert stage.reported == [("a", "2 commits")]


def test_a_wish_that_comes_before_the_start_begins_nothing(stage: Stage) -> None:
    table = stage.table("a", 5)
    stage.stop.set()
    assert stage.loop().run(once=True) is Ending.STOPPED
    assert table.began == []


def test_a_wish_during_a_back_off_ends_the_wait(stage: Stage) -> None:
    stage.table("a", *(errors.CatalogError("x") for _ in range(9)))
    stage.until(1.2)
    assert stage.loop().run(once=True) is Ending.STOPPED
    assert stage.clock.monotonic() == pytest.approx(1.2)


def test_abandoned_merges_are_not_reported(stage: Stage) -> None:
    table = stage.table("a", 1)
    loop = stage.loop()
    table.before_batch = loop.abandon
    loop.run(once=True)
    assert stage.reported == []


def test_every_table_has_one_turn_in_a_cycle(stage: Stage) -> None:
    stage.table("a", 1)
    stage.table("b", errors.CatalogError("x"), 1)
    stage.table("c", errors.NullKeyError("x"))
    stage.until(600)
    stage.loop().run()
    assert stage.cycles[0] == 3.0
    assert 8 <= len(stage.cycles) <= 12


def test_several_tables_are_merged_at_a_time_and_no_more() -> None:
    most = 0
    at_work: set[str] = set()
    lock = threading.Lock()
    both = threading.Barrier(2, timeout=60)

    class Slow(TwinTable):
        def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
            nonlocal most
            with lock:
                at_work.add(self.name)
                most = max(most, len(at_work))
            both.wait()
            with lock:
                at_work.discard(self.name)
            return super().merge(stop=stop)

    clock = ManualClock(START)
    tables = {name: Slow(name, 1, clock=clock, seconds=0) for name in "abcd"}
    stop = StopRequest()
    loop = MergeLoop(tables, interval=INTERVAL, stop=stop, concurrency=2, clock=clock)
    assert loop.run(once=True) is Ending.DONE
    assert most == 2
    assert all(table.batches == 1 for table in tables.values())


def test_a_slow_table_does_not_hold_up_the_others_when_there_is_room() -> None:
    clock = ManualClock(START)
    gate = threading.Event()
    order: list[str] = []

    class Gated(TwinTable):
        def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
            assert gate.wait(60)
            return super().merge(stop=stop)

    def report(table: str, _report: MergeReport, _seconds: float) -> None:
        order.append(table)
        if len(order) == 3:
            gate.set()

    tables: dict[str, TwinTable] = {"slow": Gated("slow", 1, clock=clock, seconds=0)}
    tables |= {name: TwinTable(name, 1, clock=clock, seconds=0) for name in "abc"}
    loop = MergeLoop(
        tables,
        interval=INTERVAL,
        stop=StopRequest(),
        concurrency=2,
        clock=clock,
        on_report=report,
    )
    assert loop.run(once=True) is Ending.DONE
    assert order == ["a", "b", "c", "slow"]


def test_a_fence_lets_running_merges_end_between_two_batches() -> None:
    clock = ManualClock(START)
    running = threading.Event()

    class Endless(TwinTable):
        def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
            running.set()
            while not stop():
                threading.Event().wait(0.005)
            return super().merge(stop=stop)

    class Fenced(TwinTable):
        def merge(self, *, stop: Callable[[], bool]) -> MergeReport:
            assert running.wait(60)
            return super().merge(stop=stop)

    tables = {
        "endless": Endless("endless", 5, clock=clock, seconds=0),
        "fenced": Fenced("fenced", errors.FencedError("x"), clock=clock, seconds=0),
    }
    loop = MergeLoop(tables, interval=INTERVAL, stop=StopRequest(), concurrency=2, clock=clock)
    with pytest.raises(errors.FencedError):
        loop.run()
    assert tables["endless"].batches == 0
    assert status_of(loop, "endless").phase is MergeStep.WAITING


def test_the_status_of_a_table_under_way_is_merging(stage: Stage) -> None:
    seen: list[MergeStatus] = []
    table = stage.table("a", 1)
    loop = stage.loop()
    table.before_batch = lambda: seen.extend(loop.statuses)
    loop.run(once=True)
    assert [(each.phase, each.since, each.next_run) for each in seen] == [
        (MergeStep.MERGING, START, None)
    ]


def test_the_loop_leaves_no_thread_behind(stage: Stage) -> None:
    stage.table("a", 1)
    stage.loop(concurrency=3).run(once=True)
    for thread in threading.enumerate():
        if thread.name.startswith("frazil merge"):
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("leaf", errors.leaves(), ids=lambda leaf: leaf.__name__)
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("failures", [1, 2, 3, 40])
def test_every_error_leads_to_the_step_that_the_recovery_table_says(
    leaf: type[errors.FrazilError], failures: int, *, once: bool
) -> None:
    step = plan_step(
        leaf("x"), failures=failures, retry=RETRY, randomness=SeededRandomness(1), once=once
    )
    row = RECOVERY[leaf]
    is_used_up = failures >= RETRY.attempts
    action = row.after_attempts if is_used_up else row.action
    match step:
        case RetryAfter(seconds=0.0):
            assert action in {RecoveryAction.NOW, RecoveryAction.INSPECT}
        case RetryAfter(seconds=seconds):
            assert action is RecoveryAction.LATER
            assert not (once and is_used_up)
            assert 0.5 <= seconds <= RETRY.longest_seconds
        case Pause():
            assert action is RecoveryAction.NEVER
        case RetriesExhausted():
            assert once
            assert is_used_up
            assert action is RecoveryAction.LATER
        case Fenced():
            assert action is RecoveryAction.STOP


@pytest.mark.fault("N56")
def test_no_merge_begins_while_another_process_does_the_work() -> None:
    stage = Stage()
    table = stage.table("a", 1)
    stage.until(120.0)
    loop = stage.loop(may_start=lambda: stage.clock.monotonic() >= 61.5)
    stage.clock.at(61.5, loop.wake)
    loop.run()
    # It did not ask again and again meanwhile.
    assert table.began[0] == 61.5
    assert stage.clock.waits[0] is None


@pytest.mark.fault("N56")
def test_once_does_not_wait_for_another_process() -> None:
    stage = Stage()
    table = stage.table("a", 1)
    stage.loop(may_start=lambda: False).run(once=True)
    assert not table.began
