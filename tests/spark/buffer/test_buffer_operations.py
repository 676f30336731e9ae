"""Dead letters of a buffer that are replayed, and tables that are verified by its events."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.spark.session import attach_session
from frazil.hooks import InjectedFault, armed
from frazil.pipeline.letters.dead_letters import opened_letters
from frazil.pipeline.verification import build_record_verifier
from frazil.verify.offset_ranges import OffsetProblem
from tests.support.buffer.captured import CapturedBuffer, Written, captured_buffer
from tests.support.buffer.tables import SCHEMA, Buffer
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog
    from frazil.ingest.replay import ReplayReport
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.verify.mirror_verifier import Verification

pytestmark = [pytest.mark.spark, pytest.mark.services]


@pytest.fixture(scope="module")
def buffer(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, f"operated_{uuid4().hex[:10]}") as database:
        buffer = Buffer(database)
        buffer.make()
        yield buffer


def letters_of(world: CapturedBuffer) -> list[DeadLetter]:
    with opened_letters(world.config) as letters:
        assert letters is not None
        return list(letters.letters())


def replay(world: CapturedBuffer) -> ReplayReport:
    """All dead letters, as ``frazil dlq replay --all`` does it."""
    with opened_letters(world.config) as letters:
        assert letters is not None
        meant = list(letters.letters())
        return letters.prepare_replay({each.table for each in meant})(meant)


def verify(world: CapturedBuffer) -> Verification:
    session = attach_session(world.spark, world.config)
    verifier = build_record_verifier(session, world.lake, world.config)
    assert verifier is not None
    source = f"{world.schema}.orders"
    assert verifier.has(source)
    return verifier.verify(world.name(f"cdc.{world.schema}_orders"), source)


def order(operation: str, number: int, before: object = None) -> Written:
    values = {"id": number, "count": number}
    lsn = f"0/{number:X}"
    return Written(table="orders", operation=operation, lsn=lsn, before=before, after=values)


def write_orders(world: CapturedBuffer) -> None:
    """Twenty one good events, of which the last has two rows, and then one that is no row."""
    buffer = world.buffer
    # What another program has drained before is none of ours.
    buffer.add(3, source_id=world.source_id, processed="now()")
    buffer.database.run(
        f"update {SCHEMA}.cdc_events set schema_name = '{world.schema}' "
        f"where source_id = '{world.source_id}'"
    )
    world.write([order("INSERT", number) for number in range(1, 21)])
    # A key that changes is two rows of one event.
    world.write([order("UPDATE", 21, before={"id": 20})])
    # What a column is was seen by then.
    world.ingest()
    world.write(
        [Written(table="orders", operation="INSERT", lsn="0/40", after={"id": 64, "count": "x"})]
    )


def test_a_repaired_event_lands_once_and_every_processed_event_is_accounted_for(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    world = captured_buffer(spark, buffer, s3_catalog, object_store, tmp_path)
    write_orders(world)
    world.ingest()
    (letter,) = letters_of(world)
    assert (letter.table, letter.attempts) == (f"{world.schema}.orders", 1)
    assert len(world.changelog("orders")) == 22
    same = verify(world)
    assert same.agrees, same
    assert (same.rows_expected, same.rows_found) == (21, 21)

    # Nothing was repaired.
    assert replay(world).pending == (letter.id,)
    assert world.pending() == 1
    world.ingest()
    (again,) = letters_of(world)
    assert (again.id, again.attempts, world.pending()) == (letter.id, 2, 0)
    assert len(world.changelog("orders")) == 22

    buffer.database.run(
        f"update {SCHEMA}.dead_letter_events set "
        f"event_data = jsonb_set(event_data, '{{after,count}}', '64') where id = {letter.id}"
    )
    assert replay(world).pending == (letter.id,)
    with armed("ingest.committed=error@1"), pytest.raises(InjectedFault):
        world.ingest_once()
    # It is in its table and not acknowledged: to ask again changes nothing.
    assert replay(world).pending == (letter.id,)
    world.ingest()
    assert (letters_of(world), world.pending(), world.claims()) == ([], 0, 0)
    assert replay(world).pending == ()
    world.ingest()
    assert [each["count"] for each in world.changelog("orders") if each["id"] == 64] == [64]
    same = verify(world)
    assert same.agrees, same
    assert (same.rows_expected, same.rows_found) == (22, 22)

    require_differences_found(world)


def require_differences_found(world: CapturedBuffer) -> None:
    buffer = world.buffer
    table = world.name(f"cdc.{world.schema}_orders").quoted
    session = attach_session(world.spark, world.config)
    session.sql(f"DELETE FROM {table} WHERE id IN (3, 4)")
    session.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 7")
    other = verify(world)
    assert (other.missing, other.surplus) == (2, 1)
    assert [each.problem for each in other.offsets] == [
        OffsetProblem.MISSING,
        OffsetProblem.SURPLUS,
    ]
    assert "processed_at = null" in other.next_step
    # Rows of events that the buffer has not any more are not compared.
    buffer.database.run(
        f"delete from {SCHEMA}.cdc_events where source_id = '{world.source_id}' "
        "and (after_data ->> 'id')::int in (3, 4, 5, 7)"
    )
    assert verify(world).agrees
