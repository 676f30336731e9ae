"""The command line from its entry point."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

from frazil.cli.app import app
from frazil.cli.exit_codes import ExitCode, exit_code_for
from frazil.cli.main import main
from frazil.errors import (
    ConfigError,
    FencedError,
    FrazilError,
    LeaseLostError,
    PermissionError,  # noqa: A004 - the published name of this error
    ShutdownRequested,
    SlotBusyError,
    StorageError,
    leaves,
)

if TYPE_CHECKING:
    from frazil.cli.invocation import Invocation

ROOT = Path(__file__).resolve().parents[3]
FRAZIL = Path(sysconfig.get_path("scripts")) / "frazil"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

Capture = pytest.CaptureFixture[str]


def test_help_answers_in_half_a_second() -> None:
    times = []
    # The best of three, of its own work: the machine may be busy with something else.
    for _ in range(3):
        started = seconds_of_children()
        finished = subprocess.run([FRAZIL, "--help"], capture_output=True, text=True, check=True)
        times.append(seconds_of_children() - started)
    assert "Usage: frazil" in finished.stdout
    assert min(times) < 0.5


def seconds_of_children() -> float:
    """What the processes that have ended have worked, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_loads_neither_spark_nor_the_configuration() -> None:
    program = (
        "import sys\nfrom frazil.cli.main import main\nmain(['--help'])\n"
        "heavy = {'pyspark', 'pydantic', 'rich', 'starlette', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr


def command_paths() -> list[list[str]]:
    paths = []
    for name, command in getattr(get_command(app), "commands", {}).items():
        verbs = getattr(command, "commands", {})
        paths += [[name, verb] for verb in verbs] or [[name]]
    return paths


@pytest.mark.parametrize("arguments", command_paths(), ids=" ".join)
def test_every_verb_opens_its_help_with_two_examples(arguments: list[str], capsys: Capture) -> None:
    assert main([*arguments, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    options = lines.index("Options:")
    examples = [
        line for line in lines[:options] if line.startswith(f"  frazil {' '.join(arguments)}")
    ]
    assert len(examples) == 2


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["explain", "--nonsense"], ["config", "show", "-o", "xml"]]
)
def test_wrong_usage_exits_2(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage" in captured.err or "Invalid" in captured.err


@pytest.mark.parametrize("leaf", leaves(), ids=lambda leaf: leaf.code)
def test_every_code_is_explained(leaf: type[FrazilError], capsys: Capture) -> None:
    assert main(["explain", leaf.code.lower()]) == 0
    text = capsys.readouterr().out
    assert leaf.meaning in text
    assert leaf.remedy in text
    assert "What frazil does:" in text


def test_codes_are_listed_as_json_for_programs(capsys: Capture) -> None:
    assert main(["explain", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["code"] for entry in listed] == [leaf.code for leaf in leaves()]
    assert {"code", "error", "meaning", "remedy", "action", "after_attempts"} == set(listed[0])


def test_an_unknown_code_suggests_the_nearest(capsys: Capture) -> None:
    assert main(["explain", "FRZ-LAK-5"]) == ExitCode.USAGE
    assert "did you mean FRZ-LAK-" in capsys.readouterr().err


def test_version_names_what_a_bug_report_needs(capsys: Capture) -> None:
    assert main(["version", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {
        "frazil", "python", "pyspark", "iceberg", "java",
    }  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_shown(example: Path, capsys: Capture) -> None:
    assert main(["config", "show", "-c", str(example)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"# {example}")
    assert "catalog.kind" in shown
    assert main(["config", "show", "-c", str(example), "-o", "json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["document"]["catalog"]["kind"] in {"sql", "rest"}
    assert parsed["origins"]["catalog.kind"]


def test_all_examples_are_shown_by_one_command(capsys: Capture) -> None:
    assert len(EXAMPLES) >= 5
    assert main(["config", "show", "-c", *map(str, EXAMPLES)]) == 0
    assert capsys.readouterr().out.count("\n# ") == len(EXAMPLES) - 1
    assert main(["config", "show", "-o", "json", "-c", *map(str, EXAMPLES)]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert {entry["dialect"] for entry in parsed} == {"native", "merger", "processor"}


def test_the_processors_single_dash_option_works(capsys: Capture) -> None:
    example = ROOT / "examples" / "processor.yaml"
    assert main(["config", "show", f"-config={example}"]) == 0
    assert "processor document" in capsys.readouterr().out


@pytest.mark.parametrize("before", [[], ["--debug"], ["run"], ["ingest"]], ids=" ".join)
@pytest.mark.parametrize("form", ["-config={}", "-config {}", "--config={}", "--config {}"])
def test_the_processors_command_line_starts_a_run(
    before: list[str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, Path | None, bool]] = []
    for name in ("run_pipeline", "run_ingest"):

        def begin(invocation: Invocation, *, once: bool, name: str = name) -> int:
            started.append((name, invocation.document, once))
            return ExitCode.DONE

        monkeypatch.setattr(f"frazil.cli.verbs.run.{name}", begin)
    document = tmp_path / "config.yaml"
    assert main([*before, *form.format(document).split(" ")]) == ExitCode.DONE
    expected = "run_ingest" if before == ["ingest"] else "run_pipeline"
    assert started == [(expected, document, False)]


def test_the_processors_command_line_finds_every_mistake(tmp_path: Path, capsys: Capture) -> None:
    missing = tmp_path / "nowhere.yaml"
    assert main([f"-config={missing}"]) == ExitCode.USAGE
    assert str(missing) in capsys.readouterr().err


def test_the_document_may_be_named_by_the_environment(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFIG_FILE", str(ROOT / "examples" / "merger.yaml"))
    assert main(["config", "show"]) == 0
    assert "merger document" in capsys.readouterr().out


def test_a_missing_document_exits_2_and_names_it(tmp_path: Path, capsys: Capture) -> None:
    missing = tmp_path / "nowhere.yaml"
    assert main(["config", "show", "-c", str(missing)]) == ExitCode.USAGE
    assert str(missing) in capsys.readouterr().err


def test_the_schema_is_json_with_every_section(capsys: Capture) -> None:
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"pipeline", "catalog", "source", "tables", "telemetry", "spark"} <= set(
        schema["properties"]
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (PermissionError("x"), 5),
        (FencedError("x"), 75),
        (LeaseLostError("x"), 75),
        (SlotBusyError("x"), 75),
        (ShutdownRequested("x"), 0),
        (StorageError("x"), 1),
    ],
)
def test_errors_end_commands_with_their_published_status(error: FrazilError, status: int) -> None:
    assert exit_code_for(error) == status


def test_completion_is_offered_for_the_shells_people_use() -> None:
    finished = subprocess.run(
        [FRAZIL, "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_FRAZIL_COMPLETE" in finished.stdout


def test_an_unforeseen_error_is_one_redacted_sentence_and_a_trace_only_on_request(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_arguments: object) -> None:
        message = "could not sign with canary-7c1e-of-the-environment"
        raise RuntimeError(message)

    monkeypatch.setenv("SOME_API_TOKEN", "canary-7c1e-of-the-environment")
    monkeypatch.setattr("frazil.cli.verbs.explain.show_version", explode)
    monkeypatch.chdir(tmp_path)
    assert main(["version"]) == ExitCode.FAILED
    short = capsys.readouterr().err
    assert "unexpected RuntimeError" in short
    assert "Traceback" not in short
    assert main(["--debug", "version"]) == ExitCode.FAILED
    long = capsys.readouterr().err
    assert "Traceback" in long
    assert "canary" not in short + long
