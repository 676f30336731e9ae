"""``plan`` with a database: what the next run would do, while nothing is changed anywhere."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.invocation import Invocation
from frazil.cli.output import OutputFormat
from frazil.cli.verbs.plan import show_plans
from frazil.errors import ConfigError
from frazil.pipeline.planning.run_plan import UNKNOWN_CHANGES
from frazil.pipeline.tables.captured_mirrors import ledger_name
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services]

Capture = pytest.CaptureFixture[str]

TRACES = """
    select (select count(*) from pg_publication where pubname like 'p\\_%')
        || ' ' || (select coalesce(string_agg(slot_name || confirmed_flush_lsn::text, ' '
            order by slot_name), '') from pg_replication_slots
            where slot_name = '{slot}')
"""


@dataclass
class Planning:
    """A captured database, and the verb run in this process on the session that is there."""

    world: CapturedDatabase
    monkeypatch: pytest.MonkeyPatch
    capsys: Capture

    def run(
        self, *tables: str, output: OutputFormat = OutputFormat.JSON, exit_code: bool = True
    ) -> tuple[ExitCode, str]:
        world = self.world
        patch = self.monkeypatch.setattr
        patch("frazil.cli.verbs.plan.open_session", lambda _: nullcontext(world.spark))
        patch("frazil.cli.invocation.configure_logs", lambda *_: None)
        document = world.folder / f"{world.document['pipeline']}.yaml"
        before = self.traces()
        self.capsys.readouterr()
        invocation = Invocation(document=document, output=output)
        code = show_plans(tables, invocation, exit_code=exit_code)
        assert self.traces() == before, "something changed at the source"
        return code, self.capsys.readouterr().out

    def plan(self, *tables: str, **how: bool) -> tuple[ExitCode, Any]:
        code, text = self.run(*tables, **how)  # type: ignore[arg-type]
        return code, json.loads(text)

    def traces(self) -> object:
        return self.world.ask(TRACES.format(slot=f"{self.world.document['pipeline']}_frazil"))


@pytest.fixture
def planning(
    spark: SparkSession,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> Iterator[Planning]:
    with captured_database(spark, postgres, tmp_path, source={"exclude": ["public.tmp_*"]}) as made:
        made.run(
            "create table orders (id int primary key, note text)",
            "insert into orders values (1, 'one'), (2, 'two')",
            "create table keyless (word text)",
        )
        yield Planning(made, monkeypatch, capsys)


def of(document: Any, table: str) -> Any:
    (found,) = (each for each in document["tables"] if each["table"] == table)
    return found


def test_a_new_pipeline_is_planned_without_a_trace_and_a_run_does_what_was_said(
    planning: Planning,
) -> None:
    world = planning.world
    code, found = planning.plan()
    assert code is ExitCode.DIFFERENCE
    name = f"{world.document['pipeline']}_frazil"
    (statement,) = found["source"]["statements"]
    assert statement.startswith(f'create publication "{name}" for table')
    assert found["source"]["creates_slot"]
    orders = of(found, "public.orders")
    assert orders["capture"]["copies"]
    assert orders["capture"]["changelog"] == {
        "name": "public.orders_changelog",
        "creates": True,
        "takes_over": False,
        "columns": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
        "changes": [],
    }
    assert orders["capture"]["mirror"] == {"name": "public.orders", "creates": True, "key": ["id"]}
    assert (orders["plan"], orders["problem"]) == (None, None)
    assert "no primary key" in of(found, "public.keyless")["capture"]["no_mirror"]
    assert not world.has_table(ledger_name(world.config))
    assert not world.has_changelog("orders")

    world.catch_up()
    names = world.field_ids(world.names("orders").changelog)
    assert [each for each in names if not each.startswith("cdc_")] == ["id", "note"]
    assert world.has_mirror("orders")
    code, found = planning.plan()
    assert code is ExitCode.DONE, found
    assert found["source"]["statements"] == []
    assert not found["source"]["creates_slot"]
    assert of(found, "public.orders")["capture"]["has_changes"] is False


def test_what_waits_at_the_source_differs_from_what_waits_for_a_merge(
    planning: Planning,
) -> None:
    world = planning.world
    world.catch_up()
    world.run(
        "insert into orders values (3, 'three')",
        "alter table orders add column size int",
        "create table tmp_left_out (id int primary key)",
        "create table late (id int primary key)",
    )
    code, found = planning.plan()
    assert code is ExitCode.DIFFERENCE
    orders = of(found, "public.orders")
    assert orders["capture"]["has_changes"]
    assert not orders["capture"]["copies"]
    assert orders["capture"]["changelog"]["changes"] == ["size is added as int"]
    assert orders["plan"] is None
    assert of(found, "public.keyless")["capture"]["has_changes"] is False
    assert of(found, "public.late")["capture"]["copies"]
    assert [each.split()[:2] for each in found["source"]["statements"]] == [
        ["alter", "publication"]
    ]
    assert not any("left_out" in each["table"] for each in found["tables"])

    _, text = planning.run(output=OutputFormat.TABLE, exit_code=False)
    assert "changes wait at the source" in text
    assert "public.orders_changelog: size is added as int, with the next row" in text
    assert "public.late_changelog is made: id int" in text
    assert "public.late is made, by id" in text

    world.ingest()
    code, found = planning.plan("public.orders_changelog")
    assert code is ExitCode.DIFFERENCE
    (orders,) = found["tables"]
    assert orders["plan"]["rows"] == 1
    world.merge("orders", "late")
    assert planning.plan()[0] is ExitCode.DONE


def test_what_keeps_a_run_from_beginning_is_a_problem_with_its_remedy(planning: Planning) -> None:
    world = planning.world
    world.catch_up()
    slot = f"{world.document['pipeline']}_frazil"
    world.run(f"select pg_drop_replication_slot('{slot}')")
    code, found = planning.plan()
    assert code is ExitCode.ACTION_REQUIRED
    assert found["source"]["problem"]["code"] == "FRZ-SRC-03"
    assert "frazil resync --all" in found["source"]["problem"]["message"]

    world.reconfigure(source={"on_slot_lost": "resync"})
    code, found = planning.plan()
    assert code is ExitCode.DIFFERENCE
    assert found["source"]["creates_slot"]
    assert all(each["capture"]["copies"] for each in found["tables"])


def test_tables_that_leave_or_cannot_be_named_are_listed(planning: Planning) -> None:
    world = planning.world
    world.catch_up()
    world.run("create table orders_changelog (id int primary key)")
    world.reconfigure(source={"exclude": ["public.keyless"]})
    code, found = planning.plan()
    assert code is ExitCode.ACTION_REQUIRED
    assert "would be" in of(found, "public.orders_changelog")["problem"]["message"]
    assert of(found, "public.keyless")["capture"]["state"].startswith("removed at ")


def test_a_slot_in_use_is_not_peeked_at(planning: Planning) -> None:
    world = planning.world
    world.catch_up()
    slot = f"{world.document['pipeline']}_frazil"
    with world.database.streaming(slot, slot):
        code, text = planning.run(output=OutputFormat.TABLE)
    assert code is ExitCode.DONE
    assert UNKNOWN_CHANGES in text


def test_an_unknown_table_is_refused_with_the_nearest_name(planning: Planning) -> None:
    with pytest.raises(ConfigError, match=r"did you mean public\.orders"):
        planning.plan("public.order")
