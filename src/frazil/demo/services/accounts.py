"""The account a service runs under when we are root, and what that account can reach."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from frazil.errors import ServiceError

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
