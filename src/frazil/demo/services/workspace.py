"""The folder of a service: its data, its log, its secrets, and the account that may reach it."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """The account for a program that refuses root; None when we are an ordinary user already."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError as error:
        message = f"root may not run this service and the user {_UNPRIVILEGED} does not exist."
        raise ServiceError(message, next_step="run as an ordinary user") from error
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def is_open_to_all(folder: Path) -> bool:
    """Whether every user may enter this folder."""
    return all(
        part.stat().st_mode & stat.S_IXOTH for part in (folder.resolve(), *folder.resolve().parents)
    )


def temporary_root(account: Account | None) -> Path:
    """The temp folder, or the system's own if the account may not enter the one we were given."""
    chosen = Path(tempfile.gettempdir())
    if account is None:
        return chosen
    for folder in (chosen, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - folders are made inside
        if folder.is_dir() and is_open_to_all(folder):
            return folder
    message = f"{account.name} may not enter {chosen} or any other temp folder."
    raise ServiceError(message, next_step="set TMPDIR to a folder that every user may enter")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A service's own folder; ``discard`` is what must go if we die."""

    folder: Path
    log: Path
    discard: tuple[Path, ...]

    def subfolder(self, name: str, *, owner: Account | None = None) -> Path:
        """A private folder inside, made if it is not there."""
        path = self.folder / name
        path.mkdir(mode=0o700, exist_ok=True)
        if owner is not None:
            os.chown(path, owner.uid, owner.gid)
        return path

    def private_file(self, name: str, content: bytes, *, owner: Account | None = None) -> Path:
        """A file inside that only its owner may read, with this content."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
        return path

    def environment(self) -> dict[str, str]:
        """What a service gets to see: nothing of ours but the path, and a home of its own."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LC_ALL": "C",
            "TZ": "UTC",
        }


@contextmanager
def workspace(
    name: str, *, folder: Path | None, keep: bool, account: Account | None = None
) -> Iterator[Workspace]:
    """A folder for the time of one service.

    A folder that was given stays, and so does every folder if ``keep``. Otherwise it is removed
    at the end; only the log remains after a ServiceError that names it.
    """
    if folder is None:
        home = Path(tempfile.mkdtemp(prefix=f"frazil-{name}-", dir=temporary_root(account)))
    else:
        home = folder.absolute()
        home.mkdir(parents=True, exist_ok=True)
    if account is not None:
        _open_to(account, home, ours=folder is None)
    disposable = folder is None and not keep
    space = Workspace(home, home / f"{name}.log", (home,) if disposable else ())
    space.log.touch(mode=0o600)
    spared: Path | None = None
    try:
        yield space
    except ServiceError as error:
        spared = space.log if str(space.log) in error.message else None
        raise
    finally:
        if disposable:
            _remove(home, spared)


def _open_to(account: Account, home: Path, *, ours: bool) -> None:
    if ours:
        # Execute permission only: the contents have their own modes.
        home.chmod(0o711)
    if not is_open_to_all(home):
        message = f"the service runs as {account.name}, who may not enter {home}."
        raise ServiceError(message, next_step="choose a folder whose parents every user may enter")


def _remove(home: Path, spared: Path | None) -> None:
    if spared is None:
        shutil.rmtree(home, ignore_errors=True)
        return
    for path in home.iterdir():
        if path != spared:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; what is gone already is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
