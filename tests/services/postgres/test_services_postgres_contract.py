"""A Postgres database keeps the contract of sources, on the oldest and the newest server here."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import Primitive
from frazil.testing.contract.copies import WholeReadContract
from frazil.testing.contract.histories import histories, play
from frazil.testing.contract.suite import (
    ORDERS,
    KeyContract,
    LogContract,
    SourceContract,
    begun,
    insert,
)
from frazil.testing.contract.tables import AlterContract, TroubleContract
from frazil.testing.in_memory_database import InsertRow
from tests.support.postgres.access import database_on
from tests.support.postgres.subject import PostgresSubject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from frazil.testing.contract.histories import Step
    from frazil.testing.contract.under_test import AlterableSource

pytestmark = pytest.mark.services


def subject_on(server: Postgres, folder: Path) -> Iterator[PostgresSubject]:
    with database_on(server, f"contract_{uuid4().hex[:10]}") as database:
        subject = PostgresSubject(database, folder)
        try:
            yield subject
        finally:
            subject.close()


class TestPostgresSource(
    SourceContract, LogContract, KeyContract, WholeReadContract, AlterContract, TroubleContract
):
    """All of the contract, but that a column which came back unseen is not taken for another."""

    def test_the_number_of_a_dropped_column_is_not_given_again(
        self, subject: AlterableSource
    ) -> None:
        # It is unknown which of the two a message means if both steps were made between two checks.
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note="gone"))
        subject.drop_column(ORDERS, "note")
        subject.add_column(ORDERS, "note", Primitive.STRING)
        subject.transact(InsertRow(ORDERS, {"id": 2, "note": "new"}))
        capture.catch_up()
        error = capture.failures[ORDERS]
        assert isinstance(error, UnsupportedSchemaChangeError)
        assert error.next_step == f"frazil resync {ORDERS}"

    def test_a_column_that_comes_back_is_another_one(self, subject: AlterableSource) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note="gone"))
        subject.drop_column(ORDERS, "note")
        subject.transact(InsertRow(ORDERS, {"id": 2}))
        capture.catch_up()
        subject.add_column(ORDERS, "note", Primitive.STRING)
        subject.transact(InsertRow(ORDERS, {"id": 3, "note": "new"}))
        capture.catch_up()
        assert capture.received(ORDERS)[-1]["4"] == "new"
        capture.expect_the_truth()

    @pytest.fixture
    def subject(self, postgres: Postgres, tmp_path: Path) -> Iterator[PostgresSubject]:
        yield from subject_on(postgres, tmp_path)


class TestPostgres16Source(KeyContract, WholeReadContract):
    """What older servers do in their own way."""

    @pytest.fixture
    def subject(self, postgres_16: Postgres, tmp_path: Path) -> Iterator[PostgresSubject]:
        yield from subject_on(postgres_16, tmp_path)


# Each takes a second or two: a few here, hundreds on the in-memory source.
@pytest.mark.fault("E1", "K1")
@settings(max_examples=5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(histories)
def test_whatever_happens_every_change_is_captured_once(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, history: list[Step]
) -> None:
    for subject in subject_on(postgres, tmp_path_factory.mktemp("history")):
        play(subject, history)
