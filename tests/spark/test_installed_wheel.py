"""The wheel outside the repository, as the page about installation says, without any network."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.spark.provisioning import provision
from frazil.version import __version__
from tests.support.postgres.access import Database, database_on
from tests.support.process.jvms import QUICK_JAVA
from tools.bootstrap import LOCKS, find_uv
from tools.release_check import build_archives

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres

# Three sessions from modules that no process has compiled yet.
pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1800)]

# Answers nothing: whoever asks a registry fails.
NOBODY = "http://127.0.0.1:9"
NO_REPOSITORY = "<ivysettings><resolvers/></ivysettings>"


@dataclass(frozen=True)
class Elsewhere:
    """A folder with an environment of its own, on a machine that reaches no registry."""

    folder: Path
    environment: dict[str, str]

    def frazil(self, *arguments: str) -> str:
        """What it printed; it must succeed."""
        finished = subprocess.run(
            [self.folder / "venv" / "bin" / "frazil", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert finished.returncode == 0, f"{arguments}: {finished.stdout}{finished.stderr}"
        return finished.stdout


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, f"wheel_{uuid4().hex[:8]}") as made:
        yield made


@pytest.fixture
def elsewhere(tmp_path: Path, database: Database) -> Elsewhere:
    folder = tmp_path / "empty"
    folder.mkdir()
    settings = tmp_path / "no-repository.xml"
    settings.write_text(NO_REPOSITORY)
    kept = ("HOME", "JAVA_HOME", "LANG", "PATH")
    return Elsewhere(
        folder,
        {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "DATABASE_URL": database.dsn.value,
            "FRAZIL_CACHE": str(tmp_path / "cache"),
            "FRAZIL_IVY_SETTINGS": str(settings),
            "FRAZIL__SPARK__CONF": f"{{spark.driver.extraJavaOptions: {QUICK_JAVA}}}",
            "FRAZIL__TELEMETRY__LISTEN": "127.0.0.1:0",
            "PIP_INDEX_URL": NOBODY,
            "UV_INDEX_URL": NOBODY,
        },
    )


def install_wheel(folder: Path) -> None:
    """With the locked versions, which the machine's cache of packages has."""
    uv = find_uv()
    wheel, _ = build_archives(folder / "dist")
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", str(folder / "venv")], check=True)
    install = ("--quiet", "--python", python, "--constraint", str(LOCKS / "all.lock"))
    subprocess.run([uv, "pip", "install", *install, str(wheel)], check=True)


def prepared_folder(folder: Path) -> Path:
    """What ``frazil setup --prepare`` leaves, from the jars this machine has; Java is its own."""
    (folder / "jars").mkdir(parents=True)
    for jar in provision(lambda _line: None, with_demo=False).jars:
        # Not copied: they have more than a hundred megabytes.
        (folder / "jars" / jar.name).symlink_to(jar)
    return folder


def test_the_wheel_mirrors_a_database_in_an_empty_folder_without_a_network(
    elsewhere: Elsewhere, database: Database, tmp_path: Path
) -> None:
    database.run("create table item (id int primary key, name text)")
    database.run("insert into item select i, 'item ' || i from generate_series(1, 100) i")
    install_wheel(elsewhere.folder)
    versions = json.loads(elsewhere.frazil("version", "-o", "json"))
    assert versions["frazil"] == __version__

    printed = json.loads(
        elsewhere.frazil(
            "setup", "--offline", str(prepared_folder(tmp_path / "prepared")), "-o", "json"
        )
    )
    assert printed["jars"]["folder"] == str(tmp_path / "cache" / "jars")
    elsewhere.frazil("init", "--pipeline", "elsewhere")
    assert "nothing must be fixed" in elsewhere.frazil("check")
    elsewhere.frazil("run", "--once")
    assert "public.item" in elsewhere.frazil("verify")
    assert (elsewhere.folder / "lake" / "public").is_dir()
