"""``check`` and ``teardown`` as far as they go without a server and a JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.verbs import check as check_verb
from frazil.cli.verbs.check import exit_code_of, findings_json, summary, table_rows
from frazil.cli.verbs.teardown import FOUND, GONE, LAKE_STAYS, REMOVED, conclusion
from frazil.config import load_config, table_settings
from frazil.errors import (
    CatalogError,
    PermissionError,  # noqa: A004 - the published name of this error
)
from frazil.sources.artifacts import Artifact
from frazil.sources.findings import CheckedItem, CheckOutcome, Findings, stops, warns
from frazil.sources.kind import SourceKind
from frazil.sources.postgres.artifacts import ArtifactKind
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.config import Config
    from frazil.model.readers import Reader

Capture = pytest.CaptureFixture[str]

MERGES = """
pipeline: shop
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
tables: [{mirror: public.users, changelog: public.users_changelog, key: [id]}]
"""
# Nothing listens on the discard port.
POSTGRES = """
pipeline: shop
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source: {kind: postgres, dsn: 'postgresql://u:pass-of-mine@127.0.0.1:9/d'}
"""
TOPICS = """
pipeline: shop
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source:
  kind: kafscale
  bucket: b
  offsets: {backend: none}
  topics: [{topic: orders, table: prod.orders}]
"""
FINE = Findings(checked=(CheckedItem("server", "PostgreSQL 18"),))
WARNED = Findings(problems=(warns("It has no key.", "alter table …;", table="a.b"),))
STOPPED = Findings(problems=(stops("It may not.", "grant it;", "and that;"),))
REFUSED = Findings(problems=STOPPED.problems, error=PermissionError("no."))
CLOSED = Findings(problems=STOPPED.problems, error=CatalogError("no."))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return tmp_path / "frazil.yaml"


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The lake is fine; the list has the documents it was checked for."""
    checked: list[Config] = []

    def check(config: Config, _source: Findings, _readers: Sequence[Reader]) -> Findings:
        checked.append(config)
        return Findings(checked=(CheckedItem("catalog", "answers"),))

    monkeypatch.setattr(check_verb, "check_lake", check)
    return checked


@pytest.mark.parametrize(
    ("parts", "code", "line"),
    [
        ([FINE, FINE], ExitCode.DONE, "nothing must be fixed"),
        ([WARNED, FINE], ExitCode.DONE, "nothing must be fixed, 1 to know of"),
        ([WARNED, STOPPED], ExitCode.FAILED, "1 must be fixed, 1 to know of"),
        ([FINE, CLOSED], ExitCode.FAILED, "1 must be fixed"),
        ([REFUSED, FINE], ExitCode.PERMISSION, "1 must be fixed"),
    ],
)
def test_warnings_do_not_fail_and_denied_access_has_its_own_status(
    parts: list[Findings], code: ExitCode, line: str
) -> None:
    assert exit_code_of(parts) is code
    assert summary(parts) == line


def test_every_line_of_a_fix_follows_its_problem() -> None:
    found = Findings(
        checked=(
            CheckedItem("server", "fine"),
            CheckedItem("disk", "not seen", CheckOutcome.SKIPPED),
        ),
        problems=(*WARNED.problems, *STOPPED.problems),
    )
    assert list(table_rows(found)) == [
        ("ok", "server", "fine"),
        ("skipped", "disk", "not seen"),
        ("stops", "", "It may not."),
        ("", "", "  grant it;"),
        ("", "", "  and that;"),
        ("warns", "a.b", "It has no key."),
        ("", "", "  alter table …;"),
    ]


def test_programs_get_problems_and_what_was_looked_at_without_secrets() -> None:
    redactor = Redactor()
    redactor.learn(["PostgreSQL 18"])
    shown = findings_json([FINE, WARNED], redactor)
    assert shown["problems"] == [
        {
            "severity": "warns",
            "sentence": "It has no key.",
            "sql": ["alter table …;"],
            "table": "a.b",
        }
    ]
    assert "PostgreSQL 18" not in json.dumps(shown["looked_at"])


def test_a_source_that_is_away_is_one_problem_and_the_lake_is_looked_at(
    document: Path, lake: list[Config], capsys: Capture
) -> None:
    document.write_text(POSTGRES)
    assert main(["check", "-c", str(document), "-o", "json"]) == ExitCode.FAILED
    said = capsys.readouterr().out
    shown = json.loads(said)
    (problem,) = shown["problems"]
    assert problem["severity"] == "stops"
    assert "at 127.0.0.1:9 failed: the server does not answer (" in problem["sentence"]
    assert "refused" in problem["sentence"]
    assert "frazil check" not in said
    assert "pass-of-mine" not in said
    assert [each["about"] for each in shown["looked_at"]] == ["catalog"]
    assert len(lake) == 1


def test_without_a_source_only_the_lake_is_looked_at(
    document: Path, lake: list[Config], capsys: Capture
) -> None:
    document.write_text(MERGES)
    assert main(["check", "-c", str(document)]) == ExitCode.DONE
    assert capsys.readouterr().out.splitlines() == [
        "STATE  LAKE     FOUND",
        "ok     catalog  answers",
        "",
        "nothing must be fixed",
    ]
    assert len(lake) == 1


def test_a_source_that_is_not_checked_is_not_called_fine(document: Path) -> None:
    class Unchecked(SourceKind):
        name = "unchecked"

    document.write_text(MERGES)
    config = load_config(document, environ={}).config
    (item,) = Unchecked(config, lambda table: table_settings(config, table)).check().checked
    assert item.outcome is CheckOutcome.SKIPPED
    assert "of the kind unchecked" in item.found


def test_a_lake_that_cannot_be_opened_is_a_problem(
    document: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    document.write_text(MERGES.replace("file:///wh", "gs://bucket/wh"))
    assert main(["check", "-c", str(document)]) == ExitCode.FAILED
    assert "stops" in capsys.readouterr().out


def test_removing_off_a_terminal_needs_a_yes(document: Path, capsys: Capture) -> None:
    document.write_text(POSTGRES)
    assert main(["teardown", "-c", str(document)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert "--yes" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("text", [MERGES, TOPICS])
def test_a_source_that_keeps_nothing_has_nothing_to_tear_down(
    text: str, document: Path, capsys: Capture
) -> None:
    document.write_text(text)
    assert main(["teardown", "--dry-run", "-c", str(document)]) == ExitCode.USAGE
    assert "source" in capsys.readouterr().err


def test_the_last_line_says_what_became_of_it() -> None:
    slot = Artifact(kind=ArtifactKind.SLOT, name="s", statement="drop it;")
    foreign = Artifact(kind=ArtifactKind.PUBLICATION, name="p", stays="not ours")
    assert conclusion([], {}) == f"nothing is there to remove; {LAKE_STAYS}"
    assert conclusion([foreign], {}).startswith("nothing of this pipeline's")
    assert conclusion([slot], {slot: FOUND}) == "nothing was changed: --dry-run"
    for state in (REMOVED, GONE):
        assert conclusion([slot, foreign], {slot: state}) == f"removed; {LAKE_STAYS}"
