"""Names are untrusted text: copied into a shell or shown on a terminal they must do nothing."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil.cli.app import app
from frazil.model.command import command, quote_argument
from frazil.model.printable import printable, printable_json, printable_lines

pytestmark = pytest.mark.fault("N48")

HOSTILE = [
    "public.x; touch /tmp/pwned | sh #",
    "public.$(touch pwned)",
    "public.`touch pwned`",
    "public.it's",
    'public."quoted"',
    "public.a b",
    "public.a\nrm -rf x",
    "public.\x1b[2J\x1b]0;title\x07",
    "public.\x9b31m",
    "public.back\\slash\x1b",
    "public.it's\x1b",
    "public.\u202egnp.exe",
    "public.!history",
    "public.~",
    "public.*",
    "public.a&b",
    "public.ünï表",
    "",
]
BASH = shutil.which("bash")
SOURCES = sorted(Path(frazil.__file__).parent.rglob("*.py"))
VERBS = "|".join(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
MENTION = re.compile(r"frazil[\s\"']")
COMMAND = re.compile(rf"\bfrazil (?:{VERBS})\b[^`\n]*?\{{\}}")


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_command_that_is_copied_gets_the_name_as_it_is(name: str) -> None:
    copied = command("resync", name).replace("frazil", "printf '<%s>'", 1)
    done = subprocess.run(
        [str(BASH), "-c", f"LC_ALL=C.UTF-8; {copied}"], capture_output=True, check=True
    )
    assert done.stdout.decode() == f"<resync><{name}>"


@given(name=st.text())
def test_a_command_has_nothing_that_a_terminal_obeys(name: str) -> None:
    assert printable(command("resync", name)) == command("resync", name)
    assert "`" not in command("resync", name)


def test_a_plain_name_stays_plain() -> None:
    assert command("position", "set", "public.users") == "frazil position set public.users"
    assert quote_argument("a b") == "'a b'"


@given(text=st.text())
def test_what_is_printable_holds_no_control_and_reads_as_one_line(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert printable(shown) == shown
    assert printable_lines(text).count("\n") == text.count("\n")


@pytest.mark.parametrize("text", ["public.users", "ünï 表 🙂", "می‌خواهم", "a\u0301"])
def test_what_is_printable_already_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(value=st.text() | st.dictionaries(st.text(), st.text()))
def test_json_reads_back_as_the_very_same_value(value: object) -> None:
    document = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(document) == value
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", document)


def built_commands(tree: ast.AST) -> list[tuple[int, str]]:
    """Texts with a command of ours and a placeholder in it."""
    found = []
    examples = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if id(node) in examples:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"%s|\{\w*\}|(?<=\w) $", "{}", node.value)
        if COMMAND.search(text) is not None:
            found.append((getattr(node, "lineno", 0), text))
    return found


@pytest.mark.parametrize(
    "source",
    [
        'f"frazil resync {name}"',
        'f"run frazil position set {name} --to 1"',
        '"frazil resync {}".format(name)',
        '"frazil resync {name}"',
        '"frazil resync %s" % name',
        '"frazil resync " + name',
    ],
)
def test_the_search_for_commands_finds_every_way_to_build_one(source: str) -> None:
    assert built_commands(ast.parse(f"step = {source}"))


def test_commands_with_names_are_built_in_one_module() -> None:
    elsewhere = [
        f"{path.name}:{line}: {text}"
        for path in SOURCES
        for code in [path.read_text(encoding="utf-8")]
        # Most modules speak of no command at all.
        if MENTION.search(code)
        for line, text in built_commands(ast.parse(code))
    ]
    assert elsewhere == []
