"""TLS to Postgres is verified in full, whatever the connection string requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.codec.pgoutput.messages import LogicalMessage
from tests.support.faults.tls_front import LOOPBACK, make_certificate, server_without_tls, tls_front
from tests.support.postgres.access import Database, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres

pytestmark = [pytest.mark.services, pytest.mark.fault("G14")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def port(postgres: Postgres, folder: Path) -> Iterator[int]:
    make_certificate(folder, "foreign")
    with tls_front(postgres.port, make_certificate(folder, "right")) as listening:
        yield listening


def dsn(postgres: Postgres, port: int, *, host: str, root: Path) -> Secret:
    return Secret(
        f"host={host} port={port} user={postgres.user} password={postgres.password} "
        f"dbname={postgres.database} sslmode=require sslrootcert={root}"
    )


def test_a_certificate_that_fits_is_taken(postgres: Postgres, port: int, folder: Path) -> None:
    given = dsn(postgres, port, host=LOOPBACK, root=folder / "right.crt")
    with connect(given, purpose="test") as session:
        assert session.uses_tls
    with connect_replication(given, purpose="test") as replication:
        assert replication.identify().database == postgres.database


def test_a_stream_over_tls_gives_all_that_is_sent(
    postgres: Postgres, port: int, folder: Path
) -> None:
    given = dsn(postgres, port, host=LOOPBACK, root=folder / "right.crt")
    database = Database(postgres, postgres.database)
    with connect_replication(given, purpose="test") as replication:
        replication.create_slot("over_tls", temporary=True)
        with replication.stream("over_tls", after=0, publications=["none"]) as stream:
            # Larger than any buffer on the way.
            database.run(
                "select pg_logical_emit_message(true, 'ours', repeat(n::text, 1000)) "
                "from generate_series(1000, 1500) as n"
            )
            messages = database.read_to_now(stream)
    contents = [each.content for each in messages if isinstance(each, LogicalMessage)]
    assert contents == [str(n).encode() * 1000 for n in range(1000, 1501)]


@pytest.mark.fault("G14")
@pytest.mark.parametrize(
    ("host", "root"),
    [(LOOPBACK, "foreign.crt"), ("localhost", "right.crt")],
    ids=["another authority", "another host"],
)
def test_a_certificate_that_does_not_fit_is_refused(
    postgres: Postgres, port: int, folder: Path, host: str, root: str
) -> None:
    given = dsn(postgres, port, host=host, root=folder / root)
    with pytest.raises(errors.SourceUnavailableError, match="sslrootcert") as caught:
        connect(given, purpose="test")
    assert postgres.password not in str(caught.value)


def test_a_certificate_that_has_expired_is_refused(postgres: Postgres, folder: Path) -> None:
    expired = make_certificate(folder, "expired", is_expired=True)
    with tls_front(postgres.port, expired) as port:
        given = dsn(postgres, port, host=LOOPBACK, root=expired.file)
        with pytest.raises(errors.SourceUnavailableError):
            connect(given, purpose="test")
        with pytest.raises(errors.SourceUnavailableError):
            connect_replication(given, purpose="test")


def test_a_server_that_refuses_tls_gets_nothing(postgres: Postgres, folder: Path) -> None:
    received: list[bytes] = []
    with server_without_tls(received) as port:
        given = dsn(postgres, port, host=LOOPBACK, root=folder / "right.crt")
        with pytest.raises(errors.SourceUnavailableError):
            connect(given, purpose="test")
        with pytest.raises(errors.SourceUnavailableError):
            connect_replication(given, purpose="test")
    assert b"".join(received) == b""
