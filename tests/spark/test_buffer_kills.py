"""Processes that drain a buffer are killed at each step: every good event lands once."""

from __future__ import annotations

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

# One event of so many is no row: its key is a word.
POISON = 1000
# Claimed; files written; one table committed; all others; recorded and not marked; being marked.
STEPS = (
    "ingest.planned",
    "ingest.written",
    "ingest.committed@1",
    "ingest.committed@{others}",
    "ingest.recorded",
    "ingest.acknowledged",
)
# Every table gets its events in the order of their positions.
EVENTS = f"""
insert into {SCHEMA}.cdc_events (
    source_id, schema_name, table_name, operation, lsn, transaction_id, key_columns, after_data,
    event_time
)
select '{{source}}', '{{schema}}', 'orders_' || n % {{tables}}, 'INSERT',
       upper(to_hex(n >> 12)) || '/' || upper(to_hex(n & 4095)), n, '["id"]',
       jsonb_build_object(
           'id', case when n % {POISON} = {POISON - 1} then to_jsonb('word'::text)
               else to_jsonb(n) end,
           'name', substr(md5(n::text), 1, 20), 'is_paid', n % 3 = 0
       ) || case when n > {{drift}} then jsonb_build_object('extra', n) else '{{{{}}}}' end,
       timestamptz '2026-01-01 00:00:00+00' + n * interval '1 ms'
from generate_series({{first}}::bigint, {{last}}) as n
"""


@pytest.fixture
def buffer(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, f"killed_{uuid4().hex[:10]}") as database:
        buffer = Buffer(database)
        buffer.make()
        yield buffer


class Drained:
    """A pipeline over one source, with what its tables must hold."""

    def __init__(self, world: CapturedBuffer, tables: int) -> None:
        self.world = world
        self.tables = tables
        self.written = 0

    def write(self, count: int, *, drift: int) -> None:
        first, self.written = self.written + 1, self.written + count
        statement = EVENTS.format(
            source=self.world.source_id,
            schema=self.world.schema,
            tables=self.tables,
            drift=drift,
            first=first,
            last=self.written,
        )
        self.world.buffer.database.run(statement)

    def kill_at(self, steps: Sequence[str]) -> None:
        """A process for each step, one after the other; each dies there."""
        points = [each.format(others=self.tables - 1) for each in steps]
        kills = [Kill(PATIENCE_SECONDS, each) for each in points]
        pipeline = self.world.config.pipeline
        ends = kill_all(self.world.folder / f"{pipeline}.yaml", kills)
        assert ends == [f"killed at {each}" for each in points]

    def require_all(self, *, are_repaired: bool = False) -> None:
        """Every good event once, every other one a letter, nothing pending or claimed."""
        world = self.world
        assert (world.pending(), world.claims()) == (0, 0)
        letters = world.buffer.letters(f"source_id = '{world.source_id}'")
        ids = range(1, self.written + 1)
        bad = [number for number in ids if number % POISON == POISON - 1]
        assert letters == (0 if are_repaired else len(bad))
        session = attach_session(world.spark, world.config)
        found = {"rows": 0, "events": 0, "total": 0}
        for number in range(self.tables):
            table = world.name(f"cdc.{world.schema}_orders_{number}").quoted
            session.sql(f"refresh table {table}")
            (row,) = session.sql(
                "select count(*), count(distinct _cdc_sequence_number), coalesce(sum(id), 0), "
                f"count_if(id % {self.tables} <> {number}) from {table}"
            ).collect()
            found["rows"] += row[0]
            found["events"] += row[1]
            found["total"] += row[2]
            assert row[3] == 0
        good = self.written - (0 if are_repaired else len(bad))
        total = sum(ids) - (0 if are_repaired else sum(bad))
        assert found == {"rows": good, "events": good, "total": total}

    def repair(self) -> None:
        """Give every dead letter the number it should have had, and replay all of them."""
        self.world.buffer.database.run(
            f"update {SCHEMA}.dead_letter_events set event_data = jsonb_set(event_data, "
            "'{after,id}', event_data -> 'transaction_id') "
            f"where source_id = '{self.world.source_id}'"
        )
        with opened_letters(self.world.config) as letters:
            assert letters is not None
            meant = list(letters.letters())
            replayed = letters.prepare_replay({each.table for each in meant})(meant)
        assert len(replayed.pending) == len(meant)
        self.world.ingest()


def drained(
    spark: SparkSession,
    buffer: Buffer,
    catalog: RestCatalog,
    store: ObjectStore,
    folder: Path,
    *,
    tables: int,
    claim_rows: int,
) -> Drained:
    world = captured_buffer(spark, buffer, catalog, store, folder, claim_rows=claim_rows)
    return Drained(world, tables)


def test_a_killed_process_leaves_nothing_undone_and_nothing_twice(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    one = drained(spark, buffer, s3_catalog, object_store, tmp_path, tables=3, claim_rows=3_000)
    one.write(6_000, drift=4_500)
    # With one table of three committed, and with nothing marked.
    one.kill_at([STEPS[2], STEPS[4]])
    one.world.ingest()
    one.require_all()


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_million_events_of_twenty_tables_land_once_whenever_processes_are_killed(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    both = [
        drained(spark, buffer, s3_catalog, object_store, tmp_path, tables=10, claim_rows=100_000)
        for _ in range(2)
    ]
    for each in both:
        each.write(500_000, drift=300_000)
    with ThreadPoolExecutor(1) as threads:
        # The worker of the other source goes on beside.
        other = threads.submit(both[1].world.ingest)
        both[0].kill_at(STEPS)
        other.result()
    both[0].world.ingest()
    for each in both:
        each.require_all()
        each.repair()
        each.require_all(are_repaired=True)
