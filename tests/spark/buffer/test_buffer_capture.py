"""Events of a buffer become tables: every good one once, and what is no row is a dead letter."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from frazil.hooks import InjectedFault, armed
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.planning.load_plan import load_run_plan
from tests.support.buffer.captured import CapturedBuffer, Written, captured_buffer
from tests.support.buffer.tables import Buffer
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog
    from frazil.pipeline.planning.run_plan import RunPlan

pytestmark = [pytest.mark.spark, pytest.mark.services]

TABLES = ("orders", "items", "notes")
EVENTS = 50_000
POISON = 1000
CRASHES = (
    "ingest.planned=error@1",
    "ingest.written=error@1",
    "ingest.committed=error@1",
    # The two that are left.
    "ingest.committed=error@2",
    "ingest.recorded=error@1",
)


@pytest.fixture(scope="module")
def buffer(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, f"buffer_{uuid4().hex[:10]}") as database:
        buffer = Buffer(database)
        buffer.make()
        yield buffer


@pytest.fixture
def world(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> CapturedBuffer:
    return captured_buffer(
        spark, buffer, s3_catalog, object_store, tmp_path, claim_rows=EVENTS // 2
    )


class Writer:
    """Draws changes of three tables and remembers what they come to."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.rows: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in TABLES}
        self.good: dict[str, int] = dict.fromkeys(TABLES, 0)
        self.poisoned = 0
        self._next = 0

    def draw(self, count: int, *, drifted: bool) -> Iterator[Written]:
        for number in range(count):
            self._next += 1
            table = TABLES[self._next % len(TABLES)]
            lsn = f"{self._next >> 12:X}/{self._next & 0xFFF:X}"
            if number % POISON == POISON - 1:
                self.poisoned += 1
                yield Written(table=table, operation="INSERT", lsn=lsn, after={"id": "x"})
                continue
            self.good[table] += 1
            yield self._change(table, lsn, drifted=drifted)

    def _change(self, table: str, lsn: str, *, drifted: bool) -> Written:
        rows, drawn = self.rows[table], self._random.random()
        keys = list(rows)[-50:]
        if drawn < 0.5 or not keys:
            row = {"id": self._next, "name": f"n{self._next}", "done": drawn < 0.2}
            row |= {"price": "1.50", "note": None} if drifted else {}
            rows[self._next] = row
            return Written(table=table, operation="INSERT", lsn=lsn, after=row)
        key = self._random.choice(keys)
        if drawn < 0.8:
            change = {"name": f"u{self._next}"}
            rows[key] = {**rows[key], **change}
            # What did not change is not sent.
            after = {"id": key, **change}
            return Written(table=table, operation="UPDATE", lsn=lsn, after=after)
        if drawn < 0.9:
            old, new = rows.pop(key), self._next
            rows[new] = {**old, "id": new}
            after = {"id": new, "name": old["name"]}
            return Written(
                table=table, operation="UPDATE", lsn=lsn, before={"id": key}, after=after
            )
        del rows[key]
        return Written(table=table, operation="DELETE", lsn=lsn, before={"id": key})


def test_every_good_event_lands_once_whenever_a_process_dies(world: CapturedBuffer) -> None:
    # Nothing is declared: the poison of the first batch does not make the key a text.
    world.document["tables"] = [
        # Positions rise from batch to batch here, so that what an UPDATE leaves out is known.
        {"mirror": f"{world.schema}.{name}", "order": "append"}
        for name in TABLES
    ]
    writer = Writer(seed=17)
    world.write(writer.draw(EVENTS // 2, drifted=False))
    for point in CRASHES:
        with armed(point), pytest.raises(InjectedFault):
            world.ingest_once()
    world.write(writer.draw(EVENTS // 2, drifted=True))
    world.ingest()
    assert (world.pending(), world.claims()) == (0, 0)
    letters = world.buffer.rows(
        "select table_name, error_type, error_message from philotes.dead_letter_events "
        f"where source_id = '{world.source_id}'"
    )
    assert len(letters) == writer.poisoned == EVENTS // POISON
    assert {each["error_type"] for each in letters} == {"unrepresentable"}
    assert all("'id'" in each["error_message"] for each in letters)
    for table in TABLES:
        changes = world.changelog(table)
        # Both halves of a key change are of one event: its id is the ordinal without its last bit.
        events = [int(each["_cdc_sequence_number"][-16:], 16) >> 1 for each in changes]
        assert len(set(events)) == writer.good[table]
        assert len({each["_cdc_sequence_number"] for each in changes}) == len(changes)
    world.merge()
    for table in TABLES:
        found = world.mirror(table)
        assert found.keys() == writer.rows[table].keys()
        for key, row in writer.rows[table].items():
            shown = found[key]
            assert {name: shown[name] for name in row if name != "note"} == {
                name: each for name, each in row.items() if name != "note"
            }


def insert(id_: int, lsn: str, **values: object) -> Written:
    return Written(table="odd", operation="INSERT", lsn=lsn, after={"id": id_, **values})


def update(lsn: str, version: int) -> Written:
    after = {"id": 1, "version": version, "number": 2**63 - 1}
    return Written(table="odd", operation="UPDATE", lsn=lsn, after=after)


@pytest.mark.fault("N20")
def test_odd_events_are_rows_or_letters_and_in_the_order_of_their_positions(
    world: CapturedBuffer,
) -> None:
    deep = "[" * 1000 + "]" * 1000
    large = {"text": "x" * (1 << 20)}
    thirty = "123456789012345678901234567890"
    dsn = world.buffer.database.dsn.get_secret_value()
    first = insert(1, "0/9", version=1, number=2**63 - 1)
    with psycopg.connect(dsn) as late:
        # It gets the lowest id, and commits last.
        late.execute(
            "insert into philotes.cdc_events (source_id, schema_name, table_name, operation, lsn,"
            " key_columns, before_data, after_data, event_time)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            update("0/8", 0).fields(world.source_id, world.schema),
        )
        world.write([first, insert(2, "0/A", version=1), insert(3, "0/B", version=1)])
        world.ingest()
        late.commit()
    world.write(
        [
            update("0/10", 2),
            update("0/F", 9),
            Written(table="odd", operation="DELETE", lsn="0/11", key={"id": 2}),
            Written(table="odd", operation="DELETE", lsn="0/12", before={"id": 3}),
            Written(
                table="wide",
                operation="INSERT",
                lsn="0/13",
                # Python's own parser does not go so deep.
                after=f'{{"id": 4, "document": {json.dumps(large)}, "deep": {deep}}}',
            ),
            exact_number("odd", 5, "0/14", "number", str(2**63)),
            exact_number("wide", 6, "0/15", "fresh", thirty),
            exact_number("wide", 7, "0/16", "fresh", "0.10"),
            insert(8, "no lsn"),
            Written(table="odd", operation="INSERT", lsn="0/17", after="[1]"),
            Written(table="odd", operation="DELETE", lsn="0/18"),
            Written(table="odd", operation="INSERT", lsn="0/19", after={"id": 9, "ID": 9}),
            Written(table="gone", operation="INSERT", lsn="0/1A", after={"id": 1, "name": "a"}),
            Written(table="gone", operation="TRUNCATE", lsn="0/1B", key=None),
            Written(table="gone", operation="INSERT", lsn="0/1C", after={"id": 2, "name": "b"}),
        ]
    )
    for escape in ("\\u0000", "\\ud800"):
        # No document of the buffer can hold them: its writer gets the error.
        bad = Written(table="odd", operation="INSERT", lsn="0/1", after=f'{{"a": "{escape}"}}')
        with pytest.raises(psycopg.DataError):
            world.write([bad])
    world.ingest()
    assert (world.pending(), world.claims()) == (0, 0)
    letters = world.buffer.rows(
        "select error_type, error_message from philotes.dead_letter_events"
        f" where source_id = '{world.source_id}' order by original_event_id"
    )
    assert [each["error_type"] for each in letters] == ["unrepresentable", *["invalid"] * 4]
    changes = sorted(world.changelog("odd"), key=lambda each: each["_cdc_sequence_number"])
    assert [each["_cdc_lsn"] for each in changes if each["id"] == 1] == [
        "0/8",
        "0/9",
        "0/F",
        "0/10",
    ]
    assert changes[0]["_cdc_timestamp"] == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    world.merge()
    rows = world.mirror("odd")
    assert rows.keys() == {1}
    assert (rows[1]["version"], rows[1]["number"]) == (2, 2**63 - 1)
    rows = world.mirror("wide")
    assert rows.keys() == {4, 6, 7}
    assert (rows[6]["fresh"], rows[7]["fresh"]) == (thirty, "0.10")
    assert json.loads(rows[4]["document"]) == large
    assert rows[4]["deep"].replace(" ", "") == deep
    assert world.mirror("gone").keys() == {2}


def exact_number(table: str, id_: int, lsn: str, name: str, digits: str) -> Written:
    """A number with all its digits, which Python would not write so."""
    after = f'{{"id": {id_}, "{name}": {digits}}}'
    return Written(table=table, operation="INSERT", lsn=lsn, after=after)


def load_plan(world: CapturedBuffer) -> RunPlan:
    """What ``frazil plan`` shows of the source."""
    facts = configured_source(world.config).load_plan_facts()
    assert facts is not None
    return load_run_plan(world.lake, world.config, facts)


def test_an_update_that_leaves_columns_out_is_completed_by_its_old_row(
    world: CapturedBuffer,
) -> None:
    whole = {"id": 1, "name": "a", "note": "kept", "other": None}
    world.write(
        [
            Written(table="odd", operation="INSERT", lsn="0/1", after=whole),
            Written(
                table="odd",
                operation="UPDATE",
                lsn="0/2",
                before=whole,
                after={"id": 1, "name": "b"},
            ),
        ]
    )
    (step,) = load_plan(world).tables
    assert step.changelog is not None
    assert step.changelog.is_new
    assert dict(step.changelog.columns) == {
        "id": "long",
        "name": "string",
        "note": "string",
    }
    assert step.waiting.document["events"] == 2
    world.ingest()
    (step,) = load_plan(world).tables
    assert (step.has_work, step.waiting.has_any) == (False, False)
    # With the order that mirrors of a buffer have.
    world.merge()
    assert {name: world.mirror("odd")[1][name] for name in whole if name != "other"} == {
        "id": 1,
        "name": "b",
        "note": "kept",
    }


def test_two_workers_drain_two_sources_of_one_buffer(
    spark: SparkSession,
    buffer: Buffer,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    worlds = [captured_buffer(spark, buffer, s3_catalog, object_store, tmp_path) for _ in range(2)]
    for world in worlds:
        world.write([insert(number, f"0/{number:X}") for number in range(1, 200)])
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(world.ingest) for world in worlds]:
            each.result()
    for world in worlds:
        assert {each["id"] for each in world.changelog("odd")} == set(range(1, 200))
        assert (world.pending(), world.claims()) == (0, 0)
