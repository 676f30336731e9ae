"""What takes a moment is shown on a terminal while it lasts, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from frazil.cli.main import main
from frazil.cli.output import show_progress, shows_progress
from frazil.telemetry.progress import doing, progress_shown_by

if TYPE_CHECKING:
    import pytest


def test_inner_work_is_shown_and_then_the_outer_again() -> None:
    shown: list[str] = []
    with progress_shown_by(shown.append), doing("comparing"), doing("starting Spark"):
        pass
    with doing("unheard"):
        pass
    assert shown == ["comparing", "starting Spark", "comparing", ""]


def test_failed_work_is_over_too() -> None:
    shown: list[str] = []
    with progress_shown_by(shown.append), suppress(ValueError), doing("starting Spark"):
        raise ValueError
    assert shown == ["starting Spark", ""]


def test_the_line_fits_the_terminal_and_is_erased(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    show_progress("comparing a mirror with a long name")
    show_progress("")
    shown, erased = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert shown == "comparing a mirro …"
    assert erased == ""


def test_a_pipe_and_a_dumb_terminal_see_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert not shows_progress()
    master, slave = pty.openpty()
    try:
        with os.fdopen(os.dup(slave), "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            assert shows_progress()
            monkeypatch.setenv("TERM", "dumb")
            assert not shows_progress()
    finally:
        os.close(master)
        os.close(slave)


def test_a_command_in_a_pipe_prints_nothing_but_its_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["version", "-o", "json"]) == 0
    assert capsys.readouterr().err == ""
