"""A buffer database for those who operate it: check, status, dead letters, teardown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from frazil import errors
from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.config import load_config
from frazil.model.records.rejected_record import RejectedRecord, RejectReason
from frazil.pipeline.configured_source import configured_source
from frazil.sources.buffer.dead_letters import keep_letters
from frazil.sources.buffer.own_tables import ensure_own_tables
from frazil.sources.findings import Findings, Severity
from tests.support.buffer.tables import SCHEMA, Buffer
from tests.support.postgres.access import Secret, database_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres
    from frazil.sources.buffer.operated_kind import OperatedBuffer

pytestmark = pytest.mark.services

Capture = pytest.CaptureFixture[str]

PASSWORD = "guarded-password"
ROLE = "drainer"
DOCUMENT = """
pipeline: drain
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source:
  kind: buffer
  dsn: ${BUFFER_URL}
"""
# Advice leads to a state in which more can be seen; more rounds than this would be a circle.
MOST_ROUNDS = 4


@dataclass(frozen=True)
class Operated:
    """A buffer, and the commands run on it."""

    buffer: Buffer
    document: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: Capture

    def kind(self, more: str = "", dsn: Secret | None = None) -> OperatedBuffer:
        self.document.write_text(DOCUMENT + more)
        environ = {"BUFFER_URL": (dsn or self.buffer.database.dsn).value}
        kind: Any = configured_source(load_config(self.document, environ=environ).config)
        found: OperatedBuffer = kind
        return found

    def run(self, *arguments: str, more: str = "") -> tuple[ExitCode, Any, str]:
        self.document.write_text(DOCUMENT + more)
        self.monkeypatch.setenv("BUFFER_URL", self.buffer.database.dsn.value)
        code = ExitCode(main([*arguments, "-o", "json", "-c", str(self.document)]))
        said = self.capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    def reject(self, *events: int) -> None:
        """As a batch does with events that are no rows."""
        settings = self.kind().settings
        records = [
            RejectedRecord(
                table="public.orders",
                offset=event,
                reason=RejectReason.INVALID,
                message="column total: it is no number.",
                payload=b"",
            )
            for event in events
        ]
        access = SessionAccess.READ_WRITE
        with connect(settings.dsn, purpose="test", access=access) as session:
            ensure_own_tables(session, settings.relations)
            keep_letters(session, settings.relations, records, settings.letters)


@pytest.fixture(scope="module")
def made(postgres: Postgres) -> Iterator[Buffer]:
    with database_on(postgres, "buffer_operations") as database:
        yield Buffer(database)


@pytest.fixture
def operated(
    made: Buffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> Operated:
    made.database.run(
        f"drop schema if exists {SCHEMA} cascade", "drop schema if exists frazil_buffer cascade"
    )
    return Operated(made, tmp_path / "frazil.yaml", monkeypatch, capsys)


def sentences(found: Findings, severity: Severity = Severity.STOPS) -> list[str]:
    return [each.sentence for each in found.problems if each.severity is severity]


def test_every_problem_comes_with_the_sql_that_solves_it(operated: Operated) -> None:
    database = operated.buffer.database
    owner = database.dsn
    database.run(
        f"do $$ begin if not exists (select from pg_roles where rolname = '{ROLE}') then "
        f"create role {ROLE} login password '{PASSWORD}'; end if; end $$",
        f"revoke create on database {database.name} from public",
        f"create schema {SCHEMA}",
        f"create table {SCHEMA}.cdc_events (id bigserial, source_id text, schema_name text, "
        "table_name text, operations text, lsn text, key_columns jsonb, after_data json, "
        "event_time timestamptz)",
    )
    role = database.dsn_of(ROLE, PASSWORD)
    found = operated.kind(dsn=role).check()
    listed = "\n".join(sentences(found))
    assert f"may not use the schema {SCHEMA}" in listed
    assert "may not make the schema frazil_buffer" in listed
    assert "cdc_events has no column operation (did you mean operations?)" in listed
    assert "cdc_events.after_data is json, and must be jsonb" in listed
    assert "lacks the right to select, update, delete on cdc_events" in listed
    assert "The table dead_letter_events does not exist" in listed
    warned = "\n".join(sentences(found, Severity.WARNS))
    assert "Pending events have no index" in warned
    assert "not unique" in warned
    assert PASSWORD not in f"{found}"
    for _ in range(MOST_ROUNDS):
        advice = [line for problem in found.problems for line in problem.sql]
        with psycopg.connect(owner.value, autocommit=True) as connection:
            for statement in advice:
                connection.execute(statement.encode())
        found = operated.kind(dsn=role).check()
        if not found.problems:
            break
    assert found.problems == ()
    assert found.error is None
    assert not operated.kind(dsn=role).check_readiness().problems
    # The role can do what it has to.
    operated.buffer.add(1, processed="now()")
    database.run(f"update {SCHEMA}.cdc_events set created_at = now()")
    for chore in operated.kind(dsn=role).chores():
        chore.run()
        chore.close()
    with operated.kind(dsn=role).open_teardown() as teardown:
        (schema,) = teardown.artifacts
        assert teardown.remove(schema)
    database.run(f"drop owned by {ROLE} cascade")


def test_what_cannot_be_reached_is_a_problem(operated: Operated) -> None:
    wrong = operated.buffer.database.dsn_of("nobody", PASSWORD)
    found = operated.kind(dsn=wrong).check()
    assert isinstance(found.error, errors.PermissionError)
    (problem,) = found.problems
    assert problem.severity is Severity.STOPS
    assert PASSWORD not in problem.sentence
    with pytest.raises(errors.PermissionError):
        operated.kind(dsn=wrong).check_readiness()


def test_a_check_shows_tables_with_their_keys_and_sources_nobody_knows(operated: Operated) -> None:
    operated.buffer.make()
    operated.buffer.add(2)
    operated.buffer.add(1, source_id="other", table="users")
    found = operated.kind().check()
    assert found.problems == ()
    assert found.tables is not None
    assert [(each.name, each.key) for each in found.tables] == [
        ("public.orders", ("id",)), ("public.users", ("id",)),
    ]  # fmt: skip
    assert {each.about for each in found.checked} == {"server", "events"}
    found = operated.kind("  source_ids: [shop, othr]\n  exclude: ['public.o*']\n").check()
    assert found.tables == ()
    (warned,) = sentences(found, Severity.WARNS)
    assert "source_id othr (did you mean other?)" in warned
    found = operated.kind("  tables: ['sales.*']\n").check()
    assert sentences(found, Severity.WARNS) == [
        "No recent event is of a table that source.tables names: events of others stay pending."
    ]


def test_the_health_says_what_waits_and_since_when(operated: Operated) -> None:
    operated.buffer.make()
    watch = operated.kind().watch()
    health = watch.load()
    assert health.newest == 0
    assert health.facts is not None
    assert health.facts.details["pending"]["events"] == 0
    watch.close()
    operated.buffer.add(3)
    operated.buffer.add(1, table="users")
    operated.reject(1)
    operated.buffer.database.run(
        f"update {SCHEMA}.cdc_events set created_at = now() - interval '90 s' where id = 2",
        "insert into frazil_buffer.pipelines (pipeline, last_batch, acknowledged) "
        "values ('drain', 7, 6)",
    )
    kind = operated.kind("  exclude: [public.users]\n  backpressure: {high: 3, low: 1}\n")
    for chore in kind.chores():
        chore.run()
        chore.close()
    watch = kind.watch()
    health = watch.load()
    assert health.newest == 8
    facts = health.facts
    assert facts is not None
    assert not facts.counts_bytes
    pending = facts.details["pending"]
    assert (pending["events"], pending["state"], pending["is_full"]) == (3, "paused", 1)
    assert 90 <= float(pending["oldest_seconds"] or 0) < 600
    assert facts.details["dead_letters"] == {"count": 1}
    assert facts.details["batches"] == {"last": 7, "acknowledged": 6}
    assert facts.summary.startswith("3 events pending, the oldest ")
    assert facts.summary.endswith("last batch 7, 1 dead letters, full")
    assert {each.label: each.is_well for each in facts.lines} == {
        "Pending": None, "Buffer": False, "Last batch": None, "Dead letters": False,
    }  # fmt: skip
    # A connection that was lost is opened again.
    operated.buffer.database.run(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'frazil status' and datname = current_database()"
    )
    watch.close()
    assert watch.load().newest == 8
    watch.close()


def test_dead_letters_of_the_buffer_are_served_by_the_commands(operated: Operated) -> None:
    operated.buffer.make()
    operated.buffer.add(3, processed="now()")
    operated.reject(1, 2, 3)
    code, listed, err = operated.run("dlq", "ls")
    assert (code, err) == (ExitCode.DONE, "")
    ids = [each["id"] for each in listed]
    assert [each["position"] for each in listed] == ["1", "2", "3"]
    assert "secret" not in json.dumps(listed)
    code, shown, _ = operated.run("dlq", "show", ids[0])
    assert code is ExitCode.DONE
    assert json.loads(shown["payload"])["after"] == {"id": 1, "note": "a secret value"}
    code, dropped, _ = operated.run("dlq", "drop", ids[2], "--yes")
    assert (code, dropped) == (ExitCode.DONE, {"dropped": [ids[2]], "applied": True})
    code, report, _ = operated.run("dlq", "replay", "--all", "--dry-run")
    assert (code, report["pending"], report["applied"]) == (ExitCode.DONE, [], False)
    assert operated.buffer.events("processed_at is null") == 0
    code, report, _ = operated.run("dlq", "replay", ids[0], "--yes")
    assert (code, report["pending"], report["rejected"]) == (ExitCode.DONE, [ids[0]], [])
    assert operated.buffer.events("processed_at is null") == 1
    code, _, err = operated.run("dlq", "show", ids[2])
    assert code is ExitCode.USAGE
    assert "no dead letter has the id" in err
    ordered = "tables: [{mirror: public.orders, source: public.orders, order: append}]\n"
    code, _, err = operated.run("dlq", "replay", ids[1], "--yes", more=ordered)
    assert code is ExitCode.USAGE
    assert "takes changes in their order" in err
    assert operated.buffer.events("processed_at is null") == 1


def test_a_teardown_removes_the_schema_unless_another_pipeline_uses_it(operated: Operated) -> None:
    operated.buffer.make()
    code, found, _ = operated.run("teardown", "--dry-run")
    assert (code, found) == (ExitCode.DONE, [])
    operated.buffer.add(2)
    operated.reject(1)
    register = "insert into frazil_buffer.pipelines (pipeline) values ('{}')"
    claimed = (
        "insert into frazil_buffer.claimed_tables values "
        "('{}', 1, 'shop', 'public', 'orders', 2, 1, 1, 2)"
    )
    for name in ("drain", "other"):
        operated.buffer.database.run(register.format(name), claimed.format(name))
    code, found, _ = operated.run("teardown", "--dry-run")
    states = {each["kind"]: each["state"] for each in found}
    assert states == {"claims of the pipeline": "would be removed", "schema": "stays"}
    claim = operated.kind().claim()
    with claim.turn():
        code, _, err = operated.run("teardown", "--yes")
    assert code is ExitCode.BUSY
    assert "pg_terminate_backend" in err
    claim.release()
    code, found, _ = operated.run("teardown", "--yes")
    assert code is ExitCode.DONE
    left = operated.buffer.rows("select pipeline from frazil_buffer.claimed_tables")
    assert [each["pipeline"] for each in left] == ["other"]
    operated.buffer.database.run("delete from frazil_buffer.pipelines")
    code, found, _ = operated.run("teardown", "--yes")
    assert {each["kind"]: each["state"] for each in found} == {"schema": "removed"}
    assert operated.buffer.ask("select to_regnamespace('frazil_buffer') is null")
    # What its writer owns stays.
    assert (operated.buffer.events("processed_at is null"), operated.buffer.letters()) == (2, 1)
