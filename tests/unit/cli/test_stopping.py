"""Signals to a process whose loop is idle, at work, or stuck."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.process.role import run_role
from tests.support.process import stopping_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.cli.process.stop_signals import StopSignals

ROOT = Path(__file__).resolve().parents[3]
# Far above what a busy machine needs; a grace that is waited for is longer still.
PATIENCE = 60.0
LONG = 240.0


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


def end_of(process: subprocess.Popen[str], within: float = PATIENCE) -> tuple[int, list[str]]:
    said, complaints = process.communicate(timeout=within)
    assert "Traceback" not in complaints, complaints
    return process.returncode, said.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_running_batch_is_finished_and_no_other_is_begun(number: int, status: int) -> None:
    with worker("batches") as process:
        wait_for(process, "batch 1 begins")
        process.send_signal(number)
        code, said = end_of(process)
    assert code == status
    # The batch that is under way ends after the signal, and is the last one.
    assert said == ["stopping", "batch 1 done", "1 commits", "ended: stopped"]


def test_an_idle_process_ends_at_once() -> None:
    with worker("idle") as process:
        wait_for(process, "0 commits")
        process.send_signal(signal.SIGTERM)
        # Long before the grace.
        code, said = end_of(process)
    assert (code, said) == (0, ["stopping", "ended: stopped"])


def test_a_merge_that_outlasts_the_grace_is_abandoned_without_a_word() -> None:
    with worker("hangs", grace=0.5) as process:
        wait_for(process, "working")
        process.send_signal(signal.SIGTERM)
        code, said = end_of(process)
    assert (code, said) == (0, ["stopping", "interrupted", "ended: stopped"])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_second_signal_ends_the_process_where_it_is(number: int, status: int) -> None:
    with worker("hangs") as process:
        wait_for(process, "working")
        process.send_signal(signal.SIGTERM)
        # Two of a kind that come before either is seen are one.
        wait_for(process, "stopping")
        assert process.poll() is None
        process.send_signal(number)
        assert end_of(process) == (status, [])


@pytest.mark.fault("N52")
def test_a_second_interrupt_ends_a_command_where_it_is() -> None:
    script = """
import os, signal, time
from frazil.cli.process.interrupting import Interrupts

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

with Interrupts():
    try:
        interrupt()
    except KeyboardInterrupt:
        pass
    try:
        interrupt()
    except KeyboardInterrupt:
        print("raised again")
"""
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (finished.returncode, finished.stdout) == (130, "")


def test_what_fails_on_the_way_out_of_an_interrupt_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted_while_it_reads(**_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        finally:
            raise KeyError("c")

    monkeypatch.setattr("frazil.cli.app.app", interrupted_while_it_reads)
    assert main(["check"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.splitlines() == ["interrupted: nothing is left running"]


def test_a_statement_that_an_interrupt_cut_off_is_not_warned_about(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The driver warns when it cannot roll back; without a log, Python prints that by itself."""

    def interrupted_in_a_transaction(**_: object) -> None:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        logging.getLogger("psycopg").warning("error ignored in rollback")
        raise KeyboardInterrupt

    monkeypatch.setattr("frazil.cli.app.app", interrupted_in_a_transaction)
    assert main(["demo"]) == ExitCode.INTERRUPTED
    assert capfd.readouterr().err.splitlines() == ["interrupted: nothing is left running"]


def run_that_is_signalled(
    monkeypatch: pytest.MonkeyPatch, *, while_starting: bool
) -> Callable[[], ExitCode]:
    """A run that fails right after the signal."""

    def start(*_: object, signals: StopSignals, **_options: object) -> ExitCode:
        try:
            with signals.raising() if while_starting else nullcontext():
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise KeyError("c")

    nothing: Any = None
    monkeypatch.setattr("frazil.cli.process.role._run_role", start)
    return lambda: run_role(nothing, None, nothing, nothing, once=False)


@pytest.mark.fault("N52")
def test_what_fails_on_the_way_out_of_a_start_that_was_interrupted_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_that_is_signalled(monkeypatch, while_starting=True)() == ExitCode.DONE
    assert "interrupted before anything was begun" in capsys.readouterr().err


def test_what_fails_after_a_request_to_stop_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        run_that_is_signalled(monkeypatch, while_starting=False)()
