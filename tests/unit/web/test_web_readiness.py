from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from frazil.hooks import ManualClock
from frazil.web.readiness import Gate, NotReady, Readiness, Ready, State

if TYPE_CHECKING:
    import pytest

# Far above what a busy machine needs.
PATIENCE = 60.0


def still() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


def join_checks() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("ready "):
            thread.join(PATIENCE)


def test_without_a_check_the_process_is_starting() -> None:
    assert not Readiness().report().ready


def test_ready_when_every_check_is() -> None:
    readiness = Readiness()
    readiness.add("source", Ready)
    readiness.add("catalog", Ready)
    report = readiness.report()
    assert report.ready
    assert dict(report.states) == {"source": Ready(), "catalog": Ready()}


def test_one_that_is_not_ready_is_named_with_its_reason() -> None:
    readiness = Readiness()
    readiness.add("source", Ready)
    readiness.add("catalog", lambda: NotReady("it is down"))
    report = readiness.report()
    assert not report.ready
    assert report.states["catalog"] == NotReady("it is down")


def test_a_check_that_raises_is_not_ready() -> None:
    def fail() -> State:
        raise ConnectionRefusedError("no listener")

    readiness = Readiness()
    readiness.add("source", fail)
    assert readiness.report().states["source"] == NotReady("ConnectionRefusedError: no listener")


def test_a_check_that_leaves_its_thread_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python ignores SystemExit in a thread, pytest does not.
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    answers = iter([Ready()])
    clock = still()

    def leave() -> State:
        for answer in answers:
            return answer
        raise SystemExit

    readiness = Readiness(clock=clock)
    readiness.add("source", leave)
    assert readiness.report().ready
    clock.advance(2)
    assert not readiness.report().ready
    join_checks()


def test_probes_within_a_second_ask_once() -> None:
    clock = still()
    calls: list[int] = []

    def check() -> State:
        calls.append(1)
        return Ready()

    readiness = Readiness(clock=clock)
    readiness.add("source", check)
    for _ in range(20):
        readiness.report()
    clock.advance(0.9)
    readiness.report()
    assert len(calls) == 1
    clock.advance(0.2)
    readiness.report()
    assert len(calls) == 2


def test_probes_at_the_same_time_ask_once() -> None:
    calls: list[int] = []
    go_on = threading.Event()

    def check() -> State:
        calls.append(1)
        go_on.wait(PATIENCE)
        return Ready()

    # Answers are kept for a second, however long the threads take.
    readiness = Readiness(clock=still(), check_seconds=PATIENCE)
    readiness.add("source", check)
    threads = [threading.Thread(target=readiness.report) for _ in range(8)]
    for thread in threads:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_hanging_check_costs_its_time_once_and_one_thread_only() -> None:
    clock = still()
    release = threading.Event()
    started: list[int] = []

    def hang() -> State:
        started.append(1)
        release.wait(PATIENCE)
        return Ready()

    readiness = Readiness(clock=clock, check_seconds=1)
    readiness.add("source", hang)
    readiness.add("catalog", Ready)
    for _ in range(2):
        report = readiness.report()
        assert report.states["source"] == NotReady("no answer within 1 s")
        assert report.states["catalog"] == Ready()
        clock.advance(2)
    assert len(started) == 1
    release.set()
    join_checks()
    assert readiness.report().ready


def test_a_gate_opens_once_and_for_all() -> None:
    gate = Gate("the first pass has not ended")
    assert gate() == NotReady("the first pass has not ended")
    gate.open()
    assert gate() == Ready()


def test_a_new_check_runs_at_once() -> None:
    readiness = Readiness(clock=still())
    readiness.add("source", Ready)
    assert readiness.report().ready
    readiness.add("catalog", lambda: NotReady("down"))
    assert not readiness.report().ready
