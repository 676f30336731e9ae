"""Sessions at a real server: pinned settings, refusals without secrets, errors by their meaning."""

from __future__ import annotations

import pickle
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from frazil import errors
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.clients.postgres.replication import connect_replication
from frazil.pipeline.recovery import RecoveryAction, recovery_for
from frazil.sources.postgres.copy.round import open_copy_snapshot
from tests.support.faults.proxy import TcpProxy
from tests.support.postgres.access import Database, Secret, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.session import Session
    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

CANARY = "hunter2-canary"


class Setting(NamedTuple):
    name: str
    value: str


@pytest.fixture(scope="module", params=["postgres", "postgres_16"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: Postgres = request.getfixturevalue(request.param)
    with database_on(server, "sessions") as made:
        made.run(
            f"create role modest login password '{CANARY}'",
            "alter role modest set timezone = 'Asia/Tokyo'",
            "alter role modest set datestyle = 'SQL, DMY'",
            "alter role modest set intervalstyle = 'iso_8601'",
            "alter role modest set extra_float_digits = -15",
            "alter role modest set statement_timeout = 1",
            "create table secret (id int primary key, body text)",
            "insert into secret values (1, 'a row value')",
        )
        yield made
        made.run("drop owned by modest", "drop role modest")


@pytest.mark.fault("T8")
def test_a_role_cannot_change_how_values_are_printed(database: Database) -> None:
    query = """
        select name, setting
        from pg_settings
        where name in ('TimeZone', 'DateStyle', 'IntervalStyle', 'extra_float_digits',
            'client_encoding', 'row_security', 'search_path', 'statement_timeout',
            'default_transaction_read_only', 'application_name')
    """
    with connect(database.dsn_of("modest", CANARY), purpose="copy") as session:
        found = dict(session.load(Setting, query, doing="testing"))
    assert found == {
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "extra_float_digits": "3",
        "client_encoding": "UTF8",
        "row_security": "off",
        "search_path": "",
        "statement_timeout": "0",
        "default_transaction_read_only": "on",
        "application_name": "frazil copy",
    }


def test_a_role_cannot_bound_the_time_that_a_copy_takes(database: Database) -> None:
    bounds = ["idle_in_transaction_session_timeout", "idle_session_timeout"]
    if database.server.version >= 17:
        bounds.append("transaction_timeout")
    role = "hasty"
    database.run(
        f"create role {role} login replication password '{CANARY}'",
        *(f"alter role {role} set {each} = '100ms'" for each in bounds),
    )
    dsn = database.dsn_of(role, CANARY)
    try:
        with (
            open_copy_snapshot(dsn, slot="hasty") as snapshot,
            connect(dsn, purpose="copy") as session,
            session.one_view(snapshot=snapshot.snapshot),
        ):
            time.sleep(0.4)
            assert session.load(Setting, "select 'a' as name, 'b' as value", doing="testing")
            assert snapshot.is_alive()
    finally:
        database.run(f"drop role {role}")


def test_a_reader_cannot_write(database: Database) -> None:
    statement = "delete from public.secret"
    with (
        connect(database.dsn, purpose="reader") as session,
        pytest.raises(errors.PermissionError, match="ReadOnlySqlTransaction"),
    ):
        session.execute(statement, doing="deleting")


def test_a_writer_writes_a_transaction_or_nothing(database: Database) -> None:
    def give_up(session: Session) -> None:
        with session.transaction():
            assert session.execute("delete from public.secret", doing="deleting") == 1
            raise RuntimeError

    with connect(database.dsn, purpose="writer", access=SessionAccess.READ_WRITE) as session:
        with pytest.raises(RuntimeError):
            give_up(session)
        assert session.execute("update public.secret set body = body", doing="writing") == 1


@pytest.mark.parametrize("how", ["session", "replication"])
def test_a_wrong_password_requires_action_and_is_not_shown(database: Database, how: str) -> None:
    wrong = database.dsn_of("modest", "wrong-" + CANARY)
    opening = connect if how == "session" else connect_replication
    with pytest.raises(errors.PermissionError, match="28P01") as caught:
        opening(wrong, purpose="test")
    error = caught.value
    assert recovery_for(error).action is RecoveryAction.NEVER
    assert CANARY not in str(error) + repr(error.__context__) + repr(pickle.dumps(error))
    # The driver's own error holds the password, so it must not hang on to ours.
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_role_without_the_right_to_replicate_is_reported(database: Database) -> None:
    with pytest.raises(errors.PermissionError, match="42501"):
        connect_replication(database.dsn_of("modest", CANARY), purpose="test")


def test_an_unknown_database_is_a_mistake_of_the_configuration(database: Database) -> None:
    nowhere = Secret(database.dsn.value.rpartition("/")[0] + "/nowhere")
    with pytest.raises(errors.ConfigError, match="3D000"):
        connect(nowhere, purpose="test")


def test_a_server_that_is_full_or_away_is_tried_again_later(database: Database) -> None:
    database.run("alter role modest connection limit 0")
    try:
        with pytest.raises(errors.SourceUnavailableError, match="53300"):
            connect(database.dsn_of("modest", CANARY), purpose="test")
    finally:
        database.run("alter role modest connection limit -1")
    with TcpProxy(database.server.host, database.server.port) as proxy:
        proxy.refuse_all()
        away = database.dsn_of("modest", CANARY, port=proxy.port)
        with pytest.raises(errors.SourceUnavailableError) as caught:
            connect(away, purpose="test")
    assert recovery_for(caught.value).action is RecoveryAction.LATER


def test_a_server_without_tls_is_refused_when_tls_is_requested(database: Database) -> None:
    strict = Secret(database.dsn.value + "?sslmode=require")
    with pytest.raises(errors.SourceUnavailableError, match="sslmode=disable"):
        connect(strict, purpose="test")


def test_errors_name_the_code_and_never_the_row(database: Database) -> None:
    with connect(database.dsn, purpose="test") as session:
        with pytest.raises(errors.PermissionError, match="22P02") as caught:
            session.execute("select body::int from public.secret", doing="casting")
        assert "row value" not in str(caught.value)
        assert caught.value.__suppress_context__
        # The session goes on.
        assert session.load(Setting, "select 'a', 'b'", doing="testing") == [("a", "b")]


def test_a_backend_that_is_ended_or_cancelled_is_retried(database: Database) -> None:
    with connect(database.dsn, purpose="victim") as session:
        ended = threading.Event()

        def cancel() -> None:
            # A session that does nothing yet is not cancelled.
            while not ended.wait(0.2):
                session.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(errors.SourceUnavailableError, match="57014"):
                session.execute("select pg_sleep(600)", doing="sleeping")
        finally:
            ended.set()
            canceller.join()
        database.run(f"select pg_terminate_backend({session.backend}, 5000)")
        with pytest.raises(errors.SourceUnavailableError):
            session.execute("select 1", doing="testing")


def test_a_lock_is_waited_for_no_longer_than_wanted(database: Database) -> None:
    with psycopg.connect(database.dsn.value) as locker:
        locker.execute("lock table secret in access exclusive mode")
        patience = timedelta(milliseconds=50)
        with (
            connect(database.dsn, purpose="test", lock_patience=patience) as session,
            pytest.raises(errors.SourceUnavailableError, match="55P03"),
        ):
            session.execute("select from public.secret", doing="reading")


def test_an_exported_snapshot_is_seen_from_another_connection(database: Database) -> None:
    database.run("create table seen (id int primary key)", "insert into seen values (1), (2)")
    with connect_replication(database.dsn, purpose="copy") as exporter:
        slot = exporter.create_slot("sessions_copy", temporary=True)
        database.run("insert into seen values (3)", "delete from seen where id = 1")
        with database.session() as session, session.one_view(snapshot=slot.snapshot):
            copied = [
                block.message(number)
                for block in session.copy_out_rows(
                    "copy (table public.seen) to stdout",
                    doing="copying",
                    most_rows=100,
                    most_bytes=1000,
                )
                for number in range(len(block))
            ]
        assert b"".join(copied) == b"1\n2\n"
        assert database.ask("select count(*) from seen") == 2
    with (
        database.session() as session,
        pytest.raises(errors.SourceError),
        session.one_view(snapshot=slot.snapshot),
    ):
        pass
