"""The process of a JVM, replaced by a script: it is found again, and never left behind."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from frazil.cli.main import _interrupted
from frazil.cli.process.interrupting import Interrupted, Interrupts
from frazil.cli.process.stop_signals import StopSignals
from frazil.clients.spark.jvm_process import kill_jvm, start_jvm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault("N52")

# The port as four bytes, the length of the secret as four, the secret.
LISTENS = "printf '\\000\\000\\020\\001\\000\\000\\000\\003abc' > $_PYSPARK_DRIVER_CONN_INFO_PATH"
PATIENCE = 30.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def write_submit(home: Path, *lines: str) -> Path:
    """The script, and the file in which it says which process it is."""
    script, pid_file = home / "bin" / "spark-submit", home / "pid"
    script.write_text("\n".join(("#!/bin/sh", f"echo $$ > {pid_file}", *lines, "")))
    script.chmod(0o755)
    return pid_file


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it was left behind"
        time.sleep(0.05)


def test_one_that_listens_is_spoken_to(home: Path) -> None:
    write_submit(home, LISTENS, "exec sleep 60")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        found = start_jvm("--name x", os.environ, nowhere.fileno())
    assert found is not None
    assert (found.port, found.secret) == (4097, "abc")
    # Terminals and supervisors signal all processes; only we may end the JVM.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        found.process.send_signal(number)
    time.sleep(0.2)
    assert found.process.poll() is None
    assert os.getpgid(found.process.pid) != os.getpgid(0)
    kill_jvm(found.process)
    kill_jvm(found.process)
    wait_until_gone(found.process.pid)


def test_one_that_ends_before_it_listens_is_reported(home: Path) -> None:
    write_submit(home, "exit 3")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        assert start_jvm("", os.environ, nowhere.fileno()) is None


def test_an_interrupt_while_it_starts_leaves_nothing(home: Path) -> None:
    pid_file = write_submit(home, "sleep 60 & wait")
    with Interrupts(Interrupted), open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(Interrupted):
            start_jvm("", os.environ, nowhere.fileno())
    if pid_file.exists() and pid_file.read_text().strip():
        wait_until_gone(int(pid_file.read_text()))


def test_what_is_not_worth_finishing_is_left_at_once() -> None:
    with StopSignals() as signals:
        with pytest.raises(Interrupted), signals.raising():
            signal.raise_signal(signal.SIGTERM)
        assert signals.exit_code == 0
        # It came before: nothing is begun.
        with pytest.raises(Interrupted), signals.raising():
            raise AssertionError


@pytest.mark.parametrize(
    ("arguments", "number", "status"),
    [
        (["run"], signal.SIGTERM, 0),
        (["--debug", "merge", "--once"], signal.SIGTERM, 0),
        (["run"], signal.SIGINT, 130),
        (["verify"], signal.SIGTERM, 130),
        (["check"], signal.SIGINT, 130),
    ],
)
def test_only_a_verb_that_runs_until_stopped_succeeds_on_sigterm(
    arguments: list[str], number: signal.Signals, status: int
) -> None:
    assert _interrupted(arguments, number) == status
