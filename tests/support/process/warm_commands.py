"""A process that runs commands one after the other on one Spark session, as a shell would.

``python warm_commands.py`` reads steps as JSON from stdin, each a kind and a text, and prints what
each said and how it ended. Each command goes through the entry point of the command line; only the
session stays between them, because starting one takes longer than all of them.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from frazil.cli.main import main
from frazil.clients.spark import session as spark
from tests.support.process.session_commands import sessions_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.clients.spark.session_plan import SessionPlan

PROGRAM = "frazil"


class WarmSession:
    """The first one that is asked for, for everybody after."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._open = spark._own_session
        self._session: SparkSession | None = None

    @contextmanager
    def open(self, plan: SessionPlan) -> Iterator[SparkSession]:
        """Instead of one that is started and stopped."""
        if self._session is None:
            self._session = self._stack.enter_context(self._open(plan))
        yield self._session


def run(kind: str, text: str) -> tuple[int, str, str]:
    """The status, and what was printed."""
    if kind == "python":
        return _run([sys.executable, "-c", text])
    if not text.startswith(f"{PROGRAM} "):
        return _run(["bash", "-euo", "pipefail", "-c", text])
    out, err = StringIO(), StringIO()
    status = 0
    with redirect_stdout(out), redirect_stderr(err):
        for line in text.splitlines():
            status = status or main(shlex.split(line, comments=True)[1:])
    return status, out.getvalue(), err.getvalue()


def _run(command: list[str]) -> tuple[int, str, str]:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    return finished.returncode, finished.stdout, finished.stderr


def main_loop() -> None:
    """Everything until the first step that ends otherwise than it should."""
    steps = json.load(sys.stdin)
    results = []
    with ExitStack() as stack:
        stack.enter_context(sessions_from(WarmSession(stack).open))
        for kind, text, status in steps:
            results.append(run(kind, text))
            if results[-1][0] != status:
                break
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main_loop()
