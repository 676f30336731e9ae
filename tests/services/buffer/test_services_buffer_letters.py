"""Dead letters, retention and back-pressure in a buffer database."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.errors import MalformedChangeError, SourceUnavailableError
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.sources.buffer.dead_letters import (
    BufferLetterStore,
    LetterPolicy,
    expect_letters,
    keep_letters,
    settle_letters,
)
from frazil.sources.buffer.own_tables import ensure_own_tables
from frazil.sources.buffer.relations import BufferRelations
from frazil.sources.buffer.settings import TableChoice
from frazil.sources.buffer.upkeep.backpressure import (
    BackpressureMarks,
    Drained,
    WaterMarks,
    count_pending,
)
from frazil.sources.buffer.upkeep.retention import CleanupReport, RetentionCleanup, clean_up
from tests.support.buffer.tables import SCHEMA, Buffer
from tests.support.postgres.access import database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.session import Session
    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

RELATIONS = BufferRelations()
WEEK = timedelta(hours=168)
KEPT = LetterPolicy(enabled=True, retention=WEEK)


@pytest.fixture(scope="module")
def made(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, "buffer_letters") as database:
        buffer = Buffer(database)
        buffer.make()
        yield buffer


@pytest.fixture
def buffer(made: Buffer) -> Buffer:
    made.empty()
    return made


@pytest.fixture
def session(buffer: Buffer) -> Iterator[Session]:
    with connect(buffer.database.dsn, purpose="test", access=SessionAccess.READ_WRITE) as opened:
        ensure_own_tables(opened, RELATIONS)
        yield opened


def rejected(event: int, reason: RejectReason = RejectReason.INVALID) -> RejectedRecord:
    return RejectedRecord(
        table="public.orders",
        offset=event,
        reason=reason,
        message=f"column total: {reason.value}.",
        payload=b"",
    )


def claim(buffer: Buffer, batch: int, *events: int) -> None:
    """As a batch takes them."""
    runs = ", ".join(f"int8range({each}, {each}, '[]')" for each in events)
    bounds = f"{min(events)}, {max(events)}"
    buffer.database.run(
        f"insert into {RELATIONS.claimed_batches} values "
        f"('drain', {batch}, int8multirange({runs}))",
        f"insert into {RELATIONS.claimed_tables} values "
        f"('drain', {batch}, 'shop', 'public', 'orders', {len(events)}, 1, {bounds})",
    )


def land(buffer: Buffer, session: Session, batch: int) -> None:
    """As an acknowledged batch leaves them."""
    buffer.database.run(
        f"update {SCHEMA}.cdc_events set processed_at = now() where id in "
        f"(select event_id from {RELATIONS.claims} where batch = {batch})",
        f"delete from {RELATIONS.claimed_batches} where batch = {batch}",
        f"delete from {RELATIONS.claimed_tables} where batch = {batch}",
    )
    settle_letters(session, RELATIONS)


def test_a_letter_has_all_of_its_event_and_nothing_of_it_in_its_message(
    buffer: Buffer, session: Session
) -> None:
    buffer.add(2, after={"id": 7, "total": "12345678901234567890.123", "note": "a secret value"})
    keep_letters(session, RELATIONS, [rejected(2)], KEPT)
    (letter,) = buffer.rows(f"select * from {SCHEMA}.dead_letter_events")
    assert letter["original_event_id"] == 2
    assert (letter["source_id"], letter["schema_name"], letter["table_name"]) == (
        "shop", "public", "orders",
    )  # fmt: skip
    assert (letter["operation"], letter["error_type"]) == ("INSERT", "invalid")
    assert letter["error_message"] == "column total: invalid."
    assert (letter["retry_count"], letter["last_retry_at"]) == (0, None)
    assert letter["event_data"] == {
        "id": 2,
        "lsn": "0/2",
        "transaction_id": 2,
        "timestamp": "2026-01-02T03:04:07.000006+00:00",
        "schema": "public",
        "table": "orders",
        "operation": "INSERT",
        "before": None,
        "after": {"id": 7, "total": "12345678901234567890.123", "note": "a secret value"},
        "key_columns": ["id"],
        "metadata": None,
    }
    lifetime = (
        f"select extract(epoch from expires_at - created_at) from {SCHEMA}.dead_letter_events"
    )
    assert float(buffer.ask(lifetime)) == WEEK.total_seconds()


def test_a_batch_that_is_repeated_writes_its_letters_once(buffer: Buffer, session: Session) -> None:
    buffer.add(3)
    keep_letters(session, RELATIONS, [rejected(1), rejected(3)], KEPT)
    keep_letters(session, RELATIONS, [rejected(1, RejectReason.POISON), rejected(2)], KEPT)
    found = buffer.rows(
        f"select original_event_id as event, error_type as reason from "
        f"{SCHEMA}.dead_letter_events order by 1"
    )
    assert [(each["event"], each["reason"]) for each in found] == [
        (1, "poison"), (2, "invalid"), (3, "invalid"),
    ]  # fmt: skip


def test_letters_that_cannot_be_written_fail_their_batch(buffer: Buffer, session: Session) -> None:
    buffer.add(2)
    with pytest.raises(SourceUnavailableError, match="event 9 is not in the buffer any more"):
        keep_letters(session, RELATIONS, [rejected(1), rejected(9)], KEPT)
    assert buffer.letters() == 0
    off = LetterPolicy(enabled=False, retention=WEEK)
    with pytest.raises(MalformedChangeError, match=r"event 1 .* switched off"):
        keep_letters(session, RELATIONS, [rejected(1)], off)
    buffer.database.run(f"alter table {SCHEMA}.dead_letter_events rename to hidden")
    try:
        with pytest.raises(errors.PermissionError, match="writing dead letters"):
            keep_letters(session, RELATIONS, [rejected(1)], KEPT)
    finally:
        buffer.database.run(f"alter table {SCHEMA}.hidden rename to dead_letter_events")


def test_letters_are_listed_shown_and_dropped(buffer: Buffer, session: Session) -> None:
    buffer.add(2)
    buffer.add(1, table="users")
    buffer.add(1, source_id="other")
    records = [rejected(1), rejected(2, RejectReason.POISON), rejected(3), rejected(4)]
    keep_letters(session, RELATIONS, records, KEPT)
    store = BufferLetterStore(session, RELATIONS, ["shop"])
    listed = {each.id: each for each in store.letters()}
    assert [each.position for each in listed.values()] == ["1", "2", "3"]
    assert [each.table for each in store.letters(table="public.users")] == ["public.users"]
    assert [each.position for each in store.letters(reason="poison")] == ["2"]
    assert not list(store.letters(ids=["word", "99"]))
    first, second, third = listed
    assert (listed[first].attempts, listed[first].source) == (1, "shop")
    payload = store.payloads([first])[first]
    assert b"a secret value" in payload
    assert listed[first].payload_bytes == len(payload)
    store.drop([first, third])
    assert [each.id for each in store.letters()] == [second]
    # Whoever drains all sources has those of all.
    assert len(list(BufferLetterStore(session, RELATIONS).letters())) == 2


def test_a_replayed_event_is_pending_until_it_lands_and_then_has_no_letter(
    buffer: Buffer, session: Session
) -> None:
    buffer.add(2, processed="now()")
    keep_letters(session, RELATIONS, [rejected(1), rejected(2)], KEPT)
    store = BufferLetterStore(session, RELATIONS)
    (one, two) = [each.id for each in store.letters()]
    buffer.database.run(
        f"update {SCHEMA}.dead_letter_events set "
        """event_data = jsonb_set(event_data, '{after}', '{"id": 5}') """
        f"where id = {one}"
    )
    assert store.replay([one]) == {one}
    # An operator corrects letters, not events.
    assert buffer.ask(f"select after_data from {SCHEMA}.cdc_events where id = 1") == {"id": 5}
    assert buffer.events("processed_at is null and id = 1") == 1
    # Asked again, it is the same attempt.
    assert store.replay([one]) == {one}
    assert [each.attempts for each in store.letters()] == [2, 1]
    assert buffer.letters("last_retry_at is not null") == 1
    claim(buffer, 5, 1)
    assert store.replay([one]) == {one}
    expect_letters(session, RELATIONS, 5)
    # Before it is processed, nothing is settled.
    assert settle_letters(session, RELATIONS) == 0
    land(buffer, session, 5)
    assert [each.id for each in BufferLetterStore(session, RELATIONS).letters()] == [two]
    assert buffer.events("processed_at is null") == 0


def test_an_event_that_is_rejected_again_keeps_its_letter(buffer: Buffer, session: Session) -> None:
    buffer.add(1, processed="now()")
    keep_letters(session, RELATIONS, [rejected(1)], KEPT)
    store = BufferLetterStore(session, RELATIONS)
    (letter,) = store.letters()
    store.replay([letter.id])
    claim(buffer, 6, 1)
    expect_letters(session, RELATIONS, 6)
    keep_letters(session, RELATIONS, [rejected(1, RejectReason.UNREPRESENTABLE)], KEPT)
    land(buffer, session, 6)
    (again,) = BufferLetterStore(session, RELATIONS).letters()
    assert (again.id, again.attempts, again.reason) == (letter.id, 2, "unrepresentable")
    assert store.replay([letter.id]) == {letter.id}


def test_an_event_that_lands_when_its_batch_is_repeated_leaves_no_letter(
    buffer: Buffer, session: Session
) -> None:
    buffer.add(2)
    claim(buffer, 1, 1, 2)
    expect_letters(session, RELATIONS, 1)
    keep_letters(session, RELATIONS, [rejected(1), rejected(2)], KEPT)
    # The process ends here; the next one has other settings, and only the second is rejected.
    expect_letters(session, RELATIONS, 1)
    keep_letters(session, RELATIONS, [rejected(2)], KEPT)
    land(buffer, session, 1)
    left = BufferLetterStore(session, RELATIONS).letters()
    assert [each.position for each in left] == ["2"]


def test_events_that_are_gone_are_made_again_from_their_letters(
    buffer: Buffer, session: Session
) -> None:
    buffer.add(1, processed="now()")
    as_added = buffer.rows(f"select * from {SCHEMA}.cdc_events")
    keep_letters(session, RELATIONS, [rejected(1)], KEPT)
    buffer.database.run(
        f"delete from {SCHEMA}.cdc_events",
        # As the writer of the buffer leaves them: one that knows its event's change, one that not.
        f"insert into {SCHEMA}.dead_letter_events (source_id, schema_name, table_name, operation, "
        "event_data, error_message) select source_id, schema_name, table_name, operation, "
        f"event_data, 'boom' from {SCHEMA}.dead_letter_events",
        f"insert into {SCHEMA}.dead_letter_events (source_id, schema_name, table_name, operation, "
        "event_data, error_message) values ('shop', 'public', 'orders', 'INSERT', '{}', 'boom')",
    )
    store = BufferLetterStore(session, RELATIONS)
    ours, foreign, empty = [each.id for each in store.letters()]
    assert store.replay([ours, foreign, empty]) == {ours, foreign}
    made = buffer.rows(f"select * from {SCHEMA}.cdc_events order by id")
    assert [each["id"] for each in made] == [1, 2]
    left_out = {"created_at", "processed_at", "id"}
    for event in made:
        assert event["processed_at"] is None
        assert {k: v for k, v in event.items() if k not in left_out} == {
            k: v for k, v in as_added[0].items() if k not in left_out
        }


def test_only_what_is_processed_and_old_enough_is_deleted(buffer: Buffer, session: Session) -> None:
    buffer.add(5, processed="now() - interval '169 h'")
    buffer.add(2, processed="now() - interval '167 h'")
    buffer.add(1)
    buffer.add(1, source_id="other", processed="now() - interval '169 h'")
    claim(buffer, 3, 5)
    keep_letters(session, RELATIONS, [rejected(6), rejected(7), rejected(8)], KEPT)
    buffer.database.run(
        f"update {SCHEMA}.dead_letter_events set expires_at = now() - interval '1 s' "
        "where original_event_id in (6, 8)"
    )
    report = clean_up(session, RELATIONS, WEEK, ["shop"], portion=3)
    assert report == CleanupReport(events=4, letters=1)
    left = buffer.rows(f"select id from {SCHEMA}.cdc_events order by id")
    # One belongs to a batch, two are young, one is pending, one is another's.
    assert [each["id"] for each in left] == [5, 6, 7, 8, 9]
    # That of a pending event may still be needed.
    left = buffer.rows(
        f"select original_event_id as id from {SCHEMA}.dead_letter_events order by id"
    )
    assert [each["id"] for each in left] == [7, 8]
    chore = RetentionCleanup(
        buffer.database.dsn, RELATIONS, retention=WEEK, interval=timedelta(hours=1)
    )
    chore.run()
    chore.close()
    assert chore.seconds == 3600
    assert buffer.events("source_id = 'other'") == 0


def test_a_buffer_without_dead_letters_needs_no_table_of_them(
    buffer: Buffer, session: Session
) -> None:
    without = BufferRelations(letters_table="nowhere", has_letters=False)
    buffer.add(1, processed="now() - interval '169 h'")
    expect_letters(session, without, 1)
    assert settle_letters(session, without) == 0
    assert clean_up(session, without, WEEK) == CleanupReport(events=1, letters=0)


def test_writers_see_whether_the_buffer_is_full(buffer: Buffer, session: Session) -> None:
    def marks() -> BackpressureMarks:
        return BackpressureMarks(
            buffer.database.dsn,
            RELATIONS,
            WaterMarks(high=8, low=5),
            pipeline="drain",
            interval=timedelta(seconds=1),
            drained=Drained(("shop",)),
        )

    def said(chore: BackpressureMarks) -> tuple[str, int]:
        chore.run()
        (row,) = buffer.rows("select * from frazil_buffer.backpressure")
        assert (row["pipeline"], row["source_ids"], row["high"], row["low"]) == (
            "drain", ["shop"], 8, 5,
        )  # fmt: skip
        return row["state"], row["pending"]

    chore = marks()
    buffer.add(7)
    buffer.add(20, source_id="other")
    assert said(chore) == ("running", 7)
    changed = buffer.ask("select changed_at from frazil_buffer.backpressure")
    buffer.add(13)
    # It is not counted further.
    assert said(chore) == ("paused", 9)
    assert buffer.ask("select changed_at from frazil_buffer.backpressure") != changed
    buffer.database.run(f"update {SCHEMA}.cdc_events set processed_at = now() where id % 3 > 0")
    assert said(chore) == ("paused", 6)
    chore.close()
    # A process that begins between the marks goes on with what was said.
    chore = marks()
    assert said(chore) == ("paused", 6)
    buffer.database.run(f"update {SCHEMA}.cdc_events set processed_at = now() where id = 3")
    assert said(chore) == ("running", 5)
    chore.close()
    assert count_pending(session, RELATIONS, Drained(), most=100) == 12
    buffer.add(3, table="users")
    users = Drained((), TableChoice(include=("public.u*",)))
    assert count_pending(session, RELATIONS, users, most=100) == 3
    assert count_pending(session, RELATIONS, users, most=2) == 2


def test_a_count_of_pending_events_reads_no_processed_one(buffer: Buffer) -> None:
    buffer.add(20_000, processed="now()")
    buffer.add(10)
    buffer.database.run(f"vacuum analyze {SCHEMA}.cdc_events")
    buffer.database.run("select pg_stat_reset()")
    with connect(buffer.database.dsn, purpose="test") as session:
        assert count_pending(session, RELATIONS, Drained(), most=8) == 8
        assert count_pending(session, RELATIONS, Drained(("shop",)), most=8) == 8
        session.execute("select pg_stat_force_next_flush()", doing="flushing")
    scanned = "select seq_tup_read from pg_stat_user_tables where relname = 'cdc_events'"
    assert buffer.ask(scanned) == 0
