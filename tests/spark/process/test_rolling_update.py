"""Two processes with one configuration: one works, the other stands by and takes over."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlopen

import psycopg
import pytest

from tests.support.lake.other_readers import rows_by_pyiceberg
from tests.support.postgres.access import database_on
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PipelineProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N56")]

_DOCUMENT = """
pipeline: rolling
catalog: {{kind: sql, uri: 'sqlite:///{lake}/catalog.db', warehouse: 'file://{lake}/lake'}}
source: {{kind: postgres, dsn: '{dsn}', tables: ['public.*'], on_slot_lost: resync}}
ingest: {{interval: 200ms}}
merge: {{interval: 1s}}
telemetry: {{listen: '127.0.0.1:{port}', log: {{format: json}}}}
spark:
  master: 'local[2]'
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.memory: 512m,
    spark.driver.extraJavaOptions: '{java}'}}
"""


class Load:
    """Writes all the time: every round changes rows, removes one and adds one."""

    def __init__(self, database: Database) -> None:
        self._dsn = database.dsn.value
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.rounds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _write(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._ends.wait(0.02):
                number = 1000 + self.rounds
                connection.execute(b"insert into item values (%s, 'new', 0)", (number,))
                connection.execute(b"update item set n = n + 1 where id %% 50 = %s", (number % 50,))
                connection.execute(b"delete from item where id = %s", (number - 7,))
                self.rounds += 1


def start(folder: Path, lake: Path, database: Database) -> PipelineProcess:
    folder.mkdir()
    port = free_port()
    words = {"lake": lake, "dsn": database.dsn.value, "port": port, "java": QUICK_JAVA}
    (folder / "frazil.yaml").write_text(_DOCUMENT.format(**words))
    found = PipelineProcess(folder, port)
    found.start()
    return found


def source_of(process: PipelineProcess) -> dict[str, Any]:
    status: Any = process.status()
    return {} if status is None else status["source"] or {}


def wait_until_it_works(process: PipelineProcess, load: Load) -> None:
    """It captures and merges what is written from now on."""
    rounds = load.rounds

    def is_so() -> bool:
        status: Any = process.status()
        tables = [] if status is None else status["tables"]
        merged = sum(sum(each["merged"].values()) for each in tables)
        return merged > 0 and load.rounds > rounds + 20

    process.wait_until(is_so, "working")


def require_quiet(process: PipelineProcess) -> None:
    """Nothing in its log is a warning, nor anything worse."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines() if line[:1] == "{"]
    # What Java and Spark say of themselves is not about the pipeline.
    ours = [each for each in lines if str(each.get("logger", "")).startswith("frazil")]
    assert not [each for each in ours if each["level"] not in ("debug", "info")]


def stand_by(process: PipelineProcess) -> None:
    """It waits without an alarm, is ready all the same, and says whom it waits for."""
    process.wait_until(lambda: source_of(process).get("standby") is not None, "standing by")
    source = source_of(process)
    assert source["trouble"] is None
    assert "frazil lock" in source["standby"]
    with urlopen(f"{process.address}/readyz", timeout=60) as answer:  # noqa: S310 - our own server
        assert answer.status == 200
    status = process.command("status")
    assert status.returncode == 0, status.stdout + status.stderr
    assert "Standby: another process does the work" in status.stdout
    require_quiet(process)


def wait_for_a_successor(waiting: list[PipelineProcess]) -> list[PipelineProcess]:
    """The one of these that takes over, then the one that stands by for it."""
    third = waiting[-1]
    third.wait_until(lambda: any(each.events("taking over") for each in waiting), "taken over")
    waiting.sort(key=lambda each: not each.events("taking over"))
    assert not waiting[-1].events("taking over"), "both took over"
    return waiting


@pytest.mark.timeout(900)
def test_a_rolling_update_under_load_loses_and_doubles_nothing(
    postgres: Postgres, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    processes: list[PipelineProcess] = []
    with database_on(postgres, "rolling") as database:
        database.run(
            "create table item (id int primary key, name text, n int)",
            "insert into item select i, 'n' || i, 0 from generate_series(1, 500) i",
        )
        try:
            with Load(database) as load:
                first = start(tmp_path / "first", lake, database)
                processes.append(first)
                wait_until_it_works(first, load)
                processes += [start(tmp_path / name, lake, database) for name in ("b", "c")]
                for each in processes[1:]:
                    stand_by(each)
                first.send(signal.SIGTERM)
                assert first.wait() == 0, first.output_tail()
                second, third = wait_for_a_successor(processes[1:])
                wait_until_it_works(second, load)
                require_quiet(second)
                # A process that dies says nothing to anybody.
                second.send(signal.SIGKILL)
                second.wait()
                wait_until_it_works(third, load)
                require_quiet(third)
            verified = third.command("verify")
            assert verified.returncode == 0, verified.stdout + verified.stderr[-2000:]
            third.send(signal.SIGTERM)
            assert third.wait() == 0, third.output_tail()
            require_each_change_once(lake, load.rounds)
        finally:
            for each in processes:
                each.end()


def require_each_change_once(lake: Path, rounds: int) -> None:
    """One insert and one delete of every round, in one snapshot of the table and one stream."""
    (changelog,) = lake.glob("lake/**/item_changelog/metadata")
    newest = max(changelog.glob("*.metadata.json"), key=lambda each: each.name)
    rows = rows_by_pyiceberg(str(newest)).to_pylist()
    assert sum(row["cdc_operation"] == "TRUNCATE" for row in rows) == 0
    written = [row["id"] for row in rows if row["cdc_operation"] == "INSERT"]
    assert len(written) == len(set(written)), "a change was captured twice"
    # Those before the copy's snapshot came with it.
    read = {row["id"] for row in rows if row["cdc_operation"] == "READ"}
    first = max(read) + 1
    assert sorted(written) == list(range(max(first, 1000), 1000 + rounds))
