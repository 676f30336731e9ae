"""What a server's facts mean for a document: problems, and what was found in order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from frazil.config import load_config
from frazil.errors import ConfigError, MarkerLostError, SourceUnavailableError
from frazil.model.postgres.facts import IdentityKind, Persistence, PostgresFacts, UniqueKey
from frazil.model.postgres.names import QualifiedName
from frazil.pipeline.checks import name_tables
from frazil.pipeline.configured_source import configured_source
from frazil.sources.findings import CheckedItem, Severity, problem_of
from frazil.sources.postgres.checks.preflight import judge_source
from frazil.sources.postgres.kind import PostgresKind
from tests.support.postgres.sound import PUBLICATION, ROLE, SERVER, SLOT, SOUND, TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config
    from frazil.pipeline.checks import SourceFindings
    from frazil.sources.findings import Findings

DOCUMENT = """
pipeline: sales
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source:
  kind: postgres
  dsn: postgresql://h/d
  tables: ['shop.*']
  publication: {create: %s}
mirror: {namespace: lake}
"""


def load(tmp_path: Path, more: str = "", *, create: str = "true") -> Config:
    document = tmp_path / "frazil.yaml"
    document.write_text(DOCUMENT % create + more)
    return load_config(document, environ={}).config


def judge(config: Config, facts: PostgresFacts = SOUND) -> SourceFindings:
    kind = configured_source(config)
    assert isinstance(kind, PostgresKind)
    return name_tables(config, judge_source(facts, kind._wanted(), kind._key_of))


def seen(findings: Findings) -> dict[str, str]:
    return {each.about: each.found for each in findings.checked}


def test_a_server_in_order_has_no_problem_and_everything_is_listed(tmp_path: Path) -> None:
    findings = judge(load(tmp_path))
    assert findings.problems == ()
    assert seen(findings) == {
        "server": "PostgreSQL 18.1, primary, database sales, over TLS",
        "wal_level": "logical",
        "role": "frazil may replicate",
        "capacity": "1 of 10 slots and 1 of 10 replication connections are taken",
        "slot": "sales_frazil is there, confirmed through 0/10",
        "publication": "sales_frazil is there and sends 1 table",
        "tables": "source.tables chooses 1 table",
        "shop.orders": "becomes changelog shop.orders_changelog and mirror lake.orders by id",
    }


def test_each_table_is_listed_where_they_are_counted(tmp_path: Path) -> None:
    config = load(tmp_path)
    kind = configured_source(config)
    assert isinstance(kind, PostgresKind)
    judged = judge_source(SOUND, kind._wanted(), kind._key_of)
    last = CheckedItem("replication", "a connection for it works")
    found = name_tables(config, replace(judged, checked=(*judged.checked, last)))
    assert [each.about for each in found.checked][-3:] == ["tables", "shop.orders", "replication"]


def test_what_the_first_run_makes_is_no_problem(tmp_path: Path) -> None:
    findings = judge(load(tmp_path), replace(SOUND, slot=None, publication=None))
    assert findings.problems == ()
    assert seen(findings)["slot"].endswith("the first run creates it")
    assert seen(findings)["publication"].endswith("the first run creates it")


@pytest.mark.parametrize(
    ("facts", "about"),
    [
        (replace(SOUND, server=replace(SERVER, version=130009)), "server"),
        (replace(SOUND, server=replace(SERVER, wal_level="replica")), "wal_level"),
        (
            replace(SOUND, server=replace(SERVER, role=replace(ROLE, may_replicate=False))),
            "role",
        ),
        (replace(SOUND, server=replace(SERVER, senders_used=9)), "capacity"),
        (replace(SOUND, slot=replace(SLOT, plugin="test_decoding")), "slot"),
        (replace(SOUND, slot=replace(SLOT, invalidation_reason="wal_removed")), "slot"),
        (
            replace(
                SOUND,
                publication=None,
                server=replace(SERVER, role=replace(ROLE, may_create_publication=False)),
            ),
            "publication",
        ),
        (replace(SOUND, tables=()), "tables"),
    ],
)
def test_what_has_a_problem_is_not_called_fine(
    tmp_path: Path, facts: PostgresFacts, about: str
) -> None:
    findings = judge(load(tmp_path), facts)
    assert findings.problems
    assert about not in seen(findings)


def test_keys_are_configured_by_mirror_and_checked_at_the_source(tmp_path: Path) -> None:
    config = load(tmp_path, "tables: [{mirror: lake.orders, key: [word]}]\n")
    (problem,) = judge(config).problems
    assert "Nothing keeps the key configured for shop.orders unique" in problem.sentence
    unique = replace(TABLE, unique_keys=(UniqueKey(oid=7, columns=("word",), made_by=1),))
    (problem,) = judge(config, replace(SOUND, tables=(unique,))).problems
    assert "does not have the key columns word" in problem.sentence
    full = replace(unique, identity=IdentityKind.FULL, identity_columns=("id", "word"))
    findings = judge(config, replace(SOUND, tables=(full,)))
    assert findings.problems == ()
    assert seen(findings)["shop.orders"].endswith("mirror lake.orders by word")


def test_a_table_without_a_key_is_said_to_have_no_mirror(tmp_path: Path) -> None:
    keyless = replace(TABLE, key=None, identity_columns=())
    findings = judge(load(tmp_path), replace(SOUND, tables=(keyless,)))
    assert [problem.severity for problem in findings.problems] == [Severity.WARNS]
    assert seen(findings)["shop.orders"].endswith("no mirror")


def test_names_that_meet_are_problems_of_both_tables(tmp_path: Path) -> None:
    other = replace(TABLE, oid=2, name=QualifiedName("bar", "Orders"))
    facts = replace(SOUND, tables=(TABLE, other), publication=None)
    findings = judge(load(tmp_path), facts)
    assert {problem.table for problem in findings.problems} == {"shop.orders", "bar.Orders"}
    assert findings.must_be_fixed == 2
    assert not {"shop.orders", "bar.Orders"} & set(seen(findings))


def test_a_listed_mirror_that_no_table_becomes_is_reported(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "tables:\n  - {mirror: lake.oders, key: [id]}\n"
        "  - {mirror: own.merge, changelog: own.log, key: [id]}\n",
    )
    (problem,) = judge(config).problems
    assert (problem.severity, problem.table) == (Severity.WARNS, "lake.oders")


def test_what_stops_comes_before_what_warns(tmp_path: Path) -> None:
    config = load(tmp_path, "tables: [{mirror: lake.oders, key: [id]}]\n", create="false")
    keyless = replace(TABLE, key=None, identity_columns=())
    findings = judge(config, replace(SOUND, tables=(keyless,), publication=None))
    severities = [problem.severity for problem in findings.problems]
    assert severities == sorted(severities, key=lambda each: each is Severity.WARNS)
    assert findings.must_be_fixed == 1


def test_an_error_is_a_problem_with_its_command_where_sql_would_be() -> None:
    lost = MarkerLostError("there is none.", table="a.b", next_step="frazil position set a.b")
    problem = problem_of(lost)
    assert (problem.sentence, problem.sql) == ("There is none.", ("frazil position set a.b",))
    assert (problem.severity, problem.table) == (Severity.STOPS, "a.b")


def test_a_check_does_not_advise_to_check() -> None:
    away = SourceUnavailableError("it does not answer.", next_step="frazil check")
    problem = problem_of(away, advice="Check whether it runs.")
    assert (problem.sentence, problem.sql) == ("It does not answer. Check whether it runs.", ())
    wrong = ConfigError("it cannot be read.", next_step="write it again")
    assert problem_of(wrong).sentence == "It cannot be read. Next: write it again"


def test_an_empty_publication_is_reported(tmp_path: Path) -> None:
    empty = replace(PUBLICATION, tables=())
    findings = judge(load(tmp_path), replace(SOUND, publication=empty))
    assert seen(findings)["publication"].endswith("sends 0 tables")


def test_what_no_run_makes_is_named_for_the_lakes_part(tmp_path: Path) -> None:
    keyless = replace(TABLE, oid=2, name=QualifiedName("shop", "keyless"), key=None)
    unlogged = replace(
        TABLE, oid=3, name=QualifiedName("shop", "quick"), persistence=Persistence.UNLOGGED
    )
    facts = replace(SOUND, publication=None, tables=(TABLE, keyless, unlogged))
    findings = judge(load(tmp_path), facts)
    assert findings.not_made == {"lake.keyless", "lake.quick", "shop.quick_changelog"}
