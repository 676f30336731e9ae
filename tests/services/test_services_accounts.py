"""Services run for root and for ordinary users, wherever the packages are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import frazil
from frazil.demo.services import Postgres, embedded_postgres
from frazil.demo.services.packages import package_folder
from frazil.errors import ServiceError

pytestmark = pytest.mark.services

SITE = package_folder("embedded_postgres").parent
SOURCE = Path(frazil.__file__).parent.parent

AS_ORDINARY_USER = """
import os
from frazil.demo.services import embedded_postgres, etcd

with embedded_postgres() as server, etcd() as leases:
    for service in (server.service, leases.service):
        print(os.stat(f"/proc/{service.pid}").st_uid)
    server.kill()
    server.restart()
"""

AS_ROOT_WITH_HIDDEN_PACKAGES = """
from frazil.demo.services.workspace import unprivileged_account
from frazil.demo.services.postgres import PostgresVersion, find_programs
from frazil.demo.services import embedded_postgres

with embedded_postgres() as server:
    print(server.service.launch.command[0])
print(find_programs(PostgresVersion.V18, unprivileged_account()) / "postgres")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")


def environment(*path: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def interpreter_for(uid: int, gid: int) -> str:
    """A Python that this user can run, and with it our sources and packages."""
    question = (
        f"import sys, frazil, os; os.listdir({str(SITE)!r}); assert sys.version_info >= (3, 11)"
    )
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            tried = subprocess.run(
                [candidate, "-c", question],
                user=uid,
                group=gid,
                extra_groups=(),
                cwd="/",
                env=environment(SOURCE, SITE),
                check=False,
                capture_output=True,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return candidate
    pytest.skip("no Python 3.11 or later with our sources is reachable for an ordinary user here")


@needs_root
def test_an_ordinary_user_can_run_services() -> None:
    nobody = pwd.getpwnam("nobody")
    finished = subprocess.run(
        [interpreter_for(nobody.pw_uid, nobody.pw_gid), "-c", AS_ORDINARY_USER],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=(),
        cwd="/",
        env=environment(SOURCE, SITE),
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.stderr == ""
    assert finished.stdout.split() == [str(nobody.pw_uid)] * 2


@needs_root
def test_root_runs_postgres_as_another_user(postgres: Postgres) -> None:
    server = psutil.Process(postgres.service.pid)
    owners = {process.uids().effective for process in (server, *server.children(recursive=True))}
    assert owners == {pwd.getpwnam("nobody").pw_uid}
    assert postgres.data.stat().st_mode & 0o077 == 0
    assert postgres.log.stat().st_mode & 0o077 == 0


@needs_root
def test_root_can_use_packages_that_no_other_user_can_reach(shared_folder: Path) -> None:
    hidden = shared_folder / "home"
    hidden.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(SITE / name, hidden / name, copy_function=link_or_copy)
    finished = subprocess.run(
        [sys.executable, "-c", AS_ROOT_WITH_HIDDEN_PACKAGES],
        env=environment(hidden, SOURCE, TMPDIR=str(shared_folder)),
        check=False,
        capture_output=True,
        text=True,
    )
    assert finished.stderr == ""
    first, second = finished.stdout.split()
    assert first == second
    assert Path(first).is_relative_to(shared_folder)
    assert not Path(first).is_relative_to(hidden)
    # The copy is kept for the next time, everything else is gone.
    copy = shared_folder / Path(first).relative_to(shared_folder).parts[0]
    assert set(shared_folder.iterdir()) == {hidden, copy}
    assert copy.stat().st_uid == 0
    assert copy.stat().st_mode & 0o022 == 0


@needs_root
def test_a_folder_the_server_cannot_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    refused = pytest.raises(ServiceError, match="nobody, who may not enter")
    with refused, embedded_postgres(folder=closed):
        pass
