"""No service outlives its parent, however either is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from frazil.demo.services import embedded_postgres, etcd
from frazil.demo.services.process import GuardedProcess, Launch
from frazil.errors import ServiceError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.services

# More than the longest grace, which a service that hangs may take.
GONE_SECONDS = 60

ALL_SERVICES = """
import json, time
from contextlib import ExitStack
from frazil.demo.services import embedded_postgres, etcd, rest_catalog, seaweedfs

with ExitStack() as stack:
    newer = stack.enter_context(embedded_postgres(version=18))
    older = stack.enter_context(embedded_postgres(version=16))
    store = stack.enter_context(seaweedfs())
    catalog = stack.enter_context(rest_catalog(s3=store))
    leases = stack.enter_context(etcd())
    running = (newer, older, store, catalog, leases)
    folders = [str(service.log.parent) for service in running]
    print(json.dumps({"dsn": newer.dsn, "folders": folders}), flush=True)
    time.sleep(600)
"""

# Dies right after the first service was started, before it is ready.
DIES_EARLY = """
from frazil.demo.services import etcd

with etcd():
    pass
"""

# The fork holds the parent's end of every pipe, so that no keeper sees the end of its input.
LEAVES_A_FORK = """
import os, signal, time
from frazil.demo.services import etcd

with etcd() as server:
    fork = os.fork()
    if fork == 0:
        time.sleep(600)
    print(server.service.pid, fork, flush=True)
    time.sleep(600)
"""


def is_gone(process: psutil.Process) -> bool:
    """Whether it ended; a zombie only waits for a parent that is none of ours."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_all_gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: all(is_gone(process) for process in processes))


@contextmanager
def parent_running(script: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            yield parent
        finally:
            parent.kill()


def test_a_killed_parent_leaves_no_process_and_no_data() -> None:
    with parent_running(ALL_SERVICES) as parent:
        assert parent.stdout is not None
        facts = json.loads(parent.stdout.readline())
        with psycopg.connect(facts["dsn"]) as connection:
            # A session with an open transaction, whose client goes on living.
            connection.execute("create table t (id int)")
            descendants = psutil.Process(parent.pid).children(recursive=True)
            names = {process.name() for process in descendants}
            parent.send_signal(signal.SIGKILL)
            assert_all_gone(descendants)
            connection.close()
    assert len(descendants) > 20
    assert {"postgres", "weed", "java", "etcd"} <= names
    wait_until(lambda: not any(Path(folder).exists() for folder in facts["folders"]))


def test_a_parent_killed_right_after_the_spawn_leaves_nothing(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "FRAZIL_FAILPOINTS": "service.spawned=kill",
    }
    finished = subprocess.run([sys.executable, "-c", DIES_EARLY], env=environment, check=False)
    assert finished.returncode == -signal.SIGKILL
    wait_until(lambda: not mentioning(tmp_path) and not list(tmp_path.iterdir()))


def test_a_fault_right_after_the_spawn_leaves_nothing(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "FRAZIL_FAILPOINTS": "service.spawned=error",
    }
    finished = subprocess.run(
        [sys.executable, "-c", DIES_EARLY], env=environment, check=False, capture_output=True
    )
    assert b"InjectedFault" in finished.stderr
    assert mentioning(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def mentioning(folder: Path) -> list[psutil.Process]:
    """The processes with this folder in their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in argument for argument in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if not is_gone(process)]


def test_a_fork_that_keeps_the_pipes_open_does_not_keep_services_alive() -> None:
    with parent_running(LEAVES_A_FORK) as parent:
        assert parent.stdout is not None
        service, fork = (psutil.Process(int(pid)) for pid in parent.stdout.readline().split())
        keeper = service.parent()
        assert keeper is not None
        parent.send_signal(signal.SIGKILL)
        try:
            assert_all_gone([service, keeper])
        finally:
            fork.kill()


def test_a_killed_keeper_leaves_no_service() -> None:
    with embedded_postgres() as server, etcd() as leases:
        for service in (server.service, leases.service):
            process = psutil.Process(service.pid)
            keeper = process.parent()
            assert keeper is not None
            family = keeper.children(recursive=True)
            keeper.kill()
            assert_all_gone(family)
            assert service.pid is None
        # And the parent can go on.
        leases.restart()
        assert leases.service.pid is not None


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Launch]:
    def build(program: str, **changes: float) -> Launch:
        return Launch(
            name="test",
            command=(sys.executable, "-c", program),
            folder=tmp_path,
            log=tmp_path / "test.log",
            environment=dict(os.environ),
            grace_seconds=changes.get("grace_seconds", 5),
        )

    return build


def lines_of(log: Path, count: int) -> list[str]:
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= count)
    return log.read_text().splitlines()


def test_the_exit_status_is_passed_on(launch: Callable[..., Launch]) -> None:
    for program, status in (("exit(0)", 0), ("exit(3)", 3), ("import os; os.abort()", 134)):
        process = GuardedProcess(launch(program))
        assert process.wait(GONE_SECONDS) == status
        process.stop()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = Launch("ghost", ("/no/such/program",), tmp_path, tmp_path / "log", {})
    with pytest.raises(ServiceError, match=r"ghost cannot be executed: .*/no/such/program"):
        GuardedProcess(missing)


def test_a_service_deaf_to_its_stop_signal_is_killed_after_the_grace(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(600)"
    )
    process = GuardedProcess(launch(deaf, grace_seconds=0.2))
    lines_of(tmp_path / "test.log", 1)
    service = psutil.Process(process.pid)
    process.stop()
    assert is_gone(service)
    assert process.status == 128 + signal.SIGKILL


def test_descendants_in_sessions_of_their_own_are_ended_too(
    launch: Callable[..., Launch], tmp_path: Path
) -> None:
    founder = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    process = GuardedProcess(launch(founder))
    (number,) = lines_of(tmp_path / "test.log", 1)
    descendant = psutil.Process(int(number))
    process.stop()
    assert is_gone(descendant)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_keeper_ends_the_service(
    launch: Callable[..., Launch], number: signal.Signals
) -> None:
    process = GuardedProcess(launch("import time; time.sleep(600)"))
    service = psutil.Process(process.pid)
    keeper = service.parent()
    assert keeper is not None
    keeper.send_signal(number)
    assert process.wait(GONE_SECONDS) == 128 + signal.SIGTERM
    assert is_gone(service)
    process.stop()
