"""Set a checkout up on a machine that has only Python, make and package registries.

Standard library only, and written so that an old Python can still read it far enough to say that
it is too old. A second run with everything installed uses no network and takes a moment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
LOG = TOOLS / "setup.log"
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / ".frazil-setup"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCKS = ROOT / "requirements"

OLDEST_PYTHON = (3, 11)

# What each target installs, and which locks have as much, smallest first.
DEMO, DEMO_KAFSCALE, EVERYTHING = "demo.lock", "demo-kafscale.lock", "all.lock"
ENOUGH = {
    DEMO: (DEMO, DEMO_KAFSCALE, EVERYTHING),
    DEMO_KAFSCALE: (DEMO_KAFSCALE, EVERYTHING),
    EVERYTHING: (EVERYTHING,),
}

# What the installers print when the way to the registry, not the package, is the problem.
UNREACHABLE = re.compile(
    r"dns error|error sending request|Could not connect|Connection refused|timed? ?out"
    r"|Temporary failure in name resolution|Network is unreachable|Max retries exceeded"
    r"|NewConnectionError|[Cc]onnect error|tunnel error|tls handshake|not allowed in offline"
    r"|no such host",
    re.IGNORECASE,
)
NO_SPACE = re.compile(r"No space left on device|os error 28|ENOSPC", re.IGNORECASE)


class SetupError(Exception):
    """One sentence about what is missing."""


def main() -> int:
    """Do what is still to be done; print a line per step that takes time.

    ``bootstrap.py demo`` and ``bootstrap.py demo-kafscale`` leave out what only development needs.
    """
    lock = f"{sys.argv[1]}.lock" if sys.argv[1:] else EVERYTHING
    try:
        require_python()
        TOOLS.mkdir(exist_ok=True)
        LOG.write_text("", encoding="utf-8")
        enough = {fingerprint(each) for each in ENOUGH[lock]}
        if not STAMP.is_file() or STAMP.read_text(encoding="utf-8") not in enough:
            install_environment(find_uv(), lock)
            STAMP.write_text(fingerprint(lock), encoding="utf-8")
        provide_java_and_jars("--demo" if lock == EVERYTHING else "--demo-only")
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = error.filename or ROOT
        print(f"setup: cannot write {where}: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


def require_python() -> None:
    """Refuse a Python that cannot run frazil, and a system that Spark's scripts do not know."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        message = (
            f"Python 3.11 or later is needed and {sys.executable} is {found}; "
            "name a newer one with: make PYTHON=python3.12 …"
        )
        raise SetupError(message)
    if os.name != "posix":
        raise SetupError("frazil runs on Linux and macOS only.")


def fingerprint(lock: str) -> str:
    """Changes whenever what must be installed, or for which Python, changes."""
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode() + lock.encode())
    for file in (ROOT / "pyproject.toml", LOCKS / "build.lock", LOCKS / lock):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def find_uv() -> str:
    """The uv on PATH, or one installed into this checkout."""
    on_path = shutil.which("uv")
    if on_path:
        return on_path
    folder = TOOLS / "uv"
    local = folder / "bin" / "uv"
    if not local.is_file():
        say("fetching uv")
        lock = str(LOCKS / "installer.lock")
        run(
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            "no virtual environment could be made: install Python's venv module "
            "(on Debian and Ubuntu: the package python3-venv)",
        )
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", "--require-hashes", "-r", lock], "uv was not installed")
    return str(local)


def install_environment(uv: str, lock: str) -> None:
    """Bring .venv to exactly the packages of a lock, with frazil as a link to this checkout."""
    say("installing the locked packages into .venv (about a minute the first time)")
    STAMP.unlink(missing_ok=True)
    if not is_current(PYTHON):
        run(
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)],
            "no virtual environment could be made",
        )
    # Spark is published as source: its archive unpacked, its build and its wheel take 1.4 GB of a
    # cache. One who looks at a demo has no use for them, and the machine's own cache is not ours.
    passing = TOOLS / "cache"
    cache = () if lock == EVERYTHING else ("--cache-dir", str(passing))
    pip = (uv, "pip")
    target = ("--quiet", "--python", str(PYTHON), *cache)
    locked = ("--require-hashes", "-r")
    # Build tools first: packages published as source are then built with pinned tools.
    run(
        [*pip, "install", *target, *locked, str(LOCKS / "build.lock")],
        "the build tools were not installed",
    )
    # Compiled once here instead of at every start of every Spark worker.
    thorough = ("--no-build-isolation", "--compile-bytecode", "--require-hashes")
    run(
        [*pip, "sync", *target, *thorough, str(LOCKS / lock)],
        "the packages were not installed",
    )
    itself = ("--no-deps", "--no-build-isolation", "--offline", "--editable", str(ROOT))
    run([*pip, "install", *target, *itself], "frazil was not installed")
    shutil.rmtree(passing, ignore_errors=True)


def is_current(python: Path) -> bool:
    """Whether the environment exists and runs the Python this script runs on."""
    if not python.exists():
        return False
    answer = subprocess.run(
        [str(python), "-c", "import sys; print(sys.version)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() == sys.version


def provide_java_and_jars(extent: str) -> None:
    """A Java if the machine has none, and Spark's jars, by the command that users have, too."""
    command = [str(PYTHON), "-m", "frazil.cli", "setup", extent]
    # The environment has no pip; a Java is fetched with the uv that made it.
    path = os.pathsep.join([str(TOOLS / "uv" / "bin"), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    provided = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if provided.returncode:
        # It has said why.
        raise SystemExit(1)


def run(command: list[str], problem: str) -> None:
    """Run a step; on failure one sentence, with the output in the log file."""
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = finished.stdout.decode("utf-8", "replace")
    with LOG.open("a", encoding="utf-8") as log:
        log.write(output)
    if finished.returncode == 0:
        return
    details = f"({LOG.relative_to(ROOT)} has the details)"
    if NO_SPACE.search(output):
        free = shutil.disk_usage(ROOT).free // 2**20
        message = f"{problem}: the disk is full, {free} MiB are left {details}."
    elif UNREACHABLE.search(output):
        message = f"{problem}: the package registry cannot be reached {details}."
    else:
        message = f"{problem} {details}."
    raise SetupError(message)


def say(line: str) -> None:
    """Print what takes time."""
    print(f"setup: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
