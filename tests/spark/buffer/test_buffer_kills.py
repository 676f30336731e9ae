"""Processes that drain a buffer are killed at each step: every good event lands once."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.spark.session import attach_session
from frazil.pipeline.letters.dead_letters import opened_letters
from tests.support.buffer.captured import CapturedBuffer, captured_buffer
from tests.support.buffer.tables import SCHEMA, Buffer
from tests.support.ingest.processes import PATIENCE_SECONDS, Kill, kill_all
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog

pytestmark = [pytest.mark.spark, pytest.mark.services]

# One event of so many is no row: by turns its key is a word, and its position is none.
POISON = 1000
WORD, NO_POSITION = POISON - 1, 2 * POISON - 1
# Claimed; files written; one table committed; all others; recorded and not marked; being marked.
STEPS = (
    "ingest.planned",
    "ingest.written",
    "ingest.committed@1",
    "ingest.committed@{others}",
    "ingest.recorded",
    "ingest.acknowledged",
)
SEED = int(os.environ.get("FRAZIL_SEED", "17"))
DEEP_EVENTS = 1_000_000
# Every table gets its events in the order of their positions. The number of an event is its row's
# key and decides all else. From ``drift`` on rows have another column, and one no longer.
EVENTS = f"""
insert into {SCHEMA}.cdc_events (
    source_id, schema_name, table_name, operation, lsn, transaction_id, key_columns, before_data,
    after_data, event_time
)
select '{{source}}', '{{schema}}', 'orders_' || n % {{tables}}, operation,
       case when n % {2 * POISON} = {NO_POSITION} then 'nowhere'
           else upper(to_hex(n >> 12)) || '/' || upper(to_hex(n & 4095)) end,
       n, '["id"]',
       case when operation = 'DELETE' then jsonb_build_object('id', n) end,
       case when operation <> 'DELETE' then
           jsonb_build_object('id', case when n % {2 * POISON} = {WORD}
               then to_jsonb('word'::text) else to_jsonb(n) end)
           || case when operation = 'INSERT'
               then jsonb_build_object('name', md5(n::text)) else '{{{{}}}}' end
           || case when n > {{drift}} then jsonb_build_object('extra', n)
               else jsonb_build_object('is_paid', n % 3 = 0) end
       end,
       timestamptz '2026-01-01 00:00:00+00' + n * interval '1 ms'
from (
    select n, case when n % {POISON} = {WORD} then 'INSERT' else {{operation}} end as operation
    from generate_series({{first}}::bigint, {{last}}) as n
) as drawn
"""
# Of seven events four bring a row, two change one and leave its name out, one deletes one. Seven
# divides no number of tables here: every table has all three.
OPERATION = (
    "case when ({number} * 7919 + {seed}) % 7 < 4 then 'INSERT' "
    "when ({number} * 7919 + {seed}) % 7 < 6 then 'UPDATE' else 'DELETE' end"
)
# Rows of a table, the events that they are of, the sum of their keys, and how many are not what
# their event says.
FOUND = f"""
select count(*), count(distinct id), count(distinct _cdc_sequence_number), coalesce(sum(id), 0),
    count_if(not (
        id % {{tables}} <=> {{number}}
        and _cdc_operation <=> operation
        and _cdc_lsn <=> concat(hex(shiftright(id, 12)), '/', hex(id & 4095))
        and unix_millis(_cdc_timestamp) <=> {{since}} + id
        and name <=> if(operation = 'INSERT', md5(string(id)), null)
        and is_paid <=> if(operation = 'DELETE' or id > {{drift}}, null, id % 3 = 0)
        and extra <=> if(operation = 'DELETE' or id <= {{drift}}, null, id)
    ))
from (
    select *, case when id % {POISON} = {WORD} then 'INSERT' else {{operation}} end as operation
    from {{table}}
) as rows
"""
# The first moment of 2026, in milliseconds.
SINCE = 1_767_225_600_000


@pytest.fixture
def buffer(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, f"killed_{uuid4().hex[:10]}") as database:
        buffer = Buffer(database)
        buffer.make()
        yield buffer


class Drained:
    """A pipeline over one source, with what its tables must hold."""

    def __init__(self, world: CapturedBuffer, tables: int, *, drift: int, seed: int = SEED) -> None:
        self.world = world
        self.tables = tables
        self.written = 0
        self._drift = drift
        self._seed = seed

    def write(self, count: int) -> None:
        first, self.written = self.written + 1, self.written + count
        statement = EVENTS.format(
            source=self.world.source_id,
            schema=self.world.schema,
            tables=self.tables,
            drift=self._drift,
            operation=OPERATION.format(number="n", seed=self._seed),
            first=first,
            last=self.written,
        )
        self.world.buffer.database.run(statement)

    def kill_at(self, steps: Sequence[str], *, first: int = 0) -> None:
        """A process for each step, one after the other; each dies there."""
        points = [each.format(others=self.tables - 1) for each in steps]
        kills = [Kill(PATIENCE_SECONDS, each) for each in points]
        pipeline = self.world.config.pipeline
        ends = kill_all(self.world.folder / f"{pipeline}.yaml", kills, first=first)
        assert ends == [f"killed at {each}" for each in points]

    def require_all(self, *, are_repaired: bool = False) -> None:
        """Every good event once, every other one a letter, nothing pending or claimed."""
        world = self.world
        assert (world.pending(), world.claims()) == (0, 0)
        bad = set() if are_repaired else set(range(WORD, self.written + 1, POISON))
        assert self._letters() == {
            number: _reason(number, world.schema, self.tables) for number in bad
        }
        good = self.written - len(bad)
        total = sum(range(1, self.written + 1)) - sum(bad)
        session = attach_session(world.spark, world.config)
        found = [0, 0, 0, 0, 0]
        for number in range(self.tables):
            table = world.name(f"cdc.{world.schema}_orders_{number}").quoted
            session.sql(f"refresh table {table}")
            query = FOUND.format(
                table=table,
                tables=self.tables,
                number=number,
                drift=self._drift,
                since=SINCE,
                operation=OPERATION.format(number="id", seed=self._seed),
            )
            (row,) = session.sql(query).collect()
            found = [before + each for before, each in zip(found, row, strict=True)]
        assert found == [good, good, good, total, 0]

    def _letters(self) -> dict[int, tuple[str, str, str]]:
        """Each by the number of its event, with its table and why it is none."""
        found = self.world.buffer.rows(
            "select event_data -> 'transaction_id' as number, error_type, error_message, "
            f"schema_name || '.' || table_name as name from {SCHEMA}.dead_letter_events "
            f"where source_id = '{self.world.source_id}'"
        )
        letters = {
            each["number"]: (each["name"], each["error_type"], each["error_message"])
            for each in found
        }
        assert len(letters) == len(found)
        return letters

    def repair(self, steps: Sequence[str] = ()) -> None:
        """Give every dead letter what it should have had, and replay all of them.

        Processes die at these steps on the way.
        """
        number = "(event_data ->> 'transaction_id')::bigint"
        self.world.buffer.database.run(
            f"update {SCHEMA}.dead_letter_events set event_data = event_data || jsonb_build_object("
            f"'lsn', upper(to_hex({number} >> 12)) || '/' || upper(to_hex({number} & 4095)), "
            "'after', event_data -> 'after' || jsonb_build_object('id', "
            "event_data -> 'transaction_id')) "
            f"where source_id = '{self.world.source_id}'"
        )
        with opened_letters(self.world.config) as letters:
            assert letters is not None
            meant = list(letters.letters())
            replayed = letters.prepare_replay({each.table for each in meant})(meant)
        assert len(replayed.pending) == len(meant)
        self.kill_at(steps, first=len(STEPS))
        self.world.ingest()


def _reason(number: int, schema: str, tables: int) -> tuple[str, str, str]:
    name = f"{schema}.orders_{number % tables}"
    if number % (2 * POISON) == WORD:
        return name, "unrepresentable", "column 'id' has a value that a long cannot hold"
    return name, "invalid", "its position is not of the form 16/B374D848"


def drained(
    spark: SparkSession,
    buffer: Buffer,
    catalog: RestCatalog,
    store: ObjectStore,
    folder: Path,
    *,
    tables: int,
    claim_rows: int,
    drift: int,
) -> Drained:
    world = captured_buffer(spark, buffer, catalog, store, folder, claim_rows=claim_rows)
    return Drained(world, tables, drift=drift)


def test_a_killed_process_leaves_nothing_undone_and_nothing_twice(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    one = drained(
        spark, buffer, s3_catalog, object_store, tmp_path, tables=3, claim_rows=3_000, drift=4_500
    )
    one.write(6_000)
    # With one table of three committed, and with nothing marked.
    one.kill_at([STEPS[2], STEPS[4]])
    one.world.ingest()
    one.require_all()
    one.repair()
    one.require_all(are_repaired=True)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_million_events_of_twenty_tables_land_once_whenever_processes_are_killed(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    print(f"FRAZIL_SEED={SEED}")  # noqa: T201
    chance = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    both = [
        drained(
            spark,
            buffer,
            s3_catalog,
            object_store,
            tmp_path,
            tables=10,
            claim_rows=100_000,
            drift=DEEP_EVENTS * 3 // 10,
        )
        for _ in range(2)
    ]
    for each in both:
        each.write(DEEP_EVENTS // 2)
    # One worker dies at each step of a batch in turn, the other one beside it in any order.
    orders = [STEPS, chance.sample(STEPS, len(STEPS))]
    with ThreadPoolExecutor(2) as threads:
        for killed in [
            threads.submit(each.kill_at, it) for each, it in zip(both, orders, strict=True)
        ]:
            killed.result()
        for ended in [threads.submit(each.world.ingest) for each in both]:
            ended.result()
    for each in both:
        each.require_all()
        # What a replay brings lands once, also when the process dies between the tables.
        each.repair(["ingest.committed@1", "ingest.recorded"])
        each.require_all(are_repaired=True)
