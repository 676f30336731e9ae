from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark import jars
from frazil.clients.spark.jars import EVERY_JAR, Jar, ensure_jars, missing_jars
from frazil.errors import RuntimeMissingError

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"a jar"
PINNED = Jar("org.example", "pinned", "1.0", hashlib.sha256(CONTENT).hexdigest())
TESTS = Jar("org.example", "pinned", "0.9", PINNED.sha256, classifier="tests")

# A stub for `java` that does what Ivy would: it reads ivy.xml and fills the target folder.
RETRIEVE = """#!/bin/sh
while [ "$1" != -ivy ]; do shift; done
module=$2
target=$(dirname "$4")
echo x >> "$COUNTER"
mkdir -p "$target"
grep -q 'name="pinned"' "$module" || exit 1
for file in $FILES; do
  printf '%s' "$CONTENT" > "$target/$file"
done
echo "UNRESOLVED DEPENDENCIES"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(RETRIEVE)
    java.chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNTER", str(tmp_path / "runs"))
    monkeypatch.setenv("CONTENT", CONTENT.decode())
    monkeypatch.setenv("FILES", "pinned-1.0.jar pinned-0.9-tests.jar")
    return tmp_path / "cache" / "jars"


def runs(cache: Path) -> int:
    counter = cache.parent.parent / "runs"
    return len(counter.read_text().splitlines()) if counter.exists() else 0


def test_a_jar_is_fetched_once_and_then_used_without_the_network(cache: Path) -> None:
    assert missing_jars((PINNED,)) == (PINNED,)
    (file,) = ensure_jars((PINNED,))
    assert file == cache / "pinned-1.0.jar"
    assert file.read_bytes() == CONTENT
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert missing_jars((PINNED,)) == ()
    assert ensure_jars((PINNED,), (PINNED,)) == (file,)
    assert runs(cache) == 1


@pytest.mark.fault("N50")
def test_a_cached_jar_that_was_changed_is_fetched_again_before_it_is_used(cache: Path) -> None:
    (file,) = ensure_jars((PINNED,))
    file.chmod(0o644)
    file.write_bytes(b"another")
    assert ensure_jars((PINNED,)) == (file,)
    assert file.read_bytes() == CONTENT
    assert runs(cache) == 2


@pytest.mark.fault("N50")
def test_the_folder_of_jars_is_private(cache: Path) -> None:
    ensure_jars((PINNED,))
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700


def test_two_revisions_of_one_module_are_fetched_apart(cache: Path) -> None:
    names = [file.name for file in ensure_jars((PINNED, TESTS))]
    assert names == ["pinned-1.0.jar", "pinned-0.9-tests.jar"]
    assert runs(cache) == 2


def test_nothing_but_jars_and_the_lock_stays_in_the_cache(cache: Path) -> None:
    ensure_jars((PINNED,))
    assert {file.name for file in cache.iterdir()} == {"pinned-1.0.jar", ".lock"}


def test_a_file_that_is_not_the_pinned_one_is_refused_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTENT", "tampered")
    with pytest.raises(RuntimeMissingError, match=r"pinned-1.0.jar is not the file .* checksum"):
        ensure_jars((PINNED,))
    assert not (cache / "pinned-1.0.jar").exists()


def test_an_unreachable_registry_is_one_sentence_with_the_details_in_a_file(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILES", "")
    with pytest.raises(RuntimeMissingError) as refused:
        ensure_jars((PINNED,))
    assert re.fullmatch(
        r"1 of 1 jars could not be downloaded \(pinned-1.0.jar is one of them; \d+ MiB are free "
        r"on the disk\)\. Next: check that the package registry can be reached "
        r"\(.*/last-fetch.log has the details\), then run: frazil setup",
        str(refused.value),
    )
    assert "UNRESOLVED" in (cache / "last-fetch.log").read_text()


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (errno.ENOSPC, "there is no space left"),
        (errno.EDQUOT, "there is no space left"),
        (errno.EACCES, "it may not be written"),
        (errno.EROFS, "it may not be written"),
    ],
)
def test_what_the_file_system_refuses_is_one_sentence(
    cache: Path, monkeypatch: pytest.MonkeyPatch, number: int, problem: str
) -> None:
    def refuse(_jars: object, _folder: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(jars, "_fetch", refuse)
    with pytest.raises(RuntimeMissingError) as refused:
        ensure_jars((PINNED,))
    assert str(refused.value) == (
        f"cannot write to {cache}: {problem}. "
        "Next: free disk space or set FRAZIL_CACHE to another folder"
    )


def test_a_half_fetched_jar_is_never_seen(cache: Path) -> None:
    """The process dies between fetching and installing the file; the next one starts again."""
    program = (
        "from frazil.clients.spark.jars import Jar, ensure_jars\n"
        f"ensure_jars((Jar('org.example', 'pinned', '1.0', '{PINNED.sha256}'),))"
    )
    died = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FRAZIL_FAILPOINTS": "jars.fetched=kill"},
        check=False,
    )
    assert died.returncode == -9
    assert not (cache / "pinned-1.0.jar").exists()
    assert ensure_jars((PINNED,))[0].read_bytes() == CONTENT


def test_every_pin_has_a_full_checksum_and_appears_once() -> None:
    every = [jar for group in EVERY_JAR for jar in group]
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in every)
    names = {jar.file_name for jar in every}
    assert len(names) == len(set(every))
