from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.hooks import (
    Failpoint,
    FailpointAction,
    Interference,
    ManualClock,
    SeededRandomness,
    SystemClock,
    SystemRandomness,
    failpoint,
    parse_failpoints,
)

if TYPE_CHECKING:
    from pathlib import Path

PASS_TWICE = """
from frazil.hooks import Failpoint, failpoint
failpoint(Failpoint.JARS_FETCHED)
print("once", flush=True)
failpoint(Failpoint.JARS_FETCHED)
print("twice", flush=True)
"""


def run_with(failpoints: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASS_TWICE],
        env={**os.environ, "FRAZIL_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unarmed_failpoint_does_nothing_and_costs_next_to_nothing() -> None:
    # Of this thread's own work: what others do meanwhile does not count.
    started = time.thread_time()
    for _ in range(100_000):
        failpoint(Failpoint.SESSION_STARTED)
    # A microsecond each would be ten times what it takes; this only catches a real slip.
    assert time.thread_time() - started < 1


def test_error_raises_at_the_point() -> None:
    finished = run_with("jars.fetched=error")
    assert finished.returncode == 1
    assert "InjectedFault: jars.fetched" in finished.stderr
    assert finished.stdout == ""


def test_the_n_th_passing_can_be_chosen() -> None:
    finished = run_with("jars.fetched=error@2")
    assert finished.stdout == "once\n"
    assert "InjectedFault" in finished.stderr


def test_kill_ends_the_process_as_a_crash_would() -> None:
    finished = run_with("jars.fetched=kill@2")
    assert finished.returncode == -signal.SIGKILL
    assert finished.stdout == "once\n"


def test_delay_waits() -> None:
    started = time.monotonic()
    assert run_with("jars.fetched=delay(0.3)@1").stdout == "once\ntwice\n"
    assert time.monotonic() - started >= 0.3


def test_hold_waits_until_the_file_is_gone_and_says_that_it_was_reached(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    waiting = subprocess.Popen(
        [sys.executable, "-c", PASS_TWICE],
        env={**os.environ, "FRAZIL_FAILPOINTS": f"jars.fetched=hold({gate})@2"},
        stdout=subprocess.PIPE,
        text=True,
    )
    reached = tmp_path / "gate.reached"
    deadline = time.monotonic() + 60
    while not reached.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reached.exists()
    assert waiting.poll() is None
    gate.unlink()
    output, _ = waiting.communicate(timeout=60)
    assert output == "once\ntwice\n"


@pytest.mark.parametrize(
    "text",
    ["nowhere=kill", "jars.fetched", "jars.fetched=explode", "jars.fetched=hold", "=kill",
     "jars.fetched=delay(soon)", "jars.fetched=kill@0"],
)  # fmt: skip
def test_a_misspelt_failpoint_is_refused_rather_than_ignored(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_failpoints(text)


def test_several_failpoints_are_read_at_once() -> None:
    assert parse_failpoints(" jars.fetched=error ; session.started=delay(1.5)@3;") == {
        Failpoint.JARS_FETCHED: Interference(FailpointAction.ERROR, "", 0),
        Failpoint.SESSION_STARTED: Interference(FailpointAction.DELAY, "1.5", 3),
    }


def test_a_manual_clock_moves_only_when_advanced() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock = ManualClock(start)
    clock.sleep(30)
    clock.advance(12)
    assert clock.now() == start + timedelta(seconds=42)
    assert clock.monotonic() == 42


def test_the_system_clock_knows_its_zone_and_really_waits() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.01
    assert clock.now().tzinfo is UTC


def test_the_same_seed_gives_the_same_chances() -> None:
    first, second = SeededRandomness(7), SeededRandomness(7)
    assert first.token(16) == second.token(16)
    assert first.uniform(0, 1) == second.uniform(0, 1)
    assert SystemRandomness().token(16) != SystemRandomness().token(16)
    assert 2 <= SystemRandomness().uniform(2, 3) <= 3
