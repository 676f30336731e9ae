"""What a plan says about a buffer: which events wait, and which tables and columns are new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.config import table_settings
from frazil.errors import SourceReplacedError
from frazil.model.marker import Marker
from frazil.model.schema.types import Primitive
from frazil.sources.buffer.plan_facts import BufferPlanFacts
from frazil.sources.buffer.settings import TableChoice
from frazil.sources.protocol import TableProgress
from frazil.testing.contract.suite import ITEMS, ORDERS, begun, insert
from tests.support.buffer.subject import CONFIG, BufferSubject
from tests.support.buffer.tables import Buffer
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

NOWHERE = TableProgress(None, "", "")


@pytest.fixture
def subject(postgres: Postgres) -> Iterator[BufferSubject]:
    with database_on(postgres, f"planned_{uuid4().hex[:10]}") as database:
        Buffer(database).make()
        subject = BufferSubject(database)
        yield subject
        subject.close()


def facts_of(subject: BufferSubject) -> BufferPlanFacts:
    choice = TableChoice(("shop.*",), ("shop.left_out",))
    return BufferPlanFacts(replace(subject.settings, choice=choice))


def test_a_buffer_that_was_never_drained_is_looked_at_and_not_touched(
    subject: BufferSubject,
) -> None:
    for number in range(3):
        subject.write(ORDERS, "INSERT", None, {"id": number, "name": "a", "is_paid": True})
    # One that is something else decides nothing, in a plan as in a batch.
    subject.write(ORDERS, "INSERT", None, {"id": "word"})
    subject.write("shop.left_out", "INSERT", None, {"id": 1})
    facts = facts_of(subject)
    assert list(facts.tables) == [ORDERS]
    prepared = facts.plan_preparation([ORDERS], None)
    assert prepared.has_work
    assert (prepared.document["pending"], prepared.document["makes_schema"]) == (4, True)
    waiting = facts.load_waiting(ORDERS, NOWHERE, None)
    assert waiting.has_any
    assert "4 events wait in the buffer" in waiting.text
    found = facts.describe(ORDERS, table_settings(CONFIG, ORDERS), "")
    assert {each.name: each.type for each in found.table.columns} == {
        "id": Primitive.LONG,
        "name": Primitive.STRING,
        "is_paid": Primitive.BOOLEAN,
    }
    assert found.no_key
    assert subject.database.ask("select to_regnamespace('frazil_buffer') is null")


def test_a_plan_shows_what_waits_for_each_table_and_the_columns_that_come(
    subject: BufferSubject,
) -> None:
    subject.database.run(
        "create table philotes.cdc_schema_history (source_id text, schema_name text, "
        "table_name text, version int, columns jsonb)"
    )
    capture = begun(subject, ORDERS, ITEMS)
    subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
    capture.catch_up()
    shape, ledger = capture.markers[ORDERS].shape, capture.ledger
    capture.source.close()
    subject.write(ORDERS, "INSERT", None, {"id": 2, "fresh": 7})
    facts = facts_of(subject)
    assert facts.plan_preparation([ORDERS, ITEMS], ledger).problem is None
    assert facts.load_waiting(ORDERS, capture.markers[ORDERS], None).document["events"] == 1
    assert facts.load_waiting(ITEMS, capture.markers[ITEMS], None).has_any is False
    found = facts.describe(ORDERS, table_settings(CONFIG, ORDERS), shape)
    assert found.table.columns[-1].name == "fresh"
    assert [found.table.column(number).name for number in found.table.key] == ["id"]
    other = Marker(pipeline="tests", source="buffer://elsewhere/1", position="1", batch="b")
    assert isinstance(facts.plan_preparation([ORDERS], other).problem, SourceReplacedError)
