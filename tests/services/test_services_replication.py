"""Slots and streams of real servers: what comes, what is confirmed, and how it ends."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from frazil import errors
from frazil.clients.postgres.catalog_facts import load_server, load_slot
from frazil.clients.postgres.replication import connect_replication
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
)
from frazil.codec.pgoutput.replication_frames import Keepalive
from frazil.demo.services import embedded_postgres
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from tests.support.faults.proxy import TcpProxy
from tests.support.postgres.access import PATIENCE_SECONDS, Database, Secret, database_on, frames
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

PUBLICATION = 'odd "name", with commas'


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "stream") as made:
        quoted = '"' + PUBLICATION.replace('"', '""') + '"'
        made.run(
            "create table item (id int primary key, word text)",
            f"create publication {quoted} for table item",
        )
        yield made


@pytest.fixture
def slot(database: Database, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"slot_{abs(hash(request.node.name)) % 10**8}"
    with connect_replication(database.dsn, purpose="test") as connection:
        connection.create_slot(name)
    yield name
    with connect_replication(database.dsn, purpose="test") as connection:
        connection.drop_slot(name, wait=True)


def test_a_server_says_who_it_is_in_both_languages(database: Database) -> None:
    with connect_replication(database.dsn, purpose="test") as connection:
        identity = connection.identify()
    with database.session() as session:
        server = load_server(session)
    assert identity.system_identifier == server.system_identifier
    assert identity.timeline == server.timeline
    assert identity.database == server.database == "stream"
    assert identity.log_end > 0


def test_a_slot_lives_from_its_creation_to_its_end(database: Database) -> None:
    with connect_replication(database.dsn, purpose="test") as connection:
        created = connection.create_slot("life", failover=True)
        with database.session() as session:
            facts = load_slot(session, "life")
            assert facts is not None
            assert facts.plugin == "pgoutput"
            assert facts.database == "stream"
            assert facts.confirmed_flush == created.consistent_point
            assert not facts.is_temporary
            assert not facts.is_active
            assert not facts.is_lost
            assert facts.is_failover == (connection.server_version >= 170000)
            with pytest.raises(errors.PermissionError, match="DuplicateObject"):
                connection.create_slot("life")
            connection.drop_slot("life")
            assert load_slot(session, "life") is None
        with pytest.raises(errors.PositionLostError):
            connection.drop_slot("life")
        with pytest.raises(errors.PositionLostError):
            connection.stream("life", after=0, publications=[PUBLICATION])
        connection.create_slot("brief", temporary=True)
    with database.session() as session:
        # The server notices the end of a connection a moment later.
        wait_until(lambda: load_slot(session, "brief") is None)


def test_changes_arrive_as_they_were_made(database: Database, slot: str) -> None:
    with database.streaming(slot, PUBLICATION) as stream:
        database.run(
            "insert into item values (1, 'ice')",
            "update item set word = 'frazil' where id = 1",
            "delete from item where id = 1",
            "truncate item",
        )
        messages = database.read_to_now(stream)
    # A TRUNCATE gives the table new files, and the server then describes it again.
    inside = [type(each) for each in messages if not isinstance(each, Begin | Commit | Relation)]
    assert inside == [Insert, Update, Delete, Truncate]
    assert isinstance(messages[1], Relation)
    begins = [each.final_lsn for each in messages if isinstance(each, Begin)]
    assert begins == sorted(begins)
    assert len(begins) == 4


def test_a_stream_continues_after_what_was_confirmed(database: Database, slot: str) -> None:
    with database.streaming(slot, PUBLICATION) as stream:
        database.run(
            "insert into item values (10, 'first')", "insert into item values (11, 'next')"
        )
        messages = database.read_to_now(stream)
        first, second = (each for each in messages if isinstance(each, Commit))
        stream.confirm(first.end_lsn)
        stream.confirm(0)
        assert stream.confirmed == first.end_lsn
        wait_for_confirmed(database, slot, first.end_lsn)
    with database.streaming(slot, PUBLICATION) as stream:
        commits = [each for each in database.read_to_now(stream) if isinstance(each, Commit)]
    assert commits[0] == second


def wait_for_confirmed(database: Database, slot: str, lsn: int) -> None:
    query = f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = parse_lsn(str(database.ask(query)))
        if found == lsn:
            return
        assert found < lsn, "more was confirmed than wanted"
        time.sleep(0.02)
    message = f"{slot} did not come to {format_lsn(lsn)}"
    raise AssertionError(message)


def test_keepalives_advance_on_a_server_where_nothing_is_published(
    database: Database, slot: str
) -> None:
    with database.streaming(slot, PUBLICATION) as stream:
        database.run("create table other (id int)", "insert into other values (1)")
        end = parse_lsn(str(database.ask("select pg_current_wal_lsn()::text")))
        reached = next(
            each.end_lsn
            for each in frames(stream)
            if isinstance(each, Keepalive) and each.end_lsn >= end
        )
        stream.confirm(reached)
        wait_for_confirmed(database, slot, reached)
    database.run("drop table other")


def test_an_answer_alone_confirms_nothing(database: Database, slot: str) -> None:
    with database.session() as session:
        before = load_slot(session, slot)
        with database.streaming(slot, PUBLICATION) as stream:
            database.run("insert into item values (20, 'pending')")
            database.read_to_now(stream)
            stream.keep_alive()
            stream.receive(0.1)
            after = load_slot(session, slot)
        assert before is not None
        assert after is not None
        assert after.confirmed_flush == before.confirmed_flush


def test_a_server_that_is_impatient_is_answered(database: Database, slot: str) -> None:
    impatient = Secret(f"{database.dsn.value}?options=-c%20wal_sender_timeout%3D4000")
    connection = connect_replication(impatient, purpose="test")
    with (
        closing(connection),
        connection.stream(slot, after=0, publications=[PUBLICATION]) as stream,
    ):
        # Who receives answers by the way.
        assert any(isinstance(each, Keepalive) and each.wants_reply for each in frames(stream))
        # A reader that has no space for more must send status updates.
        for _ in range(25):
            time.sleep(0.2)
            stream.keep_alive()
        database.read_to_now(stream)
        time.sleep(6)
        with pytest.raises(errors.SourceUnavailableError):
            list(frames(stream))


def test_a_slot_that_is_read_is_busy(database: Database, slot: str) -> None:
    with (
        database.streaming(slot, PUBLICATION),
        connect_replication(database.dsn, purpose="test") as second,
    ):
        with pytest.raises(errors.SlotBusyError) as caught:
            second.stream(slot, after=0, publications=[PUBLICATION])
        assert recovery_for(caught.value).action is RecoveryAction.LATER
        with pytest.raises(errors.SlotBusyError):
            second.drop_slot(slot)


def test_a_reader_that_is_terminated_may_try_again(database: Database, slot: str) -> None:
    connection = connect_replication(database.dsn, purpose="test")
    with (
        closing(connection),
        connection.stream(slot, after=0, publications=[PUBLICATION]) as stream,
    ):
        database.run(f"select pg_terminate_backend({connection.backend}, 5000)")
        with pytest.raises(errors.SourceUnavailableError, match="57P01") as caught:
            list(frames(stream))
        assert recovery_for(caught.value).action is RecoveryAction.LATER
        with pytest.raises(errors.SourceUnavailableError):
            stream.confirm(1)
        with pytest.raises(errors.SourceUnavailableError):
            stream.receive(0.1)


def test_a_cut_network_is_an_error_and_what_had_arrived_is_not_lost(
    database: Database, slot: str
) -> None:
    with TcpProxy(database.server.host, database.server.port) as proxy:
        dsn = database.dsn_of(database.server.user, database.server.password, port=proxy.port)
        connection = connect_replication(dsn, purpose="test")
        with (
            closing(connection),
            connection.stream(slot, after=0, publications=[PUBLICATION]) as stream,
        ):
            database.run("insert into item values (30, 'before the cut')")
            database.read_to_now(stream)
            proxy.refuse_all()
            with pytest.raises(errors.SourceUnavailableError):
                list(frames(stream))


def test_a_closed_stream_wakes_the_thread_that_reads_it(database: Database, slot: str) -> None:
    caught: list[BaseException] = []
    with database.streaming(slot, PUBLICATION) as stream:

        def read() -> None:
            try:
                while True:
                    stream.receive(60)
            except errors.SourceUnavailableError as error:
                caught.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        threads = [threading.Thread(target=stream.confirm, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.close()
        reader.join(PATIENCE_SECONDS)
        assert not reader.is_alive()
        stream.close()
    assert "closed" in str(caught[0])


def test_a_publication_that_the_slot_has_never_seen_is_a_lost_position_or_silence(
    database: Database, slot: str
) -> None:
    # From version 18 on the server only warns, and sends nothing: others must notice.
    with database.streaming(slot, "absent") as stream:
        database.run("insert into item values (40, 'unseen')")
        if database.server.version < 18:
            with pytest.raises(errors.PositionLostError, match="42704"):
                list(frames(stream))
        else:
            assert database.read_to_now(stream) == []


@pytest.mark.fault("N22")
def test_a_new_slot_does_not_wait_for_ever_for_an_open_transaction(database: Database) -> None:
    with psycopg.connect(database.dsn.value) as writer:
        writer.execute("insert into item values (50, 'open')")
        with connect_replication(
            database.dsn, purpose="test", slot_patience=timedelta(milliseconds=200)
        ) as connection:
            with pytest.raises(errors.SourceUnavailableError, match="55P03"):
                connection.create_slot("late")
            with database.session() as session:
                assert load_slot(session, "late") is None
        writer.rollback()


def test_a_server_shuts_down_though_changes_are_not_confirmed() -> None:
    with embedded_postgres(version=18) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table item (id int primary key)")
            connection.execute("create publication all_of_it for table item")
        database = Database(server, server.database)
        replication = connect_replication(database.dsn, purpose="test")
        with closing(replication):
            slot = replication.create_slot("kept")
            with replication.stream("kept", after=0, publications=["all_of_it"]) as stream:
                database.run("insert into item values (1)")
                stream.confirm(slot.consistent_point)
                stopping = threading.Thread(target=server.stop)
                stopping.start()
                with pytest.raises(errors.SourceUnavailableError):
                    list(frames(stream))
                stopping.join()
        # In order: who has to be killed does not say so.
        assert "database system is shut down" in server.log.read_text()
