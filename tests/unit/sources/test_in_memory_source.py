"""The in-memory source keeps the contract of sources, and what other tests rely on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from frazil.errors import (
    PositionLostError,
    SourceReplacedError,
    SourceUnavailableError,
    UnrepresentableValueError,
)
from frazil.hooks import ManualClock
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.schema.table_layout import TableLayout
from frazil.model.schema.types import Primitive
from frazil.sources.protocol import ChangeColumn, Limit, Progress
from frazil.testing.contract.copies import WholeReadContract
from frazil.testing.contract.histories import histories, play
from frazil.testing.contract.records import LayoutContract, RejectContract
from frazil.testing.contract.replay import ROOMY, TIGHT, CaptureUnderTest, read
from frazil.testing.contract.suite import (
    COLUMNS,
    ITEMS,
    ORDERS,
    KeyContract,
    LogContract,
    SourceContract,
    begun,
    insert,
)
from frazil.testing.contract.tables import AlterContract, TroubleContract
from frazil.testing.in_memory_database import (
    DeleteRow,
    InMemoryDatabase,
    InsertRow,
    RejectRecord,
    Spoil,
    UpdateRow,
)
from frazil.testing.in_memory_source import InMemorySource
from tests.support.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.model.schema.types import Default
    from frazil.testing.contract.histories import Step
    from frazil.testing.in_memory_database import Change

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class InMemorySubject:
    """The in-memory source under the contract."""

    has_keys = True
    has_copies = True

    def __init__(self, *, tables_at_once: int | None = None) -> None:
        self.clock = ManualClock(NOON)
        self.database = InMemoryDatabase(self.clock)
        self._tables_at_once = tables_at_once

    def open(self) -> InMemorySource:
        return InMemorySource(
            self.database,
            wanted=("shop.*",),
            rows_per_split=2,
            tables_at_once=self._tables_at_once,
            clock=self.clock,
        )

    def add_table(
        self, name: str, columns: Mapping[str, Primitive], key: Sequence[str] = ()
    ) -> None:
        self.database.add_table(name, columns, key)

    def drop_table(self, name: str) -> None:
        self.database.drop_table(name)

    def transact(self, *changes: Change) -> None:
        self.database.transact(*changes)

    def contents(self, table: str) -> list[dict[str, object]]:
        return self.database.contents(table)

    def add_column(
        self, table: str, name: str, type_: Primitive, default: Default | None = None
    ) -> None:
        self.database.add_column(table, name, type_, default)

    def drop_column(self, table: str, name: str) -> None:
        self.database.drop_column(table, name)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        self.database.rename_column(table, name, new_name)

    def widen(self, table: str, name: str, type_: Primitive) -> None:
        self.database.widen(table, name, type_)

    def reject(self, table: str, payload: bytes) -> None:
        self.database.transact(RejectRecord(table, payload))

    def add_records_table(self, name: str, columns: Mapping[str, Primitive]) -> None:
        records = TableLayout(columns=(), required=frozenset())
        self.database.add_table(name, columns, required=columns, layout=records)

    def spoil(self, table: str) -> None:
        self.database.transact(Spoil(table, UnrepresentableValueError("spoilt", table=table)))


@pytest.fixture
def subject() -> InMemorySubject:
    return InMemorySubject()


class TestInMemorySource(
    SourceContract,
    LogContract,
    KeyContract,
    WholeReadContract,
    AlterContract,
    TroubleContract,
    RejectContract,
    LayoutContract,
):
    """All of the contract."""


class TestInMemorySourceTableByTable(WholeReadContract):
    """One that reads a single table at a time."""

    @pytest.fixture
    def subject(self) -> InMemorySubject:
        return InMemorySubject(tables_at_once=1)


@examples(400)
@given(histories)
def test_whatever_happens_every_change_is_captured_once(history: list[Step]) -> None:
    play(InMemorySubject(), history)


def test_a_batch_has_several_splits_to_share(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(*(insert(ORDERS, number) for number in range(5)))
    batch = capture.next_batch()
    assert batch is not None
    assert len(batch.splits) == 3


def test_a_batch_ends_at_its_limit_but_takes_one_transaction_at_least(
    subject: InMemorySubject,
) -> None:
    capture = begun(subject, ORDERS)
    for number in range(0, 9, 3):
        subject.transact(*(insert(ORDERS, number + step) for step in range(3)))
    for limit, count in (
        (Limit(rows=2, bytes=1 << 20), 3),
        (Limit(rows=5, bytes=1 << 20), 3),
        (Limit(rows=6, bytes=1 << 20), 6),
        (Limit(rows=100, bytes=1), 3),
    ):
        batch = capture.next_batch(limit)
        assert batch is not None
        assert len(read(batch).rows[ORDERS]) == count
        capture.source.close()


def test_what_no_table_takes_does_not_count_towards_the_limit(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS)
    subject.add_table("other.audit", COLUMNS, ("id",))
    for number in range(9):
        subject.transact(insert("other.audit", number))
    subject.transact(insert(ORDERS, 1))
    batch = capture.next_batch(TIGHT)
    assert batch is not None
    assert len(read(batch).rows[ORDERS]) == 1


def test_a_batch_that_was_not_committed_is_gone_until_the_source_is_closed(
    subject: InMemorySubject,
) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    assert capture.next_batch() is not None
    assert capture.next_batch() is None
    capture.source.close()
    assert capture.next_batch() is not None


def test_a_dropped_table_with_changes_to_come_fails(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS, ITEMS)
    subject.transact(insert(ORDERS, 1), insert(ITEMS, 1))
    subject.drop_table(ORDERS)
    (batch,) = capture.catch_up()
    assert [each.table for each in batch.failures] == [ORDERS]
    assert [part.table.name for part in batch.parts] == [ITEMS]


def test_changes_that_were_not_requested_move_the_acknowledgement_only(
    subject: InMemorySubject,
) -> None:
    capture = begun(subject, ORDERS)
    subject.add_table("other.audit", COLUMNS, ("id",))
    end = subject.database.transact(insert("other.audit", 1))
    batch = capture.next_batch()
    assert batch is not None
    assert (batch.parts, batch.splits, batch.failures) == ((), (), ())
    assert batch.end == end
    capture.commit(batch)
    assert capture.next_batch() is None


def test_rows_say_when_and_where_they_were_committed(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS)
    begins = capture.markers[ORDERS].position
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    capture.copy(ORDERS)
    change, copied = capture.received(ORDERS)
    assert change[ChangeColumn.COMMITTED_AT] == subject.clock.now()
    assert change[ChangeColumn.ORIGIN] == begins
    assert copied[ChangeColumn.COMMITTED_AT] is None
    assert copied[ChangeColumn.ORIGIN] == capture.markers[ORDERS].position


def test_a_copied_row_is_right_before_the_copys_position(subject: InMemorySubject) -> None:
    subject.add_table(ORDERS, COLUMNS, ("id",))
    subject.transact(insert(ORDERS, 1))
    batch = subject.open().plan_copy([ORDERS])
    assert batch is not None
    (part,) = batch.parts
    assert part.restart is not None
    assert isinstance(part.goal, str)
    assert parse_lsn(part.goal) == part.restart.position + 1


def test_a_call_set_to_fail_fails_once(subject: InMemorySubject) -> None:
    source = subject.open()
    cut = SourceUnavailableError("cut")
    position = format_lsn(subject.database.state.ends)
    calls = (
        source.discover,
        lambda: source.plan(Progress(acknowledged=None), ROOMY),
        lambda: source.plan_copy([ORDERS]),
        lambda: source.prepare([ORDERS], None),
        lambda: source.kept_since(position),
        lambda: source.acknowledge(position),
        source.newest,
    )
    for call in calls:
        source.fail_next(cut)
        # Waiting ends at once when there is something to raise.
        assert source.wait(1.0, ROOMY)
        with pytest.raises(SourceUnavailableError):
            call()
        call()


def test_a_replaced_database_has_another_identity_and_the_same_rows(
    subject: InMemorySubject,
) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    before = capture.ledger
    subject.database.replace()
    assert capture.source.identity != before.source
    assert len(subject.contents(ORDERS)) == 1
    with pytest.raises(SourceReplacedError):
        capture.source.prepare([ORDERS], before)
    capture.source.close()
    with pytest.raises(SourceReplacedError):
        capture.next_batch()


def test_a_fail_over_raises_the_generation_and_the_log_goes_on(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS)
    before = capture.ledger
    subject.database.fail_over()
    subject.transact(insert(ORDERS, 1))
    assert capture.source.generation == before.epoch + 1
    assert capture.source.prepare([ORDERS], before) == before.position
    with pytest.raises(SourceReplacedError):
        capture.source.prepare([ORDERS], replace(before, epoch=before.epoch + 2))
    capture.catch_up()
    capture.expect_the_truth()


def test_a_lost_log_is_reported_and_begins_again_where_the_database_is(
    subject: InMemorySubject,
) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    subject.database.lose_log()
    with pytest.raises(PositionLostError) as lost:
        capture.source.prepare([ORDERS], capture.ledger)
    assert lost.value.next_step is not None
    with pytest.raises(PositionLostError):
        capture.next_batch()
    again = CaptureUnderTest(subject)
    again.begin(ORDERS)
    assert again.acknowledged == again.source.newest()
    again.expect_the_truth()


def test_a_column_may_have_been_filled_without_a_message(subject: InMemorySubject) -> None:
    subject.add_table(ORDERS, COLUMNS, ("id",))
    subject.database.add_column(ORDERS, "drawn", Primitive.LONG, rewrote=True)
    (table,) = subject.open().discover()
    assert [each.name for each in table.columns if each.rewrote] == ["drawn"]


def test_a_transaction_that_is_refused_has_not_happened(subject: InMemorySubject) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    before = subject.database.state
    for wrong in (
        insert(ORDERS, 1),
        InsertRow(ORDERS, {"name": "no key"}),
        UpdateRow(ORDERS, (1,), {"note": "sent"}, unsent=("note",)),
        InsertRow(ORDERS, {"id": "text"}),
    ):
        with pytest.raises((ValueError, TypeError)):
            subject.transact(insert(ORDERS, 2), wrong)
    with pytest.raises(KeyError):
        subject.transact(insert(ORDERS, 2), DeleteRow(ORDERS, (3,)))
    assert subject.database.state == before
    capture.catch_up()
    capture.expect_the_truth()


def test_alterations_that_make_no_sense_are_refused(subject: InMemorySubject) -> None:
    database = subject.database
    database.add_table(ORDERS, COLUMNS, ("id",))
    with pytest.raises(ValueError, match="already"):
        database.add_table(ORDERS, COLUMNS)
    with pytest.raises(ValueError, match="key"):
        database.drop_column(ORDERS, "id")
    with pytest.raises(ValueError, match="one name"):
        database.rename_column(ORDERS, "name", "note")
    with pytest.raises(KeyError):
        database.rename_column(ORDERS, "no such column", "x")
    with pytest.raises(KeyError):
        database.drop_table(ITEMS)


def test_positions_by_partition_are_those_of_another_source(subject: InMemorySubject) -> None:
    with pytest.raises(TypeError):
        subject.open().kept_since({"0": 1})


def test_other_values_than_numbers_and_texts_are_kept_as_they_are(
    subject: InMemorySubject,
) -> None:
    columns = {
        "id": Primitive.UUID,
        "at": Primitive.TIMESTAMPTZ,
        "day": Primitive.DATE,
        "share": Primitive.FLOAT,
        "data": Primitive.BINARY,
    }
    subject.add_table(ORDERS, columns, ("id",))
    capture = CaptureUnderTest(subject)
    capture.begin(ORDERS)
    values = {"id": bytes(16), "at": NOON, "day": NOON.date(), "share": 0.1, "data": b"\x00"}
    subject.transact(InsertRow(ORDERS, values))
    subject.database.add_column(ORDERS, "since", Primitive.DATE, default="2020-01-01")
    subject.database.widen(ORDERS, "share", Primitive.DOUBLE)
    subject.transact(InsertRow(ORDERS, {**values, "id": bytes([1] * 16)}))
    capture.catch_up()
    capture.expect_the_truth()
