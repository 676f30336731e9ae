"""Tables are coloured and folded on a terminal, and plain in a pipe."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import pytest

from frazil.cli.output import write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = ("STATE", "TABLE", "FOUND")
FOUND = "The publication shop does not publish updates: alter it, and run the check again."
ROWS = [("ok", "public.orders", "12 columns"), ("stops", "public.[bold]x", FOUND)]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, environment: Mapping[str, str]
) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "200", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream)
    write_table(ROWS, header=HEADER)
    return stream.getvalue()


def test_states_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = written(monkeypatch, Terminal(), {})
    assert "\x1b[32mok" in shown
    assert "\x1b[1;31mstops" in shown
    assert "public.[bold]x" in shown


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_without_colour_gets_none(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    shown = written(monkeypatch, Terminal(), environment)
    assert COLOUR.search(shown) is None
    assert "run the check again." in shown


def test_a_narrow_terminal_shows_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ANSI.sub("", written(monkeypatch, Terminal(), {"COLUMNS": "50"}))
    assert max(map(len, shown.splitlines())) <= 50
    assert "".join(FOUND.split()) in "".join(line[23:] for line in shown.splitlines()).replace(
        " ", ""
    )
    assert "…" not in shown


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}], ids=str)
def test_a_pipe_gets_complete_lines_without_escapes(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    shown = written(monkeypatch, io.StringIO(), {"COLUMNS": "20", **environment})
    assert shown.splitlines() == [
        "STATE  TABLE           FOUND",
        "ok     public.orders   12 columns",
        f"stops  public.[bold]x  {FOUND}",
    ]


@pytest.mark.parametrize("columns", [8, 24, 60, 90, 120])
def test_no_terminal_is_too_narrow_to_show_everything(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    header, rows = HEADER * 3, [row * 3 for row in ROWS]
    stream = Terminal()
    written(monkeypatch, stream, {"COLUMNS": str(columns)})
    stream.truncate(stream.seek(0))
    write_table(rows, header=header)
    shown = ANSI.sub("", stream.getvalue())
    letters = "".join([*header, *(cell for row in rows for cell in row)]).replace(" ", "")
    assert sorted("".join(shown.split())) == sorted(letters)
