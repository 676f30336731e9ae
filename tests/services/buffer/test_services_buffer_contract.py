"""A buffer database keeps the contract of sources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from frazil.errors import PositionLostError, SlotBusyError, SourceReplacedError
from frazil.sources.protocol import ChangeColumn
from frazil.testing.contract.partitions import LiveContract
from frazil.testing.contract.records import CANARY, RejectContract, planned
from frazil.testing.contract.replay import MOST_WAITS, TIGHT, WAIT_SECONDS, read
from frazil.testing.contract.suite import (
    ITEMS,
    LARGE,
    NOTE,
    ORDERS,
    KeyContract,
    LogContract,
    SourceContract,
    begun,
    insert,
    names,
)
from tests.support.buffer.subject import HISTORY, BufferSubject
from tests.support.buffer.tables import Buffer
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres
    from frazil.testing.contract.under_test import RejectingSource, SourceUnderTest
    from tests.support.postgres.access import Database

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, f"buffer_{uuid4().hex[:10]}") as database:
        Buffer(database).make()
        database.run(HISTORY)
        yield database


def wait_for_lock(subject: BufferSubject) -> None:
    """Until the session that marks events waits for another one."""
    waits = (
        "select count(*) from pg_stat_activity where application_name = 'frazil mark'"
        " and wait_event_type = 'Lock' and datname = current_database()"
    )
    for _ in range(MOST_WAITS):
        if subject.database.ask(waits):
            return
        time.sleep(WAIT_SECONDS)
    raise AssertionError("nothing waits for the row")


class TestBuffer(SourceContract, LogContract, KeyContract, LiveContract, RejectContract):
    """The contract, but for what events in a table have not: transactions and a log of bytes."""

    def test_a_batch_never_splits_a_transaction(self, subject: SourceUnderTest) -> None:
        """Its writer puts every event there in a transaction of its own."""
        capture = begun(subject, ORDERS, ITEMS)
        for number in range(10):
            subject.transact(insert(ORDERS, number), insert(ITEMS, number))
        ids: list[object] = []
        while (batch := capture.next_batch(TIGHT)) is not None:
            rows = capture.commit(batch).rows
            ids += [row[ChangeColumn.ORDINAL] for each in rows.values() for row in each]
        assert len(ids) == len(set(ids)) == 20

    def test_a_table_takes_what_begins_exactly_at_its_marker(
        self, subject: SourceUnderTest
    ) -> None:
        """Positions are batches, which begin behind the marker."""
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1, "before"), insert(ITEMS, 1, "before"))
        batch = planned(capture)
        # Without this, to plan again means that both of them have what was planned.
        capture.restart()
        rows = capture.preview(capture.progress_at(str(batch.end), ORDERS))
        assert ORDERS not in rows
        assert names(rows[ITEMS]) == ["before"]

    def test_the_rows_of_a_transaction_have_one_time_and_one_origin(
        self, subject: SourceUnderTest
    ) -> None:
        """Every event has a position of its own."""
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1), insert(ORDERS, 2))
        capture.catch_up()
        rows = [*capture.received(ORDERS), *capture.received(ITEMS)]
        assert len({(row[ChangeColumn.POSITION], row[ChangeColumn.ORDINAL]) for row in rows}) == 3
        for column in (ChangeColumn.COMMITTED_AT, ChangeColumn.ORIGIN):
            assert all(row[column] is not None for row in rows)

    def test_the_further_a_position_the_less_is_kept_for_it(self, subject: SourceUnderTest) -> None:
        """Events wait for paused tables without a bound: nothing else could give them."""
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, note=LARGE))
        capture.catch_up()
        assert capture.acknowledged is not None
        assert capture.source.kept_since(capture.acknowledged) == 0

    def test_acknowledging_lets_the_source_forget(self, subject: SourceUnderTest) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        old = capture.ledger
        subject.transact(insert(ORDERS, 2))
        capture.catch_up()
        capture.restart()
        with pytest.raises(PositionLostError):
            capture.source.prepare([ORDERS], old)

    def test_a_restart_brings_no_rows_and_then_all_that_is_kept(
        self, subject: SourceUnderTest
    ) -> None:
        """What was processed is gone: no table begins again."""
        begun(subject, ORDERS)
        assert subject.open().plan_copy([ORDERS]) is None

    def test_a_rejected_record_comes_next_to_the_rows_of_its_table(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        subject.transact(insert(ORDERS, 1, "before"), insert(ITEMS, 1))
        subject.reject(ORDERS, CANARY)
        subject.transact(insert(ORDERS, 2, "after"))
        readings = capture.commit(planned(capture))
        assert names(readings.rows[ORDERS]) == ["before", "after"]
        (record,) = readings.rejected
        assert record.table == ORDERS
        assert CANARY in record.payload
        assert "id" in record.message
        assert "canary" not in repr(record)

    def test_a_rejected_record_is_the_same_however_often_it_is_read(
        self, subject: RejectingSource
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        for payload in (b"one", b"two", b"one"):
            subject.reject(ORDERS, payload)
        batch = planned(capture)
        first = read(batch).rejected
        assert len(first) == 3
        assert read(batch, reversed(batch.splits)).rejected == first
        capture.restart()
        assert read(planned(capture)).rejected == first

    def test_what_a_table_rejects_is_left_out_with_its_rows(self, subject: RejectingSource) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        subject.reject(ITEMS, b"later")
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        assert not capture.commit(planned(capture)).rejected
        capture.paused = set()
        (record,) = capture.commit(planned(capture)).rejected
        assert b"later" in record.payload

    def test_a_paused_table_holds_its_own_events_and_no_others(
        self, subject: BufferSubject
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        for number in range(1, 4):
            subject.transact(insert(ORDERS, number), insert(ITEMS, number))
            capture.commit(planned(capture))
        assert capture.next_batch() is None
        held = [("items", False), ("orders", True)]
        assert subject.marked() == held
        # So does a process that comes after it.
        capture.restart()
        subject.transact(insert(ORDERS, 4))
        capture.commit(planned(capture))
        assert capture.next_batch() is None
        assert subject.marked() == held
        capture.paused = set()
        capture.catch_up()
        capture.source.close()
        assert names(capture.received(ITEMS)) == names(capture.received(ORDERS)[:3])
        assert [each for each in subject.marked() if not each[1]] == []
        assert subject.database.ask("select count(*) from frazil_buffer.claims") == 0

    def test_a_table_whose_events_are_all_dead_letters_is_not_read_again_and_again(
        self, subject: BufferSubject
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        subject.transact(insert(ITEMS, 1))
        subject.reject(ORDERS, CANARY)
        # Nothing of it is a row, and the paused table keeps the ledger where it is.
        assert len(capture.commit(planned(capture)).rejected) == 1
        assert capture.next_batch() is None
        assert subject.marked() == [("items", False), ("orders", True)]
        subject.transact(insert(ORDERS, 2, "after"))
        capture.catch_up()
        assert names(capture.received(ORDERS)) == ["after"]

    def test_an_event_that_changes_while_it_is_marked_is_marked(
        self, subject: BufferSubject
    ) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1), insert(ORDERS, 2))
        batch = planned(capture)
        with psycopg.connect(subject.database.dsn.get_secret_value()) as other:
            other.execute("update philotes.cdc_events set metadata = '{}' where id = 1")
            capture.commit(batch)
            wait_for_lock(subject)
            other.commit()
        capture.source.close()
        assert subject.marked() == [("orders", True)]

    def test_a_table_that_dies_between_commit_and_mark_is_marked_by_the_next_process(
        self, subject: BufferSubject
    ) -> None:
        capture = begun(subject, ORDERS, ITEMS)
        capture.paused = {ITEMS}
        subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
        capture.commit(planned(capture))
        capture.restart()
        capture.catch_up()
        assert subject.marked() == [("items", False), ("orders", True)]

    def test_an_old_row_completes_what_an_update_leaves_out(self, subject: BufferSubject) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1, "first", note="kept"))
        subject.write(
            ORDERS,
            "UPDATE",
            {"id": 1, "name": "first", "note": "kept"},
            {"id": 1, "name": "second"},
        )
        # The old row of a replica identity has nulls where it says nothing.
        subject.write(
            ORDERS, "UPDATE", {"id": 1, "name": None, "note": None}, {"id": 1, "name": "third"}
        )
        capture.catch_up()
        rows = capture.received(ORDERS)
        assert [row[NOTE] for row in rows] == ["kept", "kept", None]
        assert [bool(row[ChangeColumn.UNCHANGED]) for row in rows] == [False, False, True]

    def test_another_process_and_another_pipeline_are_kept_out(
        self, subject: BufferSubject
    ) -> None:
        capture = begun(subject, ORDERS)
        other = BufferSubject.__new__(BufferSubject)
        other.__dict__.update(subject.__dict__, pipeline="other", _source=None)
        with pytest.raises(SlotBusyError):
            other.open().discover()
        capture.source.close()
        assert other.open().discover()
        other.close()

    def test_claims_that_are_not_what_they_were_are_refused(self, subject: BufferSubject) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        capture.catch_up()
        ledger = capture.ledger
        capture.source.close()
        subject.database.run("update frazil_buffer.pipelines set last_batch = 0, acknowledged = 0")
        with pytest.raises(SourceReplacedError):
            subject.open().prepare([ORDERS], ledger)
        subject.close()
        subject.database.run("drop schema frazil_buffer cascade")
        with pytest.raises(SourceReplacedError):
            subject.open().prepare([ORDERS], ledger)

    def test_a_batch_is_not_used_once_its_locks_are_lost(self, subject: BufferSubject) -> None:
        capture = begun(subject, ORDERS)
        subject.transact(insert(ORDERS, 1))
        batch = planned(capture)
        batch.check()
        subject.database.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'frazil drain' and datname = current_database()"
        )
        with pytest.raises(Exception, match="locks"):
            batch.check()
        capture.restart()
        capture.catch_up()
        assert len(capture.received(ORDERS)) == 1

    @pytest.fixture
    def subject(self, database: Database) -> Iterator[BufferSubject]:
        subject = BufferSubject(database)
        try:
            yield subject
        finally:
            subject.close()
            Buffer(database).empty()
            database.run("truncate philotes.cdc_schema_history")
