"""The wheel in an environment of its own, as it is outside of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.bootstrap import LOCKS, find_uv
from tools.release_check import build_archives


def install_wheel(folder: Path) -> Path:
    """The folder of its programs; with the locked versions, which the machine's cache has."""
    uv = find_uv()
    wheel, _ = build_archives(folder / "dist")
    environment = folder / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    _take_spark(environment)
    install = ("--quiet", "--python", environment, "--constraint", LOCKS / "all.lock", wheel)
    cached = subprocess.run([uv, "pip", "install", "--offline", *install], check=False)
    if cached.returncode:
        subprocess.run([uv, "pip", "install", *install], check=True)
    return environment / "bin"


def _take_spark(environment: Path) -> None:
    """Spark as it is installed here: published as source, it would be built for a minute.

    The installer sees it, and leaves it if it is what the wheel requires.
    """
    ours = Path(sysconfig.get_path("purelib"))
    theirs = environment / ours.relative_to(sys.prefix)
    for folder in (*ours.glob("pyspark"), *ours.glob("pyspark-*.dist-info")):
        shutil.copytree(folder, theirs / folder.name, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
