"""Signals to a whole group of processes at any moment, as terminals and supervisors send them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil
import pytest

from tests.support.postgres.access import database_on
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import ENVIRONMENT, PATIENCE_SECONDS, free_port
from tests.support.sampling import a_seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N52")]

PROGRAM = (
    "import sys; from frazil.cli.main import main; print('loaded', flush=True); sys.exit(main())"
)
MARK = "FRAZIL_TEST_MARK"
# By then a command has loaded its modules, started Spark and, on a quiet machine, ended.
LONGEST_SECONDS = 9.0
_DOCUMENT = """
pipeline: signals
catalog: {{kind: sql, uri: 'sqlite:///{folder}/catalog.db', warehouse: 'file://{folder}/lake'}}
source: {{kind: postgres, dsn: '{dsn}', tables: ['public.*']}}
ingest: {{interval: 100ms}}
merge: {{interval: 200ms}}
telemetry: {{listen: '127.0.0.1:{port}'}}
spark:
  master: 'local[2]'
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.extraJavaOptions: '{java}'}}
"""


@pytest.fixture(scope="module")
def folder(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with database_on(postgres, "signals") as database, writing(database):
        made = tmp_path_factory.mktemp("signals")
        words = {"folder": made, "dsn": database.dsn.value, "port": free_port(), "java": QUICK_JAVA}
        (made / "frazil.yaml").write_text(_DOCUMENT.format(**words))
        yield made


@contextmanager
def writing(database: Database) -> Iterator[None]:
    """Another session writes all the time, as fast as one connection can."""
    database.run(
        "create table item (id int primary key, n int)",
        "insert into item select i, 0 from generate_series(1, 2000) i",
    )
    loop = (
        "import psycopg, sys, time\n"
        "with psycopg.connect(sys.argv[1], autocommit=True) as c:\n"
        "    while True:\n"
        "        c.execute('update item set n = n + 1 where id % 20 = 7')\n"
        "        time.sleep(0.02)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", loop, database.dsn.value])
    try:
        yield
    finally:
        writer.kill()
        writer.wait()


def end(
    folder: Path, number: signal.Signals, after: float | str, *words: str, twice: bool = False
) -> tuple[int, str]:
    """Start a command, signal its whole group after so long or such a message; nothing is left."""
    mark = uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env={**ENVIRONMENT, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loaded\n"
    before = ""
    if isinstance(after, str):
        assert process.stderr is not None
        while after not in (line := process.stderr.readline()):
            assert line, before
            before += line
    else:
        time.sleep(after)
    os.killpg(process.pid, number)
    if twice:
        time.sleep(0.3)
        process.send_signal(number)
    _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    said = before + rest
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for each in left:
        each.kill()
    assert not left, f"{left} outlived {words} after {number.name} at {after}"
    assert "Traceback" not in said, said
    assert "defect" not in said, said
    return process.returncode, said


def marked(mark: str) -> list[psutil.Process]:
    """All processes that were started by this command, whoever their parent is now."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get(MARK) == mark and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.Error:
            continue
    return found


def check_interrupted(folder: Path, after: float) -> None:
    code, said = end(folder, signal.SIGINT, after, "check")
    # On a quiet machine it may have ended by then, and found that something is missing.
    if code == 130:
        assert len(said.splitlines()) == 1, said
        assert "interrupted" in said
    else:
        assert code == 0, said


def run_until_signalled(folder: Path, number: signal.Signals, after: float | str) -> None:
    code, said = end(folder, number, after, "run")
    assert code == (130 if number == signal.SIGINT else 0), (after, said[-3000:])


@pytest.mark.timeout(900)
def test_ctrl_c_leaves_one_line_and_no_jvm(folder: Path) -> None:
    draw = random.Random(a_seed())  # noqa: S311
    # In the first one nothing is loaded, in the second one the JVM starts or has started.
    for after in (draw.uniform(0.02, 0.5), draw.uniform(1, LONGEST_SECONDS)):
        check_interrupted(folder, after)


@pytest.mark.timeout(900)
def test_a_second_ctrl_c_does_not_leave_a_jvm_either(folder: Path) -> None:
    code, _ = end(folder, signal.SIGINT, 3.0, "check", twice=True)
    assert code == 130


@pytest.mark.timeout(900)
def test_sigterm_to_the_process_group_is_a_clean_end(folder: Path) -> None:
    draw = random.Random(a_seed())  # noqa: S311
    run_until_signalled(folder, signal.SIGTERM, draw.uniform(0.02, 4))
    # In the middle of work: the other session never stops writing.
    run_until_signalled(folder, signal.SIGTERM, "batch ingested")
    run_until_signalled(folder, signal.SIGINT, "merge committed")


@pytest.mark.deep
@pytest.mark.timeout(0)
def test_signals_at_many_moments(folder: Path) -> None:
    draw = random.Random(a_seed())  # noqa: S311
    deadline = time.monotonic() + float(os.environ.get("FRAZIL_DEEP_SECONDS", "600"))
    while time.monotonic() < deadline:
        check_interrupted(folder, draw.uniform(0.02, LONGEST_SECONDS))
        number = draw.choice([signal.SIGTERM, signal.SIGINT])
        run_until_signalled(folder, number, draw.uniform(0.02, 30))
