"""Signals to a process whose loop is idle, at work, or stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import stopping_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
LONG = 60.0


@contextmanager
def worker(kind: str, grace: float = LONG) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, stopping_worker.__file__, kind, str(grace)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.strip() == line:
            return
    pytest.fail(f"it ended without saying {line!r}")


def end_of(process: subprocess.Popen[str], within: float = 20.0) -> tuple[int, list[str]]:
    said, complaints = process.communicate(timeout=within)
    assert "Traceback" not in complaints, complaints
    return process.returncode, said.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_running_batch_is_finished_and_no_other_is_begun(number: int, status: int) -> None:
    with worker("batches") as process:
        wait_for(process, "batch 1 done")
        process.send_signal(number)
        code, said = end_of(process)
    assert code == status
    assert said[-1] == "ended: told to stop"
    done = [line for line in said if line.startswith("batch")]
    # One was under way; one more may have begun before the signal was seen.
    assert len(done) <= 2
    assert said[-2] == f"{len(done) + 1} commits"


def test_an_idle_process_ends_at_once() -> None:
    with worker("idle") as process:
        wait_for(process, "0 commits")
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code, said = end_of(process)
        assert time.monotonic() - started < 5
    assert (code, said) == (0, ["ended: told to stop"])


def test_a_merge_that_outlasts_the_grace_is_abandoned_without_a_word() -> None:
    with worker("hangs", grace=0.5) as process:
        wait_for(process, "working")
        process.send_signal(signal.SIGTERM)
        code, said = end_of(process)
    assert (code, said) == (0, ["interrupted", "ended: told to stop"])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_second_signal_ends_the_process_where_it_is(number: int, status: int) -> None:
    with worker("hangs") as process:
        wait_for(process, "working")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(number)
        assert end_of(process, within=5) == (status, [])
