"""The import contracts hold, and each of them fails on a breach."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sysconfig.get_path("scripts")) / "lint-imports"
    return subprocess.run(
        [linter, "--no-cache", "--config", folder / "pyproject.toml"],
        cwd=folder / "src",
        # The copy under test, not the installed package, is what must be found.
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "frazil", tmp_path / "src" / "frazil", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add_code(project: Path, module: str, code: str) -> None:
    file = project / "src" / "frazil" / module
    file.parent.mkdir(exist_ok=True)
    if file.parent.name != "frazil":
        (file.parent / "__init__.py").touch()
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"\n{code}\n")


def test_the_contracts_hold(project: Path) -> None:
    finished = lint(project)
    assert finished.returncode == 0, finished.stdout
    assert "0 broken" in finished.stdout


# What is added to which module, and the contract that it breaks.
BREACHES = [
    ("clients/spark/java.py", "from frazil.cli.main import main", "Imports point down"),
    (
        "config/upward.py",
        "def f():\n    import frazil.clients.spark.jars",
        "Imports point down",
    ),
    ("telemetry/sideways.py", "import frazil.config", "Imports point down"),
    ("pipeline/recovery.py", "def f():\n    import pyspark", "Thinking is pure"),
    ("merge/folding/fold.py", "def f():\n    import pyspark", "Thinking is pure"),
    ("merge/planning/plan.py", "import frazil.merge.merger", "Thinking is pure"),
    ("merge/upward.py", "import frazil.pipeline.recovery", "Imports point down"),
    ("web/driver.py", "import pyspark", "DataFrames stay where data moves"),
    ("cli/driver.py", "import pyspark", "DataFrames stay where data moves"),
    ("pipeline/driver.py", "import pyspark", "DataFrames stay where data moves"),
    ("demo/gateway.py", "import py4j", "One importer of Spark's JVM: clients"),
    ("demo/driver.py", "import pydantic", "One importer of the configuration's libraries"),
    ("cli/driver.py", "import prometheus_client", "One importer of logs, metrics"),
    ("demo/serving.py", "import uvicorn", "One importer of HTTP serving: web"),
    ("cli/rendering.py", "import jinja2", "One importer of HTTP serving: web"),
    ("demo/terminal.py", "import typer", "One importer of the terminal: cli"),
    ("sources/driver.py", "import psycopg", "One importer of Postgres: clients.postgres"),
    ("sources/postgres/checks/preflight.py", "import frazil.config", "Thinking is pure"),
    (
        "pipeline/driver.py",
        "import frazil.sources.postgres.source",
        "A kind of source is known to the registry alone",
    ),
    ("cli/driver.py", "import pyroaring", "One importer of roaring bitmaps: codec"),
    ("codec/reaching.py", "def f():\n    import pyspark", "Thinking is pure"),
    ("codec/reaching.py", "import socket", "Thinking is pure"),
    ("pipeline/recovery.py", "import pyarrow", "What every process loads is light"),
]


def section_of(report: str, contract: str) -> str:
    """What is reported of a contract, up to the next heading; headings are underlined."""
    parts = re.split(r"^(\S.*)\n-{3,}$", report, flags=re.MULTILINE)
    (found,) = (text for title, text in pairwise(parts) if title.startswith(contract))
    return found


def test_a_package_without_a_layer_is_refused(project: Path) -> None:
    add_code(project, "utils/strings.py", "LETTERS = 'abc'")
    finished = lint(project)
    assert finished.returncode != 0
    assert "utils" in finished.stdout + finished.stderr


def test_every_breach_is_refused_by_the_name_of_its_contract(project: Path) -> None:
    for module, code, _ in BREACHES:
        add_code(project, module, code)
    finished = lint(project)
    assert finished.returncode != 0
    _, _, report = finished.stdout.partition("Broken contracts")
    for module, code, contract in BREACHES:
        importer = f"frazil.{module.removesuffix('.py').replace('/', '.')}"
        imported = re.findall(r"(?:from|import) ([\w.]+)", code)[0]
        assert f"{importer} -> {imported} " in section_of(report, contract), (module, code)
