"""``init`` from the command line: what it writes, prompts for, and refuses."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.config import load_config
from frazil.config.loader import DEFAULT_PATH
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.config.models.postgres_source import PostgresSection

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "My shop"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return here


def test_off_a_terminal_it_does_not_prompt_and_takes_defaults(
    folder: Path, capsys: Capture
) -> None:
    assert main(["init"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert said.out == f"wrote {DEFAULT_PATH}\n"
    assert "export DATABASE_URL=" in said.err
    assert "frazil check" in said.err
    environ = {"DATABASE_URL": "postgresql://h/d"}
    config = load_config(folder / DEFAULT_PATH, environ=environ).config
    assert config.pipeline == "my_shop"
    assert isinstance(config.source, PostgresSection)
    assert config.catalog.warehouse == f"file://{folder}/lake".replace(" ", "%20")


def test_options_answer_everything(folder: Path) -> None:
    arguments = [
        "--pipeline",
        "sales",
        "--dsn-variable",
        "SALES",
        "--table",
        "a.*",
        "--table",
        "b.c",
    ]
    arguments += ["--catalog", "rest", "--warehouse", "s3://bucket/lake", "--output", "sales.yaml"]
    assert main(["init", *arguments]) == ExitCode.DONE
    environ = {"SALES": "postgresql://h/d", "CATALOG_URI": "http://c"}
    config = load_config(folder / "sales.yaml", environ=environ).config
    assert isinstance(config.source, PostgresSection)
    assert (config.pipeline, config.source.tables) == ("sales", ("a.*", "b.c"))
    assert config.catalog.token is None


def test_on_a_terminal_it_prompts_for_what_no_option_gives(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    typed = "sales\nnonsense\nkafscale\nrest\nexcel\nduckdb, trino\n"
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert main(["init", "--warehouse", "s3://bucket/lake"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert "one of postgres, kafscale, buffer, none, please" in said.err
    assert "some of spark, pyiceberg, duckdb, trino" in said.err
    assert "password" not in said.err.lower()
    environ = {"KAFSCALE_BUCKET": "b", "ETCD_URL": "http://e", "CATALOG_URI": "http://c"}
    config = load_config(folder / DEFAULT_PATH, environ=environ).config
    assert config.pipeline == "sales"
    assert config.mirror.format_version == 2
    assert isinstance(config.source, KafscaleSection)


@pytest.mark.parametrize(
    ("readers", "version"),
    [
        ((), 3),
        (("spark", "pyiceberg", "duckdb", "snowflake", "bigquery", "databricks"), 3),
        (("trino",), 2),
        (("spark", "athena"), 2),
        (("other",), 2),
    ],
)
def test_tables_have_the_newest_format_that_all_of_their_readers_know(
    readers: tuple[str, ...], version: int, folder: Path, capsys: Capture
) -> None:
    options = [word for each in readers for word in ("--reader", each)]
    assert main(["init", *options]) == ExitCode.DONE
    said = capsys.readouterr().err
    environ = {"DATABASE_URL": "postgresql://h/d"}
    config = load_config(folder / DEFAULT_PATH, environ=environ).config
    assert config.mirror.format_version == version
    assert ("mirror.format_version is 2" in said) == (version == 2)
    assert " ".join(["frazil check", *options]) in said


def test_a_file_that_is_there_stays_as_it_is_unless_forced(folder: Path, capsys: Capture) -> None:
    file = folder / DEFAULT_PATH
    file.write_text("mine", encoding="utf-8")
    assert main(["init"]) == ExitCode.USAGE
    assert file.read_text(encoding="utf-8") == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "--yes"]) == ExitCode.DONE
    assert file.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pipeline", "Shop"], "pipeline: must be lowercase letters"),
        (["--warehouse", "ftp://x"], "catalog.warehouse: must be"),
        (["--dsn-variable", "postgresql://u:word@h/d"], "must be the name of a variable"),
        (["--table", "orders"], "source.tables[0]: must be schema.table"),
        (["--output", "no/such/folder.yaml"], "cannot be written"),
    ],
)
def test_a_wrong_answer_is_reported_once_and_nothing_is_written(
    arguments: list[str], sentence: str, folder: Path, capsys: Capture
) -> None:
    assert main(["init", *arguments]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.count(sentence) == 1
    assert "word@" not in said
    assert list(folder.iterdir()) == []


def test_it_can_be_looked_at_before_it_is_written(folder: Path, capsys: Capture) -> None:
    assert main(["init", "--output", "-", "--source", "none"]) == ExitCode.DONE
    assert "changelog: public.users_changelog" in capsys.readouterr().out
    assert list(folder.iterdir()) == []
