"""``merge``, ``plan``, ``verify`` and ``index`` as far as they go without a JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from frazil import errors
from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.process.role import catalog_state
from frazil.cli.results.merge_results import HEADER, result_json, result_row
from frazil.pipeline.status.merge_status import MergeStatus, MergeStep
from frazil.telemetry.redaction import Redactor
from frazil.web.readiness import NotReady, Ready
from tests.support.merge.scripted import report_of

Capture = pytest.CaptureFixture[str]

DOCUMENT = """
pipeline: shop
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
tables:
  - {mirror: public.users, changelog: public.users_changelog, key: [id]}
  - {mirror: public.orders, changelog: public.orders_changelog, key: [id]}
"""
VERBS = [
    ["merge"],
    ["merge", "--once"],
    ["plan"],
    ["verify"],
    ["index", "show"],
    ["index", "verify"],
    ["index", "rebuild"],
]
STATUS = MergeStatus(
    table="public.users", phase=MergeStep.WAITING, since=datetime(2026, 1, 1, tzinfo=UTC)
)


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Starting one fails, in a way that no test here expects."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    file = tmp_path / "frazil.yaml"
    file.write_text(DOCUMENT)
    return file


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_an_unknown_table_ends_the_command_before_spark_starts(
    arguments: list[str], document: Path, capsys: Capture
) -> None:
    table = ["public.user"] if arguments[0] == "index" else ["--table", "public.user"]
    assert main([*arguments, *table, "-c", str(document)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean public.users?" in captured.err


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_mistake_in_the_document_ends_the_command_before_spark_starts(
    arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(DOCUMENT.replace("key: [id]", "kye: [id]"))
    table = ["public.users"] if arguments[0] == "index" else []
    assert main([*arguments, *table, "-c", str(file)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{file}:5" in captured.err
    assert "kye" in captured.err


@pytest.mark.usefixtures("no_jvm")
def test_a_wait_that_is_no_duration_ends_the_command_before_spark_starts(
    document: Path, capsys: Capture
) -> None:
    assert main(["verify", "--wait", "soon", "-c", str(document)]) == ExitCode.USAGE
    assert "--wait: 'soon' is not a duration such as 500ms" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["merge", "--onec"],
        ["merge", "public.users"],
        ["merge", "-o", "xml"],
        ["plan", "--exit"],
        ["index"],
        ["index", "show"],
        ["index", "drop", "public.users"],
        ["verify", "--table"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == ExitCode.USAGE
    captured = capsys.readouterr().err
    assert "Usage" in captured or "requires an argument" in captured


@pytest.mark.usefixtures("no_jvm")
def test_the_document_may_be_the_mergers_and_named_by_its_variable(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "merger.yaml"
    monkeypatch.setenv("CONFIG_FILE", str(example))
    monkeypatch.chdir(tmp_path)
    assert main(["merge", "--once", "--table", "public.order"]) == ExitCode.USAGE
    assert "did you mean public.orders?" in capsys.readouterr().err


def test_a_table_that_was_merged_is_a_line_of_numbers() -> None:
    status = replace(STATUS, phase=MergeStep.DONE, report=report_of("users", 2))
    row = dict(zip(HEADER, result_row(status, Redactor()), strict=True))
    assert row == {
        "TABLE": "public.users",
        "STATE": "done",
        "COMMITS": "2",
        "CHANGES": "20",
        "INSERTED": "20",
        "UPDATED": "0",
        "DELETED": "0",
        "LATE": "0",
        "SECONDS": "3.0",
        "PROBLEM": "",
    }
    shown = json.loads(json.dumps(result_json(status, Redactor())))
    assert shown["problem"] is None
    assert shown["merged"]["counts"]["insert"] == 20
    assert [commit["snapshot"] for commit in shown["merged"]["commits"]] == ["100", "101"]


def test_a_stopped_table_shows_why_and_what_to_do_without_a_secret() -> None:
    error = errors.StorageError("at s3://sesame-4711", table="public.users", next_step="check it")
    status = replace(STATUS, phase=MergeStep.STOPPED, error=error, failures=5)
    redactor = Redactor(["sesame-4711"])
    row = dict(zip(HEADER, result_row(status, redactor), strict=True))
    assert row["PROBLEM"] == "FRZ-LAK-02: public.users: at s3://*** Next: check it"
    assert (row["STATE"], row["COMMITS"]) == ("stopped", "-")
    shown = result_json(status, redactor)
    assert shown["problem"] == {
        "code": "FRZ-LAK-02",
        "message": "public.users: at s3://*** Next: check it",
        "remedy": "check it",
    }


def test_a_defect_is_a_problem_without_a_code_and_without_its_text() -> None:
    status = replace(STATUS, phase=MergeStep.STOPPED, error=RuntimeError("of a row"))
    assert result_row(status, Redactor())[-1] == "unexpected RuntimeError"
    assert "of a row" not in json.dumps(result_json(status, Redactor()))


def test_the_process_is_ready_when_the_catalog_answered_one_table() -> None:
    away = replace(STATUS, error=errors.CatalogError("no answer"), failures=1)
    merged = replace(STATUS, report=report_of("users"))
    paused = replace(STATUS, error=errors.NullKeyError("x"), phase=MergeStep.STOPPED)
    assert catalog_state([STATUS]) == NotReady("no merge has ended yet")
    assert catalog_state([STATUS, merged]) == Ready()
    assert catalog_state([away, merged]) == Ready()
    assert catalog_state([paused]) == Ready()
    assert catalog_state([away, STATUS]) == NotReady("FRZ-LAK-03: no answer")
