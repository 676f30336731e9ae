"""A server with another history than the one that was captured is refused, however alike it is."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from frazil.clients.postgres.catalog_facts import load_slot
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.session import Session
from frazil.demo.services import embedded_postgres
from frazil.errors import SlotBusyError, SourceReplacedError, SourceUnavailableError
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.sources.postgres import source
from frazil.sources.postgres.slot import watch
from frazil.sources.postgres.source import PostgresSource
from frazil.testing.contract.replay import TIGHT
from frazil.testing.contract.suite import ORDERS, begun, insert
from frazil.testing.in_memory_database import InsertRow
from tests.support.postgres.access import database_on
from tests.support.postgres.subject import PostgresSubject
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from frazil.testing.contract.replay import CaptureUnderTest

pytestmark = pytest.mark.services

ITEMS = "shop.items"


@pytest.fixture(scope="module", params=sampled([16, 18], ci={18}))
def server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    with embedded_postgres(version=request.param) as started:
        yield started


@pytest.fixture
def subject(server: Postgres, tmp_path: Path) -> Iterator[PostgresSubject]:
    with database_on(server, f"history_{uuid4().hex[:10]}") as database:
        opened = PostgresSubject(database, tmp_path)
        try:
            yield opened
        finally:
            opened.close()
            with suppress(psycopg.Error):
                database.run(f"select pg_drop_replication_slot('{opened.slot}')")


def checkpoint(subject: PostgresSubject) -> None:
    """The server writes down where its slots were confirmed."""
    subject.database.run("checkpoint")


def grow(subject: PostgresSubject, size: int = 300_000) -> None:
    """More log; in a transaction, whose commit brings it to the disk."""
    subject.database.run(f"select pg_logical_emit_message(true, 'noise', repeat('x', {size}))")


def take_snapshot(server: Postgres, folder: Path) -> Path:
    """A copy of the volume, as it is when the server is cut off from it."""
    server.kill()
    copy = folder / "volume"
    subprocess.run(["cp", "-a", server.data, copy], check=True)
    server.restart()
    return copy


def restore(server: Postgres, copy: Path) -> None:
    server.stop()
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", copy, server.data], check=True)
    server.restart()


def promote(server: Postgres) -> None:
    """Start as a server that took over."""
    server.stop()
    (server.data / "recovery.signal").touch()
    server.restart()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        # It answers questions before it is done.
        connection.execute(
            "do $$ begin while pg_is_in_recovery() loop perform pg_sleep(0.02); end loop; end $$"
        )


def reopen(capture: CaptureUnderTest) -> None:
    """As a process does whose connection was lost."""
    capture.source.close()
    capture.restart()


def test_a_server_that_crashed_is_gone_on_with(server: Postgres, subject: PostgresSubject) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    checkpoint(subject)
    # What is confirmed from here on is forgotten by the crash.
    for number in (2, 3):
        subject.transact(insert(ORDERS, number))
        capture.catch_up()
    capture.source.close()
    server.kill()
    server.restart()
    capture.restart()
    subject.transact(insert(ORDERS, 4))
    capture.catch_up()
    capture.expect_the_truth()
    assert len(capture.received(ORDERS)) == 4


@pytest.mark.fault("O6", "N56")
@pytest.mark.parametrize("is_known", [True, False])
def test_what_another_process_reads_is_not_prepared_and_nothing_of_it_is_changed(
    subject: PostgresSubject, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    monkeypatch.setattr(source, "_SLOT_PATIENCE_SECONDS", 0.2)
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    subject.database.run(f"create table {ITEMS} (id bigint primary key)")
    # Configured alike, in another process.
    second = PostgresSource(subject.settings)
    published = "select string_agg(tablename, ' ') from pg_publication_tables"
    before = subject.database.ask(published)
    with pytest.raises(SlotBusyError, match=r"is read by process \d+"):
        second.prepare([ITEMS], capture.ledger if is_known else None)
    assert subject.database.ask(published) == before
    # The one that reads it may prepare what is its own.
    capture.source.prepare([ORDERS, ITEMS], capture.ledger, capture.reached)
    assert subject.database.ask(published) != before
    subject.transact(insert(ORDERS, 2))
    capture.catch_up()
    capture.expect_the_truth()


@pytest.mark.fault("N45")
def test_an_unread_slot_moves_on_and_never_back(subject: PostgresSubject) -> None:
    capture = begun(subject, ORDERS)
    early = capture.acknowledged
    capture.source.close()
    grow(subject)
    newest = capture.source.newest()
    for position in (newest, str(early), newest):
        capture.source.acknowledge(position)
        assert confirmed(subject) == parse_lsn(str(newest))


@pytest.mark.fault("N45")
def test_an_advance_that_is_cancelled_goes_on_where_it_came_to(
    subject: PostgresSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a long log takes longer than a statement may, however often it is repeated."""
    capture = begun(subject, ORDERS)
    capture.source.close()
    for _ in range(4):
        grow(subject)
    monkeypatch.setattr(watch, "_STRIDE_BYTES", 300_000)
    statements, load = [], Session.load

    def cancelled(session: Session, kind: type, query: str, *rest: Any, doing: str) -> list[Any]:
        if "slot_advance" in query:
            statements.append(query)
            if len(statements) == 3:
                raise SourceUnavailableError("canceling statement due to statement timeout.")
        return load(session, kind, query, *rest, doing=doing)

    monkeypatch.setattr(Session, "load", cancelled)
    begins, newest = confirmed(subject), parse_lsn(str(capture.source.newest()))
    with pytest.raises(SourceUnavailableError):
        capture.source.acknowledge(format_lsn(newest))
    assert begins < confirmed(subject) < newest
    capture.source.acknowledge(format_lsn(newest))
    assert confirmed(subject) == newest


def confirmed(subject: PostgresSubject) -> int:
    with connect(subject.database.dsn, purpose="test") as session:
        slot = load_slot(session, subject.slot)
    assert slot is not None
    assert slot.confirmed_flush is not None
    return slot.confirmed_flush


@pytest.mark.fault("N34")
def test_a_volume_that_was_set_back_is_refused_once_its_log_has_grown(
    server: Postgres, subject: PostgresSubject, tmp_path: Path
) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    capture.source.close()
    checkpoint(subject)
    copy = take_snapshot(server, tmp_path)
    reopen(capture)
    subject.transact(insert(ORDERS, 2))
    capture.catch_up()
    capture.source.close()
    restore(server, copy)
    # Rows of another history, some of them before our position.
    subject.transact(insert(ORDERS, 22))
    grow(subject)
    subject.transact(insert(ORDERS, 23))
    for _ in range(2):
        with pytest.raises(SourceReplacedError, match=r"restored.*resync --all"):
            capture.restart()


@pytest.mark.fault("N34")
def test_a_volume_set_back_in_an_idle_time_is_refused_for_what_it_has_more(
    server: Postgres, subject: PostgresSubject, tmp_path: Path
) -> None:
    """What it lacks no one captured; what it has instead would be skipped."""
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    capture.source.close()
    checkpoint(subject)
    copy = take_snapshot(server, tmp_path)
    reopen(capture)
    before, idle_to = capture.acknowledged, capture.acknowledged
    grow(subject)
    while idle_to == before:
        capture.catch_up()
        capture.source.wait(0.1, TIGHT)
        idle_to = capture.acknowledged
    capture.source.close()
    restore(server, copy)
    subject.transact(insert(ORDERS, 22))
    grow(subject, 600_000)
    with pytest.raises(SourceReplacedError, match=r"was not there when it was read"):
        capture.restart()
    assert capture.acknowledged == idle_to


def test_a_volume_set_back_after_all_that_was_captured_is_gone_on_with(
    server: Postgres, subject: PostgresSubject, tmp_path: Path
) -> None:
    capture = begun(subject, ORDERS)
    subject.transact(insert(ORDERS, 1))
    capture.catch_up()
    capture.source.close()
    copy = take_snapshot(server, tmp_path)
    subject.transact(insert(ORDERS, 2))
    restore(server, copy)
    subject.transact(insert(ORDERS, 3))
    capture.restart()
    capture.catch_up()
    capture.expect_the_truth()


@pytest.mark.fault("N34")
def test_a_transaction_is_found_again_though_its_table_left_the_publication(
    server: Postgres, subject: PostgresSubject
) -> None:
    subject.add_table(ITEMS, {}, ())
    subject.database.run(f"alter table {ITEMS} add column id bigint primary key")
    capture = begun(subject, ORDERS)
    capture.begin(ITEMS)
    checkpoint(subject)
    subject.transact(InsertRow(ITEMS, {"id": 1}))
    capture.catch_up()
    subject.database.run(f"alter publication {subject.slot} drop table {ITEMS}")
    capture.source.close()
    server.kill()
    server.restart()
    capture.restart()


@pytest.mark.fault("N33")
def test_a_fail_over_that_lacks_what_only_one_table_has_is_refused(
    server: Postgres, subject: PostgresSubject, tmp_path: Path
) -> None:
    capture = begun(subject, ORDERS)
    subject.database.run(
        f"create table {ITEMS} (id bigint primary key)",
        "alter system set restore_command to 'false'",
    )
    capture.begin(ITEMS)
    capture.paused.add(ITEMS)
    capture.source.close()
    checkpoint(subject)
    copy = take_snapshot(server, tmp_path)
    reopen(capture)
    before = capture.acknowledged
    subject.transact(insert(ORDERS, 2))
    capture.catch_up()
    assert capture.acknowledged == before
    capture.source.close()
    restore(server, copy)
    promote(server)
    grow(subject)
    # The ledger of a version that kept no witness: the markers alone have to decide.
    capture.witness = None
    ledger = capture.ledger
    capture.source.close()
    source = subject.open()
    first_timeline = ledger.epoch - 1
    with pytest.raises(SourceReplacedError, match="another history"):
        source.prepare([ORDERS, ITEMS], replace(ledger, epoch=first_timeline), capture.reached)
