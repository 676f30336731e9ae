"""Folders that only this user can write to: the content of others cannot be trusted.

Programs and indexes come from such folders, and rows rest in them. Below a temp folder that is
shared, another user may have made one under the same name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_PRIVATE = 0o700
# The owner as seen in a container that has no number for it; usually the root of the host.
_UNMAPPED = 65534
_SYSTEM = frozenset({0, _UNMAPPED})


class ForeignFolderError(OSError):
    """Another user may write to the folder, or could replace it."""


def private_folder(folder: Path) -> Path:
    """The folder, made if it is not there; a folder of ours within it where all may write to it.

    Raises ForeignFolderError if it, or one above it, belongs to another user than us and root.
    """
    path = Path(os.path.realpath(folder))
    _make(path)
    for each in (path, *path.parents):
        owner = each.stat().st_uid
        if owner not in {os.geteuid(), *_SYSTEM}:
            message = f"{each} belongs to user {owner}, who could put anything there"
            raise ForeignFolderError(message)
    facts = path.stat()
    if not stat.S_ISDIR(facts.st_mode):
        message = f"{path} is not a folder"
        raise ForeignFolderError(message)
    is_ours, for_group, for_all = _writers(facts)
    if for_all or (for_group and not is_ours):
        # A volume of a container, or a temp folder itself.
        return private_folder(path / f"frazil-{os.geteuid()}")
    if for_group:
        # The usual mask of many systems; the group is the user's own.
        path.chmod(stat.S_IMODE(facts.st_mode) & ~stat.S_IWGRP)
    return path


def _writers(facts: os.stat_result) -> tuple[bool, bool, bool]:
    is_ours = facts.st_uid == os.geteuid()
    return is_ours, bool(facts.st_mode & stat.S_IWGRP), bool(facts.st_mode & stat.S_IWOTH)


def _make(folder: Path) -> None:
    """Each folder that is missing, private from the first moment on."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        # Another process of ours may be making them too.
        each.mkdir(_PRIVATE, exist_ok=True)
