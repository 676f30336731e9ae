"""Start-up times: of help, and of a session that can read and write Iceberg."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.report import Comparison, Report, Series

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.support.setting import Setting

# The first is for the disk cache; the median of the others counts.
REPETITIONS = 4

DOCUMENT = """
pipeline: bench
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: ./wh}
tables: [{mirror: a.b, changelog: a.c, key: [id]}]
spark: {master: 'local[2]'}
"""
# Each prints the seconds until it has a session, and proves that it works.
OUR_SESSION = """
import sys, time
from pathlib import Path
from frazil.clients.spark.session import open_session
from frazil.config import load_config
config = load_config(Path(sys.argv[1]), environ={}).config
started = time.perf_counter()
with open_session(config) as spark:
    seconds = time.perf_counter() - started
    assert spark.range(3).count() == 3
print(seconds)
"""
PLAIN_SESSION = """
import os, sys, time
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
started = time.perf_counter()
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
seconds = time.perf_counter() - started
assert spark.range(3).count() == 3
spark.stop()
print(seconds)
"""


def measure(setting: Setting) -> Report:
    """Help compared with the bare command line library; our session with a plain one of Spark."""
    repetitions = setting.pick(small=2, full=REPETITIONS)
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "frazil.yaml"
        document.write_text(DOCUMENT)
        python = sys.executable
        help_ = compare(
            ("frazil --help", lambda: run_command(python, "-m", "frazil.cli", "--help")),
            ("python -c 'import typer'", lambda: run_command(python, "-c", "import typer")),
            goal="under 0.5 s",
            repetitions=repetitions,
        )
        session = compare(
            ("frazil session with Iceberg", lambda: reported(OUR_SESSION, str(document))),
            ("plain SparkSession without Iceberg", lambda: reported(PLAIN_SESSION)),
            goal="under 10 s",
            repetitions=repetitions,
        )
    return Report((help_, session))


def compare(
    ours: tuple[str, Callable[[], float]],
    baseline: tuple[str, Callable[[], float]],
    *,
    goal: str,
    repetitions: int,
) -> Comparison:
    """Alternate between the two, so that a busy moment hits both."""
    pairs = [(ours[1](), baseline[1]()) for _ in range(repetitions)][1:]
    first, second = zip(*pairs, strict=True)
    return Comparison(Series(ours[0], first), Series(baseline[0], second), goal)


def run_command(*command: str) -> float:
    """The seconds a command takes."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    return time.perf_counter() - started


def reported(program: str, *arguments: str) -> float:
    """The seconds a program measured itself."""
    command = (sys.executable, "-c", program, *arguments)
    finished = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(finished.stdout.splitlines()[-1])
