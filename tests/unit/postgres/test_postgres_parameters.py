"""A connection string becomes parameters: pinned, verified, and never shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from frazil.clients.postgres.dsn import (
    SessionAccess,
    replication_parameters,
    session_parameters,
    tls_parameters,
)
from frazil.clients.postgres.replication import (
    create_slot_command,
    drop_slot_command,
    start_command,
)
from frazil.clients.postgres.translation import translate_state
from frazil.errors import (
    ConfigError,
    PermissionError,  # noqa: A004 - the published name of this error
    PositionLostError,
    SlotBusyError,
    SourceUnavailableError,
)
from tests.support.postgres.access import Secret

PATIENCE = timedelta(seconds=2)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("PGSSLMODE", "PGHOST", "PGSSLROOTCERT", "PGSERVICE", "PGHOSTADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def session(dsn: str) -> dict[str, str]:
    return session_parameters(
        Secret(dsn), purpose="copy", access=SessionAccess.READ_ONLY, lock_patience=PATIENCE
    )


VERIFIED = {"sslmode": "verify-full", "sslrootcert": "system"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"host": "db.example"}, VERIFIED),
        ({"host": "db.example", "sslmode": "prefer"}, VERIFIED),
        ({"host": "db.example", "sslmode": "allow"}, VERIFIED),
        ({"host": "db.example", "sslmode": "require"}, VERIFIED),
        ({"host": "db.example", "sslmode": "verify-ca"}, VERIFIED),
        ({"host": "db.example", "sslmode": "disable"}, {"sslmode": "disable"}),
        ({"host": "db.example", "sslrootcert": "/ca.pem"}, {"sslmode": "verify-full"}),
        ({"host": "127.0.0.1"}, {"sslmode": "disable"}),
        ({"host": "::1"}, {"sslmode": "disable"}),
        ({"host": "localhost"}, {"sslmode": "disable"}),
        ({"host": "/run/postgresql"}, {"sslmode": "disable"}),
        ({}, {"sslmode": "disable"}),
        ({"host": "localhost", "sslmode": "require"}, VERIFIED),
        ({"host": "localhost,db.example"}, VERIFIED),
        ({"host": "localhost", "hostaddr": "10.0.0.1"}, VERIFIED),
        ({"service": "somewhere"}, VERIFIED),
        ({"host": "127.0.0.1.example"}, VERIFIED),
    ],
)
def test_tls_is_verified_in_full_or_off(given: dict[str, str], expected: dict[str, str]) -> None:
    assert tls_parameters(given) == expected


def test_the_environment_counts_as_libpq_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert tls_parameters({}) == VERIFIED
    monkeypatch.setenv("PGSSLMODE", "disable")
    assert tls_parameters({}) == {"sslmode": "disable"}


def test_our_settings_are_said_last_and_the_users_network_stays() -> None:
    found = session(
        "postgresql://me:pw@127.0.0.1/d?options=-c%20timezone%3DAsia/Tokyo&keepalives_idle=7"
    )
    assert found["options"].startswith("-c timezone=Asia/Tokyo -c timezone=UTC ")
    assert "-c lock_timeout=2000" in found["options"]
    assert "-c default_transaction_read_only=on" in found["options"]
    assert found["keepalives_idle"] == "7"
    assert found["keepalives_count"] == "3"
    assert found["client_encoding"] == "UTF8"
    assert found["fallback_application_name"] == "frazil copy"
    assert "replication" not in found


def test_a_replication_connection_is_requested_by_the_database() -> None:
    dsn = Secret("host=127.0.0.1 dbname=d")
    found = replication_parameters(dsn, purpose="stream", lock_patience=PATIENCE)
    assert found["replication"] == "database"
    assert "read_only" not in found["options"]


@pytest.mark.parametrize(
    "dsn", ["host=h password", "postgresql://u:hunter2@[::1/d", "postgresql://u:hunter2@h/d?no=1"]
)
def test_a_string_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError) as caught:
        session(dsn)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("version", "temporary", "failover", "expected"),
    [
        (140012, False, True, 'CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput EXPORT_SNAPSHOT'),
        (
            140012,
            True,
            False,
            'CREATE_REPLICATION_SLOT "s" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT',
        ),
        (160004, False, True, "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export')"),
        (
            170000,
            False,
            True,
            "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)",
        ),
        (
            180000,
            True,
            True,
            "CREATE_REPLICATION_SLOT \"s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')",
        ),
    ],
)
def test_a_slot_is_created_in_the_syntax_of_the_version(
    version: int, *, temporary: bool, failover: bool, expected: str
) -> None:
    command = create_slot_command(
        "s", temporary=temporary, failover=failover, server_version=version
    )
    assert command == expected


def test_names_in_replication_commands_are_quoted_twice_where_need_be() -> None:
    assert start_command("s", after=0x1_0000_0010, publications=["it's", 'a"b']) == (
        'START_REPLICATION SLOT "s" LOGICAL 1/10 '
        "(proto_version '2', publication_names '\"it''s\",\"a\"\"b\"', messages 'true')"
    )
    assert drop_slot_command("s", wait=True) == 'DROP_REPLICATION_SLOT "s" WAIT'
    assert drop_slot_command("s", wait=False) == 'DROP_REPLICATION_SLOT "s"'


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", SourceUnavailableError),
        ("57P01", SourceUnavailableError),
        ("57P03", SourceUnavailableError),
        ("53300", SourceUnavailableError),
        ("53400", SourceUnavailableError),
        ("40001", SourceUnavailableError),
        ("55P03", SourceUnavailableError),
        ("58030", SourceUnavailableError),
        ("28P01", PermissionError),
        ("28000", PermissionError),
        ("42501", PermissionError),
        ("42P01", PermissionError),
        ("ZZ999", PermissionError),
        ("3D000", ConfigError),
        ("55006", SlotBusyError),
    ],
)
def test_the_code_of_an_error_says_what_to_do(state: str, expected: type[Exception]) -> None:
    error = translate_state(state, doing="testing")
    assert type(error) is expected
    assert state in str(error)


def test_a_command_may_give_a_code_its_own_meaning() -> None:
    error = translate_state("42704", doing="testing", meanings={"42704": PositionLostError})
    assert type(error) is PositionLostError


# Every setting of a session that changes how a value is printed; the walk over pg_settings in the
# tests with services finds one that is missing here.
PRINTING = {
    "timezone",
    "datestyle",
    "intervalstyle",
    "bytea_output",
    "extra_float_digits",
    "search_path",
    "quote_all_identifiers",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "xmlbinary",
    "xmloption",
    "array_nulls",
}


@pytest.mark.fault("N39")
@pytest.mark.parametrize("setting", sorted(PRINTING))
def test_copies_and_streams_pin_what_changes_the_text_of_a_value(setting: str) -> None:
    dsn = "postgresql://h/d?options=-c%20work_mem%3D1MB"
    streamed = replication_parameters(Secret(dsn), purpose="stream", lock_patience=PATIENCE)
    for parameters in (session(dsn), streamed):
        pinned = [word.split("=")[0] for word in parameters["options"].split("-c ")]
        assert setting in pinned
