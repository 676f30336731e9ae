"""The tutorial's commands, run in their order, print what the page says they print.

The example program, which is the same without a command line, runs here as well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.demo.services.postgres import PostgresVersion, find_programs
from tests.support.postgres.access import Database, database_on
from tests.support.process import warm_commands
from tests.support.process.jvms import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.spark, pytest.mark.services]

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "tutorial" / "first-steps.md"
EXAMPLE = ROOT / "examples" / "postgres_to_iceberg.py"
# A JVM of a minute never earns back what its second compiler costs: half the time of these tests.
QUICK_JVM = f"{{spark.driver.extraJavaOptions: {QUICK_JAVA}}}"
PART = re.compile(
    r"(?m)^(?:<!-- exits with (?P<status>\d+) -->\n)?"
    r"^```(?P<kind>sh|python|text)\n(?P<text>(?s:.*?))^```"
)


@dataclass(frozen=True)
class Step:
    """A block that is run, the status it ends with, and the lines that it prints among others."""

    kind: str
    text: str
    status: int
    promised: tuple[str, ...] = ()


def steps_of(page: Path) -> list[Step]:
    steps: list[Step] = []
    for part in PART.finditer(page.read_text(encoding="utf-8")):
        if part["kind"] == "text":
            last = steps.pop()
            assert not last.promised, "two promises for one block"
            promised = tuple(part["text"].splitlines())
            steps.append(Step(last.kind, last.text, last.status, promised))
        else:
            steps.append(Step(part["kind"], part["text"], int(part["status"] or 0)))
    return steps


def missing(step: Step, out: str) -> list[str]:
    """The promised lines that were not printed, in their order; … stands for anything."""
    lines = iter(out.splitlines())
    lost = []
    for promise in step.promised:
        parts = (re.escape(part.strip()) for part in promise.split("…"))
        wanted = re.compile(r"\s*" + r".*?".join(parts))
        if not any(wanted.match(line) for line in lines):
            lost.append(promise)
            lines = iter(())
    return lost


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, f"tutorial_{uuid4().hex[:8]}") as made:
        yield made


def environment(database: Database) -> dict[str, str]:
    psql = find_programs(PostgresVersion.V18, None)
    scripts = sysconfig.get_path("scripts")
    return {
        **os.environ,
        "DATABASE_URL": database.dsn.value,
        "FRAZIL__SPARK__CONF": QUICK_JVM,
        # Nobody listens there: status must not find the process of another test.
        "FRAZIL__TELEMETRY__LISTEN": "127.0.0.1:9",
        "PATH": f"{scripts}:{psql}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


def test_the_tutorial_is_true_word_for_word(database: Database, tmp_path: Path) -> None:
    steps = steps_of(PAGE)
    assert sum(step.text.startswith("frazil ") for step in steps) >= 8
    finished = subprocess.run(
        [sys.executable, Path(warm_commands.__file__)],
        input=json.dumps([(step.kind, step.text, step.status) for step in steps]),
        cwd=tmp_path,
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    results = json.loads(finished.stdout)
    for step, (status, out, err) in zip(steps, results, strict=False):
        assert status == step.status, f"{step.text}\n{out}\n{err}"
        assert missing(step, out) == [], f"{step.text}\n{out}\n{err}"
    assert len(results) == len(steps)
    left = "select count(*) from pg_replication_slots where database = current_database()"
    assert database.ask(left) == 0


def test_the_example_program_does_what_it_says(database: Database, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path],
        cwd=tmp_path,
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [
        "1 pen 1.50",
        "2 ink 4.00",
        "3 desk 350.00",
        "after 3 changes:",
        "1 pen 1.75",
        "3 desk 350.00",
        "4 lamp 89.90",
    ]
