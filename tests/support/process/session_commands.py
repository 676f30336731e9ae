"""Commands through their entry point, on a session that is there instead of one they start.

Starting a session takes longer than most commands. What a command does with signals, with its own
JVM and with the process that it is, is tested in processes of its own.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING
from unittest.mock import patch

from frazil.cli.main import main
from frazil.clients.spark import session as spark
from frazil.telemetry.logs import LogSettings, configure_logs
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from frazil.clients.spark.session_plan import SessionPlan

    OpenSession = Callable[[SessionPlan], AbstractContextManager[SparkSession]]


@contextmanager
def sessions_from(opened: OpenSession) -> Iterator[None]:
    """Whatever wants a session gets one from here."""
    with (
        patch.object(spark, "_own_session", opened),
        patch.object(spark, "_refuse_second_session", lambda: None),
    ):
        yield


def run_on(session: SparkSession, *words: str) -> subprocess.CompletedProcess[str]:
    """The command to its end; logs are set as the command sets them, and put back."""

    @contextmanager
    def lend(plan: SessionPlan) -> Iterator[SparkSession]:
        if session.conf.get(plan.catalog_key, None) is None:
            for key, value in plan.catalog_conf.items():
                session.conf.set(key, value)
        yield session

    out, err = StringIO(), StringIO()
    put_back = configure_logs(LogSettings(), Redactor(), err)
    try:
        with sessions_from(lend), redirect_stdout(out), redirect_stderr(err):
            status = main(words)
    finally:
        put_back()
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())
