"""``run`` checks its source before Spark starts and before anything is created there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.process import role as role_process
from frazil.demo.services import embedded_postgres
from tests.support.postgres.access import Database, database_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services


PASSWORD = "wrong-canary-password"
DOCUMENT = """
pipeline: early
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source: {kind: postgres, dsn: '${DATABASE_URL}', publication: {create: CREATE}}
retry: {attempts: 2, base: 10ms, max: 20ms}
"""


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[ExitCode, str]]:
    """``frazil run --once``, or another verb, which never comes as far as Spark."""

    def start_spark(_config: object) -> NoReturn:
        raise AssertionError("Spark was started")

    def run_once(dsn: str, *, verb: str = "run", create: str = "true") -> tuple[ExitCode, str]:
        document = tmp_path / "frazil.yaml"
        document.write_text(DOCUMENT.replace("CREATE", create))
        monkeypatch.setenv("DATABASE_URL", dsn)
        code = ExitCode(main([verb, "--once", "-c", str(document)]))
        return code, capsys.readouterr().err

    monkeypatch.setattr(role_process, "open_session", start_spark)
    return run_once


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, "early") as made:
        made.run("create table orders (id int primary key)")
        yield made


def test_every_way_to_be_refused_has_its_own_message(
    run: Callable[..., tuple[ExitCode, str]], database: Database
) -> None:
    server = database.server
    where = f"{server.host}:{server.port}"
    wrong = database.dsn_of(server.user, PASSWORD).value
    nowhere = Database(server, "nowhere").dsn.value
    ways = {
        "refused": (
            f"postgresql://u:{PASSWORD}@127.0.0.1:9/d",
            "127.0.0.1:9",
            1,
            "the server does not answer",
        ),
        "unknown": (
            f"postgresql://u:{PASSWORD}@no-such-host.invalid:5433/d?sslmode=disable",
            "no-such-host.invalid:5433",
            1,
            "the host no-such-host.invalid is unknown",
        ),
        "password": (wrong, where, 5, 'password authentication failed for user "postgres"'),
        "database": (nowhere, where, 2, 'database "nowhere" does not exist'),
        "tls": (f"{database.dsn.value}?sslmode=require", where, 1, "not with TLS"),
    }
    said = {}
    for name, (dsn, address, code, text) in ways.items():
        ended, said[name] = run(dsn)
        assert ended == code, said[name]
        assert f"connecting to Postgres at {address} failed: " in said[name]
        assert text in said[name]
        assert "does not support SSL" in said[name] or name != "tls"
        assert PASSWORD not in said[name]
        assert server.password not in said[name]
    assert len(set(said.values())) == len(ways)


@pytest.mark.parametrize("verb", ["run", "ingest"])
def test_an_unfit_server_is_reported_with_the_fix_and_nothing_is_created(
    run: Callable[..., tuple[ExitCode, str]], verb: str
) -> None:
    with embedded_postgres(version=18, settings={"wal_level": "replica"}) as server:
        database = Database(server, server.database)
        database.run("create table orders (id int primary key)")
        ended, said = run(database.dsn.value, verb=verb)
        assert ended == ExitCode.FAILED
        assert "wal_level is replica" in said
        assert "alter system set wal_level = 'logical';" in said
        assert "ermission" not in said
        assert database.ask("select count(*) from pg_publication") == 0
        assert database.ask("select count(*) from pg_replication_slots") == 0


def test_a_missing_publication_that_is_required_is_reported_with_its_sql(
    run: Callable[..., tuple[ExitCode, str]], database: Database
) -> None:
    ended, said = run(database.dsn.value, create="false")
    assert ended == ExitCode.FAILED
    assert 'create publication "early_frazil" for table only "public"."orders"' in said
    assert database.ask("select count(*) from pg_publication") == 0


def test_one_tables_problem_does_not_prevent_a_start(
    run: Callable[..., tuple[ExitCode, str]], database: Database
) -> None:
    database.run("create unlogged table passing (id int)")
    _, said = run(database.dsn.value)
    assert "AssertionError: Spark was started" in said
