"""``frazil run`` as a user meets it: one story in one folder, shown by status, page and metrics."""

from __future__ import annotations

import html
import json
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.faults.proxy import TcpProxy
from tests.support.postgres.access import database_on
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PipelineProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from tests.support.postgres.access import Database

pytestmark = pytest.mark.spark

USERS, ORDERS = "public.users", "public.orders"
_DOCUMENT = """
pipeline: story
catalog: {{kind: sql, uri: 'sqlite:///catalog.db', warehouse: 'file://{folder}/lake'}}
source: {{kind: postgres, dsn: '{dsn}', tables: ['public.*']}}
ingest: {{interval: {interval}, max_rows: {rows}}}
merge: {{interval: 5s}}
telemetry: {{listen: '127.0.0.1:{port}', log: {{format: json}}}}
spark:
  master: 'local[2]'
  conf: {{spark.sql.shuffle.partitions: '2', spark.driver.extraJavaOptions: '{java}'}}
"""


class Story:
    """A database with two tables, and the pipeline over it."""

    def __init__(self, folder: Path, database: Database, proxy: TcpProxy) -> None:
        self.database = database
        # What the pipeline sees of the server.
        self.proxy = proxy
        self.port = free_port()
        self.pipeline = PipelineProcess(folder, self.port)
        self.write_document()
        for table in (USERS, ORDERS):
            self.sql(f"create table {table} (id int primary key, name text, price numeric(10,2))")
            self.sql(f"insert into {table} select i, 'n' || i, i from generate_series(1, 500) i")

    def write_document(self, *, interval: str = "1s", rows: int = 100_000) -> None:
        (self.pipeline.folder / "frazil.yaml").write_text(
            _DOCUMENT.format(
                folder=self.pipeline.folder,
                dsn=self.database.dsn_of(
                    self.database.server.user, self.database.server.password, port=self.proxy.port
                ).value,
                interval=interval,
                rows=rows,
                port=self.port,
                java=QUICK_JAVA,
            )
        )

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.database.dsn.value, autocommit=True) as connection:
            connection.execute(statement.encode())

    def tables(self) -> dict[str, Any]:
        status = self.pipeline.status()
        found: Any = [] if status is None else status["tables"]
        return {each["table"]: each for each in found}

    def wait_for(self, what: str, **phases: str) -> None:
        wanted = {f"public.{name}": phase for name, phase in phases.items()}

        def is_so() -> bool:
            found = {name: each["phase"] for name, each in self.tables().items()}
            return wanted.items() <= found.items()

        self.pipeline.wait_until(is_so, what)

    def wait_until_merged(self, table: str, **captured: int) -> None:
        """So many changes were captured, and the mirror has all that is committed by now."""
        since = time.monotonic()

        def is_so() -> bool:
            asked = time.monotonic()
            each = self.tables().get(table)
            if each is None or not captured.items() <= each["captured"].items():
                return False
            # As the word is meant: everything older than the lag is there.
            return each["lag_seconds"] is not None and each["lag_seconds"] < asked - since

        self.pipeline.wait_until(is_so, f"{captured} of {table} in its mirror")

    def wait_for_rows(self, table: str, rows: int) -> None:
        """The status tells this of the mirror, as the lake has it."""
        self.pipeline.wait_until(
            lambda: self.tables().get(table, {}).get("mirror_rows") == rows, f"{rows} in {table}"
        )

    def source(self) -> dict[str, Any]:
        status = self.pipeline.status()
        found: Any = None if status is None else status["source"]
        return found or {}

    def metrics(self, name: str, **labels: str) -> float | None:
        return self.pipeline.metric(name, pipeline="story", **labels)


@pytest.fixture(scope="module")
def story(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with TcpProxy("127.0.0.1", postgres.port) as proxy, database_on(postgres, "story") as database:
        found = Story(tmp_path_factory.mktemp("story"), database, proxy)
        try:
            found.pipeline.start()
            found.wait_for("streaming", users="streaming", orders="streaming")
            yield found
        finally:
            found.pipeline.end()


def test_changes_reach_the_mirror_while_it_runs(story: Story) -> None:
    story.wait_until_merged(USERS, read=500)
    story.sql(f"update {USERS} set price = 1 where id <= 10")
    story.sql(f"delete from {USERS} where id > 495")
    story.wait_until_merged(USERS, update=10, delete=5)
    story.wait_until_merged(ORDERS, read=500)
    merged = story.tables()[USERS]["merged"]
    assert (merged["update"], merged["delete"]) == (10, 5)
    story.wait_for_rows(USERS, 495)


def test_status_page_command_and_metrics_tell_the_same(story: Story) -> None:
    asked = json.loads(story.pipeline.command("status", "-o", "json").stdout)
    tables = story.tables()
    assert {each["table"] for each in asked["tables"]} == set(tables) == {USERS, ORDERS}
    page = html.unescape(story.pipeline.page("/"))
    for printed in asked["tables"]:
        shown = tables[printed["table"]]
        stable = ("captured", "merged", "index", "commits", "mirror", "changelog", "trouble")
        assert {name: printed[name] for name in stable} == {name: shown[name] for name in stable}
        for operation, rows in printed["captured"].items():
            labels = {"table": printed["table"], "operation": operation}
            assert story.metrics("frazil_source_events_total", **labels) == rows
        for action, keys in printed["merged"].items():
            labels = {"table": printed["mirror"], "action": action}
            assert story.metrics("frazil_merge_rows_total", **labels) == keys
        index = printed["index"]
        assert story.metrics("frazil_index_entries", table=printed["mirror"]) == index["entries"]
        assert all(str(each["snapshot_id"]) in page for each in printed["commits"])
    phases = [each["phase"] for each in tables.values()]
    assert story.metrics("frazil_tables", phase="stopped") == phases.count("stopped") == 0
    slot = asked["source"]["slot"]
    assert slot["name"] == "story_frazil"
    assert slot["name"] in page


def test_a_new_table_is_captured_and_merged_without_a_restart(story: Story) -> None:
    story.sql("create table public.late (id int primary key, word text)")
    story.sql("insert into public.late values (1, 'a'), (2, 'b')")
    story.sql("create table public.keyless (word text)")
    story.sql("insert into public.keyless values ('a')")
    # A change of another table is what makes it look.
    story.sql(f"update {ORDERS} set price = 2 where id = 1")
    story.wait_until_merged("public.late", read=2)
    # Its changelog is all that there is of it.
    story.wait_until_merged("public.keyless", read=1)


def test_a_stopped_table_says_the_same_everywhere_and_its_remedy_mends_it(story: Story) -> None:
    story.sql(f"alter table {USERS} alter column name type bytea using convert_to(name, 'UTF8')")
    story.sql(f"update {USERS} set price = 3 where id = 1")
    story.wait_for("stopped", users="stopped")
    trouble = story.tables()[USERS]["trouble"]
    code, reason, remedy = trouble["code"], trouble["reason"], trouble["remedy"]
    assert re.fullmatch(r"FRZ-SCH-\d\d", code)
    assert remedy == f"frazil resync {USERS}"

    asked = story.pipeline.command("status")
    assert asked.returncode == 3
    shown_text = " ".join(asked.stdout.split())
    assert all(text in shown_text for text in (code, reason, remedy))
    page = html.unescape(story.pipeline.page("/"))
    assert all(text in page for text in (code, reason, remedy))
    assert story.metrics("frazil_table_stopped", table=USERS, code=code) == 1
    assert story.metrics("frazil_tables", phase="stopped") == 1
    (paused,) = story.pipeline.events("table paused")
    assert (paused["table"], paused["code"]) == (USERS, code)
    assert (paused["reason"], paused["remedy"]) == (reason, remedy)

    story.sql(f"update {ORDERS} set price = 4 where id <= 7")
    story.wait_until_merged(ORDERS, update=8)

    typed = story.pipeline.command(*remedy.split()[1:])
    assert typed.returncode == 0, typed.stderr
    story.wait_for("streaming again", users="streaming")
    story.wait_until_merged(USERS)
    assert story.metrics("frazil_table_stopped", table=USERS, code=code) == 0
    verified = story.pipeline.command("verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr[-2000:]


def test_a_reload_takes_the_interval_and_refuses_the_rest_by_name(story: Story) -> None:
    story.write_document(interval="2s", rows=5)
    story.pipeline.send(signal.SIGHUP)
    story.pipeline.wait_until(lambda: bool(story.pipeline.events("reloaded")), "reloaded")
    assert story.pipeline.events("reloaded")[0]["keys"] == ["ingest.interval"]
    (refused,) = story.pipeline.events("these keys need a restart and stay as they were")
    assert refused["keys"] == ["ingest.max_rows"]
    story.pipeline.require_alive()


@pytest.mark.fault("K10")
def test_a_jvm_that_dies_ends_the_process_within_seconds(story: Story) -> None:
    story.pipeline.jvm().kill()
    assert story.pipeline.wait() == 1
    assert "the JVM that Spark runs in has ended" in story.pipeline.output_tail()


@pytest.mark.fault("N55")
def test_after_a_restart_totals_come_from_the_lake(story: Story) -> None:
    story.pipeline.start()
    story.wait_for_rows(USERS, 495)
    story.wait_for("streaming", users="streaming", orders="streaming")
    story.pipeline.wait_until(
        lambda: story.tables()[USERS]["changelog_rows"] is not None, "changelog asked"
    )
    users = story.tables()[USERS]
    # Nothing was captured by this process; what is there was committed before.
    assert users["captured"] == {}
    assert users["changelog_rows"] >= 495
    assert {each["role"] for each in users["commits"]} == {"ingest", "merge"}
    assert not users["is_first_load"]


@pytest.mark.fault("N55")
def test_while_the_server_is_away_its_slot_is_unknown(story: Story) -> None:
    story.pipeline.wait_until(lambda: bool(story.source().get("slot")), "slot shown")
    assert story.metrics("frazil_slot_retained_bytes") is not None
    story.proxy.refuse_all()
    story.pipeline.wait_until(lambda: bool(story.source().get("unknown_since")), "unknown")
    assert story.source()["slot"] is None
    assert story.metrics("frazil_slot_retained_bytes") is None
    assert "unknown since" in story.pipeline.command("status").stdout
    story.proxy.allow_all()
    story.pipeline.wait_until(lambda: bool(story.source().get("slot")), "slot shown again")
    assert story.source()["unknown_since"] is None


@pytest.mark.fault("N55")
def test_capture_that_is_stopped_for_a_person_exits_3(story: Story) -> None:
    story.pipeline.wait_until(lambda: story.source().get("trouble") is None, "well")
    assert story.pipeline.command("status").returncode == 0
    story.proxy.refuse_all()
    story.pipeline.wait_until(lambda: bool(story.source().get("trouble")), "away")
    story.sql(
        "select pg_terminate_backend(active_pid) from pg_replication_slots "
        "where slot_name = 'story_frazil' and active"
    )
    story.sql("select pg_drop_replication_slot('story_frazil')")
    story.proxy.allow_all()

    def is_stopped() -> bool:
        trouble = story.source().get("trouble")
        return trouble is not None and trouble["retry_at"] is None

    story.pipeline.wait_until(is_stopped, "stopped for a person")
    for output in ("table", "json"):
        assert story.pipeline.command("status", "-o", output).returncode == 3
