"""The demo as a person runs it: what it says is so, and however it ends, nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil
import pytest

from tests.support.lake.other_readers import local_duckdb
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PROGRAM, ROOT
from tests.support.sampling import sampled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.services]

# Far above what a busy machine needs, far below pytest's own limit.
PATIENCE_SECONDS = 600.0
# A keeper gives a service some seconds to end by itself.
GONE_SECONDS = 60.0
MARK = "FRAZIL_TEST_MARK"

Revenue = dict[str, tuple[int, Decimal]]


class Demo:
    """A demo that runs in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.lake = folder / "frazil-demo"
        self._mark = uuid4().hex
        self._out, self._err = folder / "out", folder / "err"
        (folder / "tmp").mkdir(mode=0o755)
        source = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", PROGRAM, "demo", *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": source,
                    "TMPDIR": str(folder / "tmp"),
                    "SPARK_SUBMIT_OPTS": QUICK_JAVA,
                    MARK: self._mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def complained(self) -> str:
        return self._err.read_text()

    def wait_for(self, word: str) -> None:
        """Until it has said so."""
        wait_until(lambda: word in self.said or self.process.poll() is not None, PATIENCE_SECONDS)
        assert word in self.said, self.complained

    def wait_for_process(self, name: str) -> None:
        """Until one of its processes is called so."""
        wait_until(lambda: name in self._names(), PATIENCE_SECONDS)

    def wait_for_data(self) -> None:
        """Until its lake has a file with rows."""
        wait_until(self._has_data, PATIENCE_SECONDS)

    def processes(self) -> list[psutil.Process]:
        """Whatever of it runs, found by its arguments, because parents may be gone."""
        return [each for each in psutil.process_iter() if self._is_ours(each)]

    def _has_data(self) -> bool:
        # A walk, unlike a glob, does not mind folders that vanish under it.
        return any(
            name.endswith(".parquet") for _, _, names in os.walk(self.lake) for name in names
        )

    def _names(self) -> set[str]:
        names = set()
        for each in self.processes():
            with suppress(psutil.Error):
                names.add(each.name())
        return names

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            words = process.cmdline()
            return any(str(self.folder) in word for word in words) or (
                process.environ().get(MARK) == self._mark
            )
        return False

    def assert_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes(), GONE_SECONDS)
        wait_until(lambda: not self._workspaces(), GONE_SECONDS)

    def _workspaces(self) -> list[Path]:
        services = ("postgres", "seaweedfs", "etcd")
        return [
            each for name in services for each in (self.folder / "tmp").glob(f"frazil-{name}-*")
        ]


@contextmanager
def running_demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    demo = Demo(folder, *arguments)
    try:
        yield demo
    finally:
        demo.process.kill()
        demo.process.wait()


def queries_in(said: str) -> dict[str, str]:
    """What is to be pasted, by engine."""
    found = re.findall(r"^# (\w+), to paste into .*\n((?:.+\n)+)", said, re.MULTILINE)
    return dict(found)


def revenue_by_spark(command: str, folder: Path) -> Revenue:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JAVA},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split("\t") for line in done.stdout.splitlines() if line]
    return {status: (int(orders), Decimal(total)) for status, orders, total in rows}


def revenue_by_duckdb(text: str) -> Revenue:
    # Extensions come from packages here; nothing is fetched while a test runs.
    rows = local_duckdb().execute(text.replace("install iceberg; load iceberg;", "")).fetchall()
    return {status: (orders, total) for status, orders, total in rows}


def revenue_by_pyiceberg(text: str) -> Revenue:
    given: dict[str, Any] = {"print": lambda *_rows, **_options: None}
    exec(text, given)  # noqa: S102 - the very text that a person pastes
    rows = given["revenue"].to_pylist()
    return {each["status"]: (each["id_count"], each["total_sum"]) for each in rows}


def test_the_demo_proves_itself_and_its_queries_answer_after_it_has_ended(
    shared_folder: Path,
) -> None:
    # As many rows as the comparison needs; how long it takes is not judged here.
    with running_demo(shared_folder, "--seconds", "2", "--rows", "20000") as demo:
        assert demo.process.wait(PATIENCE_SECONDS) == 0, demo.complained
        demo.assert_nothing_is_left()
    said = demo.said
    assert demo.complained == ""
    assert re.search(r"✓ Proof +[\d,]+ rows in 7 mirrors: each one is as in Postgres", said)
    assert re.search(r"transactions, a column added, a table emptied; usually", said)
    assert re.search(r"Status page +http://127\.0\.0\.1:\d+/", said)
    assert re.search(r"frazil's merge +\d+\.\d\d s\n +MERGE INTO +\d+\.\d\d s", said)
    assert f"The lake stays in {demo.lake}" in said
    assert not any((demo.lake / name).exists() for name in ("postgres.dsn", "spool", "cache"))
    # No password was printed or kept.
    assert "postgresql://" not in said + (demo.lake / "frazil.yaml").read_text()
    queries = queries_in(said)
    assert list(queries) == ["Spark", "DuckDB", "PyIceberg"]
    answer = revenue_by_duckdb(queries["DuckDB"])
    assert sum(orders for orders, _ in answer.values()) > 10_000
    assert set(answer) == {"open", "paid", "shipped", "returned"}
    assert revenue_by_pyiceberg(queries["PyIceberg"]) == answer
    assert revenue_by_spark(queries["Spark"], shared_folder) == answer


def test_the_demo_of_topics_proves_itself_and_leaves_no_key(shared_folder: Path) -> None:
    with running_demo(shared_folder, "kafscale", "--seconds", "0") as demo:
        assert demo.process.wait(PATIENCE_SECONDS) == 0, demo.complained
        demo.assert_nothing_is_left()
    said = demo.said
    assert demo.complained == ""
    proven = re.search(
        r"✓ Proof +([\d,]+) rows in shop\.orders: each record in the segments is one, "
        r"1 is a dead letter",
        said,
    )
    assert proven is not None, said
    assert re.search(r"✓ Proof +[\d,]+ rows in shop\.customers: as the change events come to", said)
    assert not any((demo.lake / name).exists() for name in ("s3.key", "s3.secret", "cache"))
    kept = (demo.lake / "frazil.yaml").read_text() + (demo.lake / "spark.conf").read_text()
    # The document refers to them; Spark reads plain files.
    assert set(re.findall(r"(?:access_key_id|secret_access_key): (\S+)", kept)) == {
        "${file:s3.key}",
        "${file:s3.secret}",
    }
    assert "access-key" not in kept
    queries = queries_in(said)
    answer = revenue_by_duckdb(queries["DuckDB"])
    assert sum(orders for orders, _ in answer.values()) == int(proven[1].replace(",", ""))
    assert revenue_by_pyiceberg(queries["PyIceberg"]) == answer


@pytest.mark.parametrize("moment", sampled(["Postgres", "Status page", "Copied"], ci={"Postgres"}))
def test_an_interrupted_demo_says_one_line_and_leaves_nothing(
    shared_folder: Path, moment: str
) -> None:
    with running_demo(shared_folder) as demo:
        demo.wait_for(f"✓ {moment}")
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(PATIENCE_SECONDS) == 130
        demo.assert_nothing_is_left()
    assert demo.complained == "interrupted: stopping everything\n"
    assert not demo.lake.exists()


@pytest.mark.parametrize("moment", sampled(["Postgres", "Spark"], ci={"Postgres"}))
def test_a_killed_demo_leaves_no_process(shared_folder: Path, moment: str) -> None:
    with running_demo(shared_folder) as demo:
        demo.wait_for(f"✓ {moment}")
        if moment == "Postgres":
            # In the middle of Spark's start.
            demo.wait_for_process("java")
        else:
            # In the middle of the copy: its first file, which comes however fast the rest is.
            demo.wait_for_data()
        demo.process.kill()
        demo.assert_nothing_is_left()


def test_a_folder_that_no_demo_has_made_is_left_alone(shared_folder: Path) -> None:
    mine = shared_folder / "frazil-demo" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("precious")
    with running_demo(shared_folder) as demo:
        assert demo.process.wait(PATIENCE_SECONDS) == 1
    assert "choose another with --folder" in demo.complained
    assert mine.read_text() == "precious"
