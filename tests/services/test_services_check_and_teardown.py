"""``check`` and ``teardown`` against live servers: advice that works, and nothing left behind."""

from __future__ import annotations

import io
import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.verbs import check as check_verb
from frazil.clients.postgres.replication import connect_replication
from frazil.sources.findings import Findings
from tests.support.postgres.access import Database, Secret, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.config import Config
    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

Capture = pytest.CaptureFixture[str]

PASSWORD = "guarded-password"
ROLE = "guarded"
SLOT = "checked_frazil"
DOCUMENT = """
pipeline: checked
catalog: {{kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}}
source:
  kind: postgres
  dsn: ${{DATABASE_URL}}
  tables: ['shop.*', 'closed.*']
  publication: {{create: {create}}}
"""
TABLES = (
    "create schema shop",
    "create schema closed",
    "create table shop.orders (id int primary key, word text)",
    "create table shop.keyless (word text)",
    "create table closed.hidden (id int primary key)",
    "create unlogged table shop.unlogged (id int primary key)",
    "create table shop.policed (id int primary key)",
    "alter table shop.policed enable row level security",
)
# Advice leads to a state in which more can be seen; more rounds than this would be a circle.
MOST_ROUNDS = 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Shop:
    """A database, and the commands run on it."""

    database: Database
    document: Path
    capsys: Capture
    monkeypatch: pytest.MonkeyPatch

    def run(
        self, *arguments: str, dsn: Secret | None = None, create: bool = True
    ) -> tuple[ExitCode, str, str]:
        self.document.write_text(DOCUMENT.format(create=str(create).lower()))
        self.monkeypatch.setenv("DATABASE_URL", (dsn or self.database.dsn).value)
        code = ExitCode(main([*arguments, "-c", str(self.document)]))
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def check(self, dsn: Secret | None = None, **more: bool) -> tuple[ExitCode, dict[str, Any]]:
        code, out, err = self.run("check", "-o", "json", dsn=dsn, **more)
        assert err == ""
        assert PASSWORD not in out
        found: dict[str, Any] = json.loads(out)
        return code, found

    def teardown(self, *arguments: str, **more: Any) -> tuple[ExitCode, dict[str, str]]:
        code, out, _ = self.run("teardown", "-o", "json", *arguments, **more)
        return code, {each["kind"]: each["state"] for each in json.loads(out)}

    @property
    def as_role(self) -> Secret:
        return self.database.dsn_of(ROLE, PASSWORD)

    def leave_artifacts(self) -> None:
        self.database.run(
            f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')",
            f"create publication {SLOT} for table shop.orders",
        )

    def artifacts(self) -> tuple[object, object]:
        return (
            self.database.ask(
                f"select count(*) from pg_replication_slots where slot_name = '{SLOT}'"
            ),
            self.database.ask(f"select count(*) from pg_publication where pubname = '{SLOT}'"),
        )


def stopping(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in found["problems"] if each["severity"] == "stops"]


def sentences(found: dict[str, Any]) -> str:
    return "\n".join(each["sentence"] for each in found["problems"])


def seen(found: dict[str, Any]) -> dict[str, str]:
    return {each["about"]: each["found"] for each in found["looked_at"]}


@pytest.fixture
def without_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake is another test's."""

    def no_findings(_config: Config, _source: Findings, _readers: object) -> Findings:
        return Findings()

    monkeypatch.setattr(check_verb, "check_lake", no_findings)


def made(
    server: Postgres, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    with database_on(server, "checked") as database:
        database.run(f"create role {ROLE} login password '{PASSWORD}'", *TABLES)
        try:
            yield Shop(database, tmp_path / "frazil.yaml", capsys, monkeypatch)
        finally:
            database.run(f"drop owned by {ROLE}", f"drop role {ROLE}")


@pytest.fixture(params=["postgres", "postgres_16"])
def any_shop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    without_lake: None,
) -> Iterator[Shop]:
    del without_lake
    yield from made(request.getfixturevalue(request.param), tmp_path, capsys, monkeypatch)


@pytest.fixture
def shop(
    postgres: Postgres,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    without_lake: None,
) -> Iterator[Shop]:
    del without_lake
    yield from made(postgres, tmp_path, capsys, monkeypatch)


def test_a_database_without_problems_has_none_reported(any_shop: Shop) -> None:
    any_shop.database.run("drop table shop.unlogged")
    code, found = any_shop.check()
    assert (code, stopping(found)) == (ExitCode.DONE, [])
    about = seen(found)
    major = any_shop.database.server.version
    assert about["server"].startswith(f"PostgreSQL {major}.")
    assert about["wal_level"] == "logical"
    assert about["slot"] == f"{SLOT} is not there yet: the first run creates it"
    assert about["replication"] == "a connection for it works"
    assert about["tables"] == "source.tables chooses 4 tables"
    assert about["shop.orders"] == (
        "becomes changelog shop.orders_changelog and mirror shop.orders by id"
    )
    assert about["shop.keyless"] == "becomes changelog shop.keyless_changelog, no mirror"
    assert "shop.keyless has no primary key" in sentences(found)


def test_following_the_advice_leads_to_a_database_without_problems(any_shop: Shop) -> None:
    code, found = any_shop.check(any_shop.as_role)
    assert code == ExitCode.FAILED
    said = sentences(found)
    for part in (
        f"The role {ROLE} may not replicate",
        f"The role {ROLE} may not use the schema closed",
        f"The role {ROLE} may not read closed.hidden",
        f"The role {ROLE} may not read shop.orders",
        f"the role {ROLE} may not create one in checked",
        "shop.unlogged is unlogged",
        "shop.policed has row-level security",
    ):
        assert part in said
    rounds = 0
    while stopping(found):
        rounds += 1
        assert rounds <= MOST_ROUNDS, stopping(found)
        assert all(each["sql"] for each in stopping(found))
        any_shop.database.run(*dict.fromkeys(s for each in stopping(found) for s in each["sql"]))
        code, found = any_shop.check(any_shop.as_role)
    assert code == ExitCode.DONE
    assert seen(found)["publication"] == f"{SLOT} is there and sends 5 tables"


@pytest.mark.fault("G15")
def test_to_replicate_and_to_read_is_enough_once_the_publication_is_there(shop: Shop) -> None:
    shop.database.run(
        "drop table shop.unlogged, shop.policed",
        "drop schema closed cascade",
        f"alter role {ROLE} replication",
        f"grant usage on schema shop to {ROLE}",
        f"grant select on all tables in schema shop to {ROLE}",
    )
    code, found = shop.check(shop.as_role, create=False)
    assert (code, len(stopping(found))) == (ExitCode.FAILED, 1)
    shop.database.run(*stopping(found)[0]["sql"])
    code, found = shop.check(shop.as_role, create=False)
    assert (code, stopping(found)) == (ExitCode.DONE, [])
    assert seen(found)["replication"] == "a connection for it works"


@pytest.mark.fault("G15")
def test_an_owner_needs_the_right_to_create_a_publication_and_nothing_else(shop: Shop) -> None:
    shop.database.run(
        "drop schema shop, closed cascade",
        f"alter role {ROLE} replication",
        f"create schema shop authorization {ROLE}",
        "create table shop.own (id int primary key)",
        f"alter table shop.own owner to {ROLE}",
    )
    code, found = shop.check(shop.as_role)
    assert code == ExitCode.FAILED
    (problem,) = stopping(found)
    assert f"the role {ROLE} may not create one in checked" in problem["sentence"]
    grant, _ = problem["sql"]
    shop.database.run(grant)
    code, found = shop.check(shop.as_role)
    assert (code, stopping(found)) == (ExitCode.DONE, [])
    assert seen(found)["publication"].endswith("the first run creates it")


def test_a_publication_that_sends_too_little_is_completed_by_the_advice(shop: Shop) -> None:
    shop.database.run(
        "drop table shop.unlogged",
        f"create publication {SLOT} for table shop.orders with (publish = 'insert')",
        f"alter role {ROLE} replication bypassrls",
        f"grant usage on schema shop, closed to {ROLE}",
        f"grant select on all tables in schema shop, closed to {ROLE}",
    )
    code, found = shop.check(shop.as_role)
    assert code == ExitCode.FAILED
    assert "does not send update, delete, truncate" in sentences(found)
    assert {"closed.hidden", "shop.keyless", "shop.policed"} == {
        each["table"] for each in stopping(found) if "does not have" in each["sentence"]
    }
    shop.database.run(*(line for each in stopping(found) for line in each["sql"]))
    code, found = shop.check(shop.as_role)
    assert (code, stopping(found)) == (ExitCode.DONE, [])


@pytest.mark.parametrize(
    ("user", "database", "code", "sentence"),
    [
        (ROLE, "checked", ExitCode.PERMISSION, "source.dsn is wrong"),
        (None, "nowhere", ExitCode.FAILED, "correct the database in source.dsn"),
    ],
)
def test_a_server_that_cannot_be_reached_is_one_problem(
    shop: Shop, user: str | None, database: str, code: ExitCode, sentence: str
) -> None:
    other = Database(shop.database.server, database)
    dsn = other.dsn if user is None else other.dsn_of(user, "not-the-password")
    ended, found = shop.check(dsn)
    assert ended == code
    (problem,) = found["problems"]
    assert sentence in problem["sentence"]
    assert found["looked_at"] == []


def test_people_get_a_table_with_the_sql_below_each_problem(shop: Shop) -> None:
    code, out, _ = shop.run("check", dsn=shop.as_role)
    assert code == ExitCode.FAILED
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line]
    states = [line[0] for line in lines]
    assert states[0] == "STATE"
    assert states.count("ok") == 5
    at = next(number for number, line in enumerate(lines) if "may not replicate" in line[1])
    assert states[at] == "stops"
    assert " ".join(lines[at + 1]) == f'alter role "{ROLE}" replication;'
    assert "must be fixed" in out.splitlines()[-1]


def test_what_a_new_slot_would_wait_for_is_reported_without_its_statement(shop: Shop) -> None:
    shop.database.run(
        f"grant usage on schema shop to {ROLE}",
        f"grant select on all tables in schema shop to {ROLE}",
        "begin; insert into shop.orders values (1, 'a row'); prepare transaction 'left behind'",
    )
    try:
        with psycopg.connect(shop.database.dsn.value) as writing:
            writing.execute("insert into shop.orders values (2, 'another row')")
            pid = writing.info.backend_pid
            time.sleep(1.2)
            for dsn in (shop.database.dsn, shop.as_role):
                _, found = shop.check(dsn)
                (problem,) = [each for each in found["problems"] if "waits" in each["sentence"]]
                assert f"process {pid} of postgres" in problem["sentence"]
                assert (
                    "prepared transaction 'left behind' of postgres, open for"
                    in problem["sentence"]
                )
                assert "row" not in problem["sentence"]
                assert problem["severity"] == "warns"
    finally:
        shop.database.run("rollback prepared 'left behind'")


def test_a_misspelt_table_is_an_error_with_the_one_that_is_meant(shop: Shop) -> None:
    shop.database.run("drop table shop.unlogged")
    shop.monkeypatch.setenv("FRAZIL__SOURCE__TABLES", "[shop.orders, shop.oders]")
    code, found = shop.check()
    (problem,) = stopping(found)
    assert (code, problem["table"]) == (ExitCode.FAILED, "shop.oders")
    assert "did you mean shop.orders?" in problem["sentence"]


def test_a_dry_run_shows_what_would_go_and_changes_nothing(shop: Shop) -> None:
    shop.leave_artifacts()
    code, out, _ = shop.run("teardown", "--dry-run")
    assert code == ExitCode.DONE
    assert f"select pg_drop_replication_slot('{SLOT}');" in out
    assert f'drop publication if exists "{SLOT}";' in out
    assert out.splitlines()[-1] == "nothing was changed: --dry-run"
    assert shop.artifacts() == (1, 1)


def test_every_trace_goes_and_a_second_time_there_is_nothing(shop: Shop) -> None:
    shop.leave_artifacts()
    code, out, _ = shop.run("teardown", "--yes")
    assert (code, shop.artifacts()) == (ExitCode.DONE, (0, 0))
    assert out.splitlines()[-1] == "removed; the tables of the lake stay as they are"
    code, out, err = shop.run("teardown", "--yes")
    assert (code, err) == (ExitCode.DONE, "")
    assert out == "nothing is there to remove; the tables of the lake stay as they are\n"


def test_a_slot_that_is_read_stops_it_before_anything_goes(shop: Shop) -> None:
    shop.leave_artifacts()
    with shop.database.streaming(SLOT, SLOT):
        reader = shop.database.ask(
            f"select active_pid from pg_replication_slots where slot_name = '{SLOT}'"
        )
        code, _, err = shop.run("teardown", "--yes")
        assert code == ExitCode.BUSY
        assert f"the slot {SLOT} is read by process {reader} there (frazil test)" in err
        assert shop.artifacts() == (1, 1)
        code, out, _ = shop.run("teardown", "--dry-run")
        assert code == ExitCode.DONE
        assert f"once process {reader} (frazil test) has stopped" in out


def test_a_foreign_publication_stays(shop: Shop) -> None:
    shop.leave_artifacts()
    shop.database.run(f"alter role {ROLE} replication")
    code, states = shop.teardown("--yes", dsn=shop.as_role)
    assert code == ExitCode.DONE
    assert states == {"slot": "removed", "publication": "stays"}
    assert shop.artifacts() == (0, 1)
    code, states = shop.teardown("--yes", create=False)
    assert (code, states) == (ExitCode.DONE, {"publication": "stays"})
    assert shop.artifacts() == (0, 1)


def test_a_role_that_may_not_drop_a_slot_is_reported(shop: Shop) -> None:
    shop.leave_artifacts()
    code, _, err = shop.run("teardown", "--yes", dsn=shop.as_role)
    assert code == ExitCode.PERMISSION
    assert f"dropping the slot {SLOT} failed" in err
    assert shop.artifacts() == (1, 1)


def test_the_slot_of_a_copy_is_shown_and_goes_by_itself(shop: Shop) -> None:
    copying = connect_replication(shop.database.dsn, purpose="copy")
    with closing(copying):
        copying.create_slot(f"{SLOT}_copy_1f2e", temporary=True)
        code, states = shop.teardown("--dry-run")
        assert (code, states) == (ExitCode.DONE, {"temporary slot": "stays"})


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("n\n", ExitCode.FAILED, (1, 1)), ("y\n", ExitCode.DONE, (0, 0))]
)
def test_on_a_terminal_the_operator_confirms_after_seeing_it(
    shop: Shop, answer: str, code: ExitCode, left: tuple[int, int]
) -> None:
    shop.leave_artifacts()
    shop.monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended, _, err = shop.run("teardown")
    assert (ended, shop.artifacts()) == (code, left)
    assert err.index(f"pg_drop_replication_slot('{SLOT}')") < err.index("Remove them?")
