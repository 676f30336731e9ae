"""Pages name only commands, keys, codes, metrics and files that exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from frazil.cli.app import app
from frazil.config.loader import parse_config
from frazil.config.showing import config_schema
from frazil.errors import leaves
from frazil.pipeline.reloading import RELOADABLE
from frazil.telemetry.metric_names import METRICS
from tools.docs.site import external_fetches

ROOT = Path(__file__).resolve().parents[2]
# Generated pages repeat the code, and decisions describe their time.
EXCLUDED = {"decisions", "reference"}
WRITTEN = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in EXCLUDED)
FENCE = re.compile(r"(?ms)^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```")
MINIMAL = {
    "pipeline": "shop",
    "catalog": {"kind": "sql", "uri": "sqlite:///c.db", "warehouse": "./lake"},
    "source": {"kind": "postgres", "dsn": "postgresql://h/d"},
}
# What a page may refer to by a variable, and something that such a key takes.
SAMPLES = {"CATALOG_URI": "https://c", "DATABASE_URL": "postgresql://h/d"}
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)")
KEY = re.compile(r"`([a-z_]+(?:\.[a-z0-9_]+)+)`")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(page: Path, kind: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [match["text"] for match in FENCE.finditer(text) if match["kind"] == kind]


def commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in WRITTEN:
        for block in fences(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                arguments = shlex.split(line, comments=True)
                if arguments and Path(arguments[0]).name == "frazil":
                    found.append((named(page), arguments[1:]))
    return found


def test_there_are_pages_and_commands() -> None:
    assert len(WRITTEN) > 10
    assert len(commands()) > 20


def test_every_command_of_a_page_exists_with_its_options() -> None:
    entry: Any = get_command(app)
    for page, arguments in commands():
        command = entry
        while arguments and arguments[0] in getattr(command, "commands", {}):
            command = command.commands[arguments.pop(0)]
        assert not getattr(command, "commands", {}), f"{page}: {arguments}"
        options = {option for each in command.params for option in each.opts}
        used = {
            each.partition("=")[0] for each in arguments if each.startswith("-") and each != "-"
        }
        assert used <= {*options, "-h", "--help"}, f"{page}: {command.name} {arguments}"


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_every_document_of_a_page_loads(page: Path, tmp_path: Path) -> None:
    for block in fences(page, "yaml"):
        given = YAML(typ="safe", pure=True).load(block)
        environ = dict.fromkeys(VARIABLE.findall(block), "sample") | SAMPLES
        text = block + "".join(
            f"\n{key}: {value}" for key, value in MINIMAL.items() if key not in given
        )
        if isinstance(given.get("catalog"), dict):
            # A page that shows a catalog shows all that it needs.
            assert "kind" in given["catalog"], named(page)
        parse_config(text, tmp_path / "frazil.yaml", environ=environ)


def test_every_error_code_and_metric_of_a_page_exists() -> None:
    codes = {leaf.code for leaf in leaves()}
    metrics = {metric.name for metric in METRICS}
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"FRZ-[A-Z]{3}-\d\d", text)) <= codes, named(page)
        assert set(re.findall(r"\bfrazil_[a-z_]+(?=[`{\[])", text)) <= metrics, named(page)


def test_every_file_that_a_page_names_is_there() -> None:
    for page in [*WRITTEN, ROOT / "README.md", ROOT / "ARCHITECTURE.md"]:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:src|tests|examples|benchmarks|docs|tools)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{named(page)}: {name}"


@cache
def known_keys() -> set[str]:
    schema: dict[str, Any] = config_schema()
    definitions = schema["$defs"]

    def below(section: dict[str, Any], path: str) -> set[str]:
        keys = set()
        for key, entry in section.get("properties", {}).items():
            keys.add(f"{path}{key}")
            for name in re.findall(r"#/\$defs/(\w+)", str(entry)):
                keys |= below(definitions[name], f"{path}{key}.")
        return keys

    return below(schema, "")


def test_every_key_of_the_configuration_that_a_page_names_exists() -> None:
    sections = {key.partition(".")[0] for key in known_keys()}
    for page in WRITTEN:
        for key in KEY.findall(page.read_text(encoding="utf-8")):
            if key.partition(".")[0] in sections:
                assert key in known_keys(), f"{named(page)}: {key}"


def test_the_page_names_what_a_reload_changes() -> None:
    page = (ROOT / "docs/how-to/watch.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| SIGHUP"))
    assert set(KEY.findall(row)) == RELOADABLE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://elsewhere.example/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//elsewhere.example/a.css">', 1),
        ("<style>@import 'https://elsewhere.example/a.css';</style>", 1),
        ("<p style=\"background: url('https://elsewhere.example/a.png')\">", 1),
        ('<a href="https://elsewhere.example">a link that a reader may follow</a>', 0),
        ('<script src="assets/a.js"></script>', 0),
    ],
)
def test_a_page_that_needs_another_host_is_noticed(text: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    assert len(external_fetches(tmp_path)) == found
